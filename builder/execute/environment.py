"""The environment of a step: the user's, without what would reach into the image while it is built."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

TMPDIR = "RECIPE_TMPDIR"

# Site modules set these for running. While an image is built, a bind to a path it does not have ends the build
# (OLCF documentation, "Containers on Frontier"; LUMI training Q&A).
BINDS = ("BIND", "BINDPATH", "MOUNT", "CONTAINLIBS")
REMOVED = tuple(f"{program}_{name}" for program in ("APPTAINER", "SINGULARITY") for name in BINDS)


def step_environment(user: Mapping[str, str], *, scratch: Path) -> dict[str, str]:
    """Give the environment that a step's script runs in."""
    kept = {name: value for name, value in user.items() if name not in REMOVED}
    return {**kept, TMPDIR: str(scratch)}
