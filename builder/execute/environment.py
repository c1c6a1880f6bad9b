"""The environment of a step: the user's, without what would reach into the image while it is built."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import builder
from builder.layering.uv import VARIABLE, own_uv

TMPDIR = "RECIPE_TMPDIR"
RESULTS = "RECIPE_RESULTS"  # for kits that are run by hand: the tool reads results where the plan folder has them

# Site modules set these for running. While an image is built, a bind to a path it does not have ends the build
# (OLCF documentation, "Containers on Frontier"; LUMI training Q&A).
BINDS = ("BIND", "BINDPATH", "MOUNT", "CONTAINLIBS")
REMOVED = tuple(f"{program}_{name}" for program in ("APPTAINER", "SINGULARITY") for name in BINDS)


def step_environment(user: Mapping[str, str], *, scratch: Path) -> dict[str, str]:
    """Give the environment that a step's script runs in."""
    kept = {name: value for name, value in user.items() if name not in (*REMOVED, RESULTS)}
    # The programs that came with us where the user's PATH has none of that name; our own Python.
    path = os.pathsep.join([kept.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    return {
        **kept,
        TMPDIR: str(scratch),
        "PATH": path,
        VARIABLE: kept.get(VARIABLE) or own_uv(),
        "RECIPE_PYTHON": kept.get("RECIPE_PYTHON") or sys.executable,
        # What the plan folder has a copy of; ours is compiled already.
        "RECIPE_LAYERING": str(Path(builder.__file__).with_name("layering")),
    }
