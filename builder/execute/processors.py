"""Whether the processors of this machine, of a base image and of a site are the same."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from builder.model.finding import Finding, Location, ToolError, UnsupportedError
from builder.model.plan import Plan, Step
from builder.model.site import Site
from builder.model.text import sanitize
from builder.sif.sif import ARCHITECTURES, SifError, read_header

PARTS = ("image/system.txt", "image/run.sh")  # what a container does


def check_engines(site: Site, plan: Plan, *, here: Sequence[Step], plan_line: str, root: Path = Path("/")) -> None:
    """Raise ToolError where an engine of this machine cannot build for the processors of the site.

    Docker can with an emulator that the kernel knows, and layers where no program of the image runs.
    """
    machine, arch = os.uname().machine, site.node.arch
    built = [step for step in here if step.kind == "build"]
    if machine == arch or not built or _is_laid_out(plan):
        return
    docker = all("docker" in step.programs for step in built)
    if docker and any((root / "proc/sys/fs/binfmt_misc").glob(f"*{arch}*")):
        return
    message = f"'{site.name}' has {arch} processors, and this machine has {machine}: an engine builds for its own"
    fix = f"build on '{site.name}', in a job there (--submit), or on another machine of {arch}"
    if plan_line:
        fix += f"; the plan folder can be made here: `{plan_line}`"
    if docker:
        fix += f". Docker builds here, slowly, once binfmt_misc of the kernel has an emulator of {arch} (QEMU)"
    raise ToolError(Finding(code="other-processor", message=message, fix=fix))


def _is_laid_out(plan: Plan) -> bool:
    """Whether layers of conda packages alone are made: no program of the image runs, as the plan's script has it."""
    files = {file.path: file.text for file in plan.files}
    runs = [path for path in files if path in PARTS or path.startswith("image/requirements")]
    return '"place": "conda"' in files.get("layers.json", "") and not runs


def check_base_processor(site: Site, base: Path, *, at: Location) -> None:
    """Raise UnsupportedError for a SIF as base image that is for another processor than the site's."""
    try:
        found = read_header(base)["architecture"]
    except (OSError, SifError):
        return  # no SIF: what it is for is known when it is read
    machine = ARCHITECTURES.get(f"{found}\0".encode(), site.node.arch)
    if machine != site.node.arch:
        shown = sanitize(str(base), limit=400)
        message = f"the base image '{shown}' is for {machine}, and '{site.name}' has {site.node.arch}"
        fix = f"name an image for {site.node.arch}, or leave {at.key or 'the base image'} out: the site has one"
        raise UnsupportedError(Finding(code="base-processor", message=message, at=at, fix=fix))
