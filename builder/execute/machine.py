"""Whether this machine is one where a plan's steps can run at all: asked before anything is written."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from builder.execute.base_file import check_base
from builder.model.finding import ConfigError, Finding, Location, ToolError, UnsupportedError
from builder.model.plan import Plan, Step
from builder.model.site import Site
from builder.model.text import sanitize
from builder.parse.site import read_bundled_hostnames
from builder.parse.yaml import suggest_path
from builder.sif.sif import ARCHITECTURES, SifError, read_header
from builder.system.process import find_program

# Where engine.sh looks for the module command in a shell that is no login shell.
MODULE_FILES = ("etc/profile.d/lmod.sh", "etc/profile.d/modules.sh", "usr/share/lmod/lmod/init/bash")
_MODULE = re.compile(r"^use_module ", re.MULTILINE)


def check_machine(
    site: Site,
    plan: Plan,
    *,
    steps: Sequence[Step],
    here: Sequence[Step],
    environment: Mapping[str, str],
    recipe: str,
    base_at: Location,
    sure: bool = False,
    root: Path = Path("/"),
) -> None:
    """Raise ToolError where this is no machine of the site: its base image is not here, or what loads its modules.

    Of the `steps` those `here` are no jobs. A base image of the user's own that does not exist is a ConfigError.
    `recipe` is the file as a command names it, `base_at` what names that base image, `root` where
    the system's files lie. A host name is a guess: a user who is `sure` (--here) overrules it.
    """
    guessed = not sure and not any(step.where == "workstation" for step in here)
    other = find_other_site(site, host=os.uname().nodename) if guessed else ""
    if other:
        end = f"; if this is a machine of '{site.name}' all the same, give --here"
        raise ToolError(_make_elsewhere_finding(site, f"it is one of '{other}', by its name", recipe=recipe, end=end))
    makes = any(step.kind == "build" for step in steps)
    if makes and plan.base.startswith("/") and not Path(plan.base).exists():
        if plan.base not in [image.reference for image in site.base_images]:
            message = f"the base image '{sanitize(plan.base, limit=400)}' does not exist"
            fix = suggest_path(Path(plan.base))
            raise ConfigError(Finding(code="base-missing", message=message, at=base_at, fix=fix))
        raise ToolError(_make_elsewhere_finding(site, f"its base image '{plan.base}' is not here", recipe=recipe))
    if makes and plan.base:
        check_base_here(site, plan, at=base_at, environment=environment)
    loads = any(_MODULE.search(file.text) for file in plan.files if file.path in {step.script for step in here})
    if loads and (why := _lacks_site(site, environment=environment, root=root)):
        raise ToolError(_make_elsewhere_finding(site, why, recipe=recipe))


def check_base_here(site: Site, plan: Plan, *, at: Location, environment: Mapping[str, str]) -> None:
    """Raise for a base image that the build would refuse, as far as this machine has it; reads a few of its files."""
    if plan.base.startswith("/") and Path(plan.base).is_file():  # a pipe would keep who opens it waiting
        _check_processor(site, Path(plan.base), at=at)
    own = plan.base not in [image.reference for image in site.base_images]
    check_base(plan, at=at, own=own, environment=environment)


def _lacks_site(site: Site, *, environment: Mapping[str, str], root: Path) -> str:
    """What a machine of the site has and this one has not, "" where nothing is missing."""
    if not has_modules(environment, root=root):
        return "there is no module command here"
    images = [image.reference for image in site.base_images if image.reference.startswith("/")]
    here = not images or any(Path(image).exists() for image in images)
    return "" if here else f"its base image '{images[0]}' is not here"


def check_run_machine(
    site: Site, *, environment: Mapping[str, str], sure: bool = False, root: Path = Path("/")
) -> Finding | None:
    """Raise ToolError where this is no machine of the site, for a command that runs as the site would run it.

    Returned is a warning where only the host name says so: a site may have more machines than its file names. In a job
    of Slurm's, and for a user who is `sure` (--here), any machine will do.
    """
    if sure or site.scheduler.kind == "none" or environment.get("SLURM_JOB_ID"):
        return None
    host = os.uname().nodename
    other = find_other_site(site, host=host)
    loads = site.runtime.modules or site.runtime.run_modules
    images = any(image.reference.startswith("/") for image in site.base_images)
    why = f"it is one of '{other}', by its name" if other else ""
    if not why and (loads or images):
        why = _lacks_site(site, environment=environment, root=root)
    if not why and find_program("sbatch", env=environment) is None:
        why = "there is no sbatch here"
    fix = f"log in to '{site.name}' and run it there, or give --here to run it on this machine all the same"
    if why:
        message = f"this is not a machine of '{site.name}': {why}"
        raise ToolError(Finding(code="not-this-site", message=message, fix=fix))
    if not site.hostnames or _is_named(host.partition(".")[0], site.hostnames):
        return None
    message = f"this may be no machine of '{site.name}': '{host}' is not among {', '.join(site.hostnames)}"
    return Finding(code="not-this-site", message=message, fix=fix, level="warning")


def _check_processor(site: Site, base: Path, *, at: Location) -> None:
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


def find_other_site(site: Site, *, host: str) -> str:
    """The other bundled site whose machine this is by its host name, "" where no name says so."""
    known, name = read_bundled_hostnames(), host.partition(".")[0]
    if site.name not in known or site.scheduler.kind == "none" or _is_named(name, site.hostnames):
        return ""
    return next((other for other, forms in known.items() if other != site.name and _is_named(name, forms)), "")


def _is_named(name: str, forms: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, form) for form in forms)


def check_sbatch(site: Site, *, environment: Mapping[str, str], recipe: str = "") -> None:
    """Raise ToolError where no job can be submitted from this machine; `recipe` is the file that is built."""
    if find_program("sbatch", env=environment) is not None:
        return
    message = f"there is no sbatch here: no job of '{site.name}' can be submitted from this machine"
    fix = f"log in to '{site.name}' and submit there"
    if recipe:
        fix += f", or write the plan folder here with `recipe plan {site.name} {shlex.quote(recipe)}` and copy it there"
    raise ToolError(Finding(code="no-program", message=message, fix=fix))


def has_modules(environment: Mapping[str, str], *, root: Path = Path("/")) -> bool:
    """Whether a script finds the module command, as engine.sh looks for it."""
    # A function that was exported, or what bash reads first may define it.
    told = any(name.startswith("BASH_FUNC_module") for name in environment) or bool(environment.get("BASH_ENV"))
    return (
        told
        or find_program("module", env=environment) is not None
        or any((root / name).is_file() for name in MODULE_FILES)
    )


def _make_elsewhere_finding(site: Site, why: str, *, recipe: str, end: str = "") -> Finding:
    plan = f"`recipe plan {site.name} {shlex.quote(recipe)}`"
    fix = f"log in to '{site.name}' and build there, or write the plan folder here with {plan} and copy it there{end}"
    return Finding(code="not-this-site", message=f"this is not a machine of '{site.name}': {why}", fix=fix)
