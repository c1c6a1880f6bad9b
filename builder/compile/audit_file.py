"""`audit.json` of a plan: the GPU that the packages of the image are held against before it is published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from builder.audit.names import CODE, PLAN
from builder.compile.image_files import PREFIX
from builder.compile.step_scripts import make_call
from builder.model.plan import Copy, PlanFile
from builder.model.site import BackendName
from builder.model.target import Target

# Where engines put an environment: cotainr's conda (pack.py of 2025.7.1; earlier it was in /opt/conda, with the same
# name of the environment); the squashfs file of tykky has nothing else.
FOLDERS: Mapping[BackendName, tuple[str, ...]] = {
    "cotainr": ("opt/cotainr/conda", "opt/conda/envs/conda_container_env"),
    "tykky": ("",),
}


def make_audit_files(target: Target) -> tuple[PlanFile, ...]:
    """Make the file; a site without a GPU has nothing to be audited for."""
    if target.site.vendor == "cpu":
        return ()
    from builder.resolve.gpu_machine import make_machine  # the readers of files are not needed by `check`

    own = () if target.environment.place == "base" else (PREFIX.lstrip("/"),)
    document = {
        "schema": 1,
        "site": target.site.name,
        "machine": asdict(make_machine(target.site)),
        "folders": FOLDERS.get(target.backend, own),
        "cpu": "cpu" in target.recipe.container.gpu,
        "ignored": CODE in target.context.ignored,
    }
    return (PlanFile(path=PLAN, text=json.dumps(document, indent=2, sort_keys=True) + "\n"),)


def make_audit_lines(target: Target, part: str) -> list[str]:
    """Make the line that audits the draft of an image; it ends the script with exit code 6 where a package is wrong."""
    return [make_call("audit_image", part)] if make_audit_files(target) else []


def list_audit_copies(target: Target) -> tuple[Copy, ...]:
    """List the program that audits, for plans that have it for nothing else."""
    return (Copy(source="layering", path="layering", bundled=True),) if make_audit_files(target) else ()
