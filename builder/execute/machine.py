"""Whether this machine, and the base image of a plan, can be used at all, and how a missing program is installed."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from builder.execute.processors import check_base_processor, check_engines
from builder.model.finding import BuilderError, ConfigError, Finding, Location, ToolError, UnsupportedError
from builder.model.plan import Plan, Step
from builder.model.site import Site
from builder.model.text import exists, sanitize
from builder.parse.site import read_bundled_hostnames
from builder.parse.yaml import suggest_path
from builder.sif.sif import SifError
from builder.system.files import find_unreadable
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
    plan_line: str,
    base_at: Location,
    sure: bool = False,
) -> None:
    """Raise ToolError where this is no machine of the site: its base image is not here, or what loads its modules.

    Of the `steps` those `here` are no jobs. A base image of the user's own that does not exist is a ConfigError.
    `plan_line` is the command that writes the plan folder alone, `base_at` what names that base image. A host name is a
    guess: a user who is `sure` (--here) overrules it.
    """
    makes = any(step.kind == "build" for step in steps)
    there = plan.base.startswith("/") and Path(plan.base).exists()
    if makes and there:  # no other machine, and no plan folder, helps with a wrong one
        check_base_here(site, plan, at=base_at, environment=environment)
    guessed = not sure and not any(step.where == "workstation" for step in here)
    other = find_other_site(site, host=os.uname().nodename) if guessed else ""
    if other:
        end = f"; if this is a machine of '{site.name}' all the same, give --here"
        why = f"it is one of '{other}', by its name"
        raise ToolError(_make_elsewhere_finding(site, why, plan_line=plan_line, end=end))
    check_engines(site, plan, here=here, plan_line=plan_line)
    if makes and plan.base.startswith("/") and not there:
        if plan.base not in [image.reference for image in site.base_images]:
            message = f"the base image '{sanitize(plan.base, limit=400)}' does not exist"
            fix = suggest_path(Path(plan.base))
            raise ConfigError(Finding(code="base-missing", message=message, at=base_at, fix=fix))
        raise ToolError(_make_elsewhere_finding(site, f"its base image '{plan.base}' is not here", plan_line=plan_line))
    if makes and plan.base and not there:
        check_base_here(site, plan, at=base_at, environment=environment)
    loads = any(_MODULE.search(file.text) for file in plan.files if file.path in {step.script for step in here})
    if loads and (why := _lacks_site(site, environment=environment)):
        raise ToolError(_make_elsewhere_finding(site, why, plan_line=plan_line))


def check_base_here(site: Site, plan: Plan, *, at: Location, environment: Mapping[str, str]) -> None:
    """Raise for a base image that the build would refuse, as far as this machine has it; reads a few of its files."""
    if plan.base.startswith("/") and Path(plan.base).is_file():  # a pipe would keep who opens it waiting
        check_base_processor(site, Path(plan.base), at=at)
    own = plan.base not in [image.reference for image in site.base_images]
    check_base(plan, at=at, own=own, environment=environment)


def _lacks_site(site: Site, *, environment: Mapping[str, str]) -> str:
    """What a machine of the site has and this one has not, "" where nothing is missing."""
    if not has_modules(environment):
        return "there is no module command here"
    images = [image.reference for image in site.base_images if image.reference.startswith("/")]
    here = not images or any(Path(image).exists() for image in images)
    return "" if here else f"'{Path(images[0]).parent}', where it keeps its images, is not here"


def check_run_machine(site: Site, *, environment: Mapping[str, str], sure: bool = False) -> Finding | None:
    """Raise ToolError where this is no machine of the site, for a run or a test of an image as the site would run it.

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
        why = _lacks_site(site, environment=environment)
    if not why and find_program("sbatch", env=environment) is None:
        why = "there is no sbatch here"
    fix = f"log in to '{site.name}' and run it there, or give --here to run it on this machine all the same"
    if why:
        message = f"this is not a machine of '{site.name}': {why}"
        raise ToolError(Finding(code="not-this-site", message=message, fix=fix))
    bound = () if site.hostnames else (*site.runtime.binds, *site.runtime.optional_binds)
    gone = [path for path in bound if path.startswith("/") and not {"$", ":"} & {*path} and not exists(Path(path))]
    if not gone and (not site.hostnames or _is_named(host.partition(".")[0], site.hostnames)):
        return None
    doubt = f"'{gone[0]}', which its containers use, is not here" if gone else ""
    doubt = doubt or f"'{host}' is not among {', '.join(site.hostnames)}"
    message = f"this may be no machine of '{site.name}': {doubt}"
    return Finding(code="not-this-site", message=message, fix=fix, level="warning")


def is_elsewhere(site: Site, *, environment: Mapping[str, str]) -> bool:
    """Whether this is no machine of the site: an image is run here with --here alone, and no job is submitted."""
    try:
        check_run_machine(site, environment=environment)
    except ToolError:
        return True
    return False


def find_other_site(site: Site, *, host: str) -> str:
    """The other bundled site whose machine this is by its host name, "" where no name says so."""
    known, name = read_bundled_hostnames(), host.partition(".")[0]
    if site.name not in known or site.scheduler.kind == "none" or _is_named(name, site.hostnames):
        return ""
    return next((other for other, forms in known.items() if other != site.name and _is_named(name, forms)), "")


def _is_named(name: str, forms: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, form) for form in forms)


def check_sbatch(site: Site, *, environment: Mapping[str, str], plan_line: str = "") -> None:
    """Raise ToolError where no job can be submitted from this machine; `plan_line` writes the plan folder alone."""
    if find_program("sbatch", env=environment) is not None:
        return
    message = f"there is no sbatch here: no job of '{site.name}' can be submitted from this machine"
    fix = f"log in to '{site.name}' and submit there"
    if plan_line:
        fix += f", or write the plan folder here with `{plan_line}` and copy it there"
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


def _make_elsewhere_finding(site: Site, why: str, *, plan_line: str, end: str = "") -> Finding:
    plan = f"write the plan folder here with `{plan_line}` and copy it there"
    fix = f"log in to '{site.name}' and build there, or {plan}{end}"
    return Finding(code="not-this-site", message=f"this is not a machine of '{site.name}': {why}", fix=fix)


# A name in a registry, by the grammar of the distribution project's module "reference".
_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
SPEC = "layers.json"
_CHOOSE = "give the path of a SIF image, or docker://NAME:TAG"


def check_base(plan: Plan, *, at: Location, own: bool, environment: Mapping[str, str]) -> None:
    """Raise for a base image that no engine can use: ConfigError for the user's `own`, ToolError for a site's.

    Opens regular files only. The layers backend needs a SIF with a squashfs partition; what it builds without a server
    needs its base image in the cache. A SIF whose Python or glibc is not what the plan needs is an UnsupportedError.
    """
    if plan.base.startswith("/"):
        wrong = _find_file_fault(Path(plan.base), layers=plan.backend == "layers")
        code, fix = "base-unreadable", _CHOOSE
        if closed := find_unreadable(Path(plan.base)):
            wrong, fix = "it may not be read", closed.fix
    else:
        wrong, code, fix = _name_fault(plan.base), "base-reference", "check the name: docker://HOST/NAME:TAG"
    shown = sanitize(plan.base, limit=400)
    if wrong:
        message = f"the base image '{shown}' cannot be used: {wrong}"
        if own:
            raise ConfigError(Finding(code=code, message=message, at=at, fix=fix))
        raise ToolError(Finding(code=code, message=message, fix="name another base image with --base"))
    if plan.base.startswith("/"):
        _check_programs(plan, at=at if own else None)
    if plan.backend == "layers" and environment.get("RECIPE_OFFLINE") and not plan.base.startswith("/"):
        _check_cached(plan, environment=environment)


def _find_file_fault(path: Path, *, layers: bool) -> str:
    """What is wrong with a base image of this machine, "" if nothing is."""
    from builder.inspect.image import check_image
    from builder.sif.bounded import open_file
    from builder.sif.sif import MAGIC, SQUASHFS, SYSTEM, read_sif

    if layers and path.is_dir():
        return "it is a folder, and the backend 'layers' needs a SIF image"
    try:
        check_image(path)
        if path.is_dir():
            return ""
        with open_file(path) as file:
            head = file.read(42)
        if layers or head[32:] == MAGIC:
            image = read_sif(path)
            if layers or any(item.partition[:2] == (SQUASHFS, SYSTEM) for item in image.objects if item.partition):
                return _find_damage(path, offset=image.system.offset)
    except BuilderError as error:
        _, split, found = error.findings[0].message.partition("' is ")
        return f"it is {found}" if split else error.findings[0].message
    except SifError as error:
        return str(error)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _find_damage(path: Path, *, offset: int) -> str:
    """What is wrong with the tables of the root file system in an image, "" where they can be read."""
    from builder.sif.squashfs import Squashfs, SquashfsError, make_unpacker, read_superblock

    with path.open("rb") as file:
        try:
            head = read_superblock(file, offset=offset)
        except SquashfsError as error:
            return f"its root file system is damaged: {error}"
        try:
            make_unpacker(head.compression)
        except SquashfsError:
            return ""  # only an engine can read it
        try:
            found = Squashfs(file, offset=offset)
            _ = found.owners, found.fragments, list(found.read_entries(found.root))
        except SquashfsError as error:
            return f"its root file system is damaged: {error}"
    return ""


def _check_programs(plan: Plan, *, at: Location | None) -> None:
    """Raise UnsupportedError where the Python or the glibc of a base image stops the build later; only of a SIF."""
    own = {file.path.removeprefix("image/"): file.text for file in plan.files if file.path.startswith("image/")}
    wanted, requirements = own.get("python-version", "").strip(), any(name.startswith("require") for name in own)
    layers = plan.backend == "layers" and requirements and own.get("place", "").strip() == "venv"
    if not (wanted or layers) or (plan.backend == "layers" and not requirements):
        return
    from builder.layers.base_facts import read_base_programs
    from builder.layers.wheels import name_platform
    from builder.sif.errors import LayeringError

    try:
        found = read_base_programs(Path(plan.base))
    except LayeringError:
        return  # an archive, a folder, or a file system that only an engine reads
    # The distribution's packages come before Python is looked for, but for layers.
    if wanted and found.minor not in ("", wanted) and (layers or "python" not in own.get("system.txt", "")):
        message = f"the recipe requires Python {wanted}, the base image has {found.minor}"
        fix = f"write python={found.minor}, or use a base image with Python {wanted}"
        raise UnsupportedError(Finding(code="base-python", message=message, at=at, fix=fix))
    if layers and found.minor:
        try:
            name_platform(found.machine, found.glibc)
        except LayeringError as error:
            finding = Finding(code="base-glibc", message=str(error), at=at, fix=error.fix)
            raise UnsupportedError(finding) from None


def _name_fault(reference: str) -> str:
    """What is wrong with the name of an image in a registry, "" if nothing is."""
    from builder.layers.reference import parse_reference

    scheme, _, name = reference.partition("://")
    if scheme == "docker" and not _NAME.fullmatch(parse_reference(reference)[1]):
        return "a name in a registry has small letters, digits, '.', '_' and '-' between them only"
    if scheme == "oras":
        path = name.partition("/")[2].partition("@")[0].partition(":")[0]
        if not _NAME.fullmatch(path):
            return "oras:// needs a host and a name of small letters, as in oras://HOST/NAME:TAG"
    return ""


def _check_cached(plan: Plan, *, environment: Mapping[str, str]) -> None:
    """Raise ToolError where no server may be asked and the base image was not fetched before; makes nothing."""
    from builder.layers.cache import KINDS, compute_key
    from builder.layers.private_folders import LAYERS, find_cache_folder
    from builder.layers.spec import FIX, is_offline
    from builder.sif.bounded import parse_json, read_json
    from builder.sif.errors import LayeringError

    text = next((file.text for file in plan.files if file.path.endswith(SPEC)), "")
    if not (text and is_offline(environment)):
        return
    reference = parse_json(text)["base"]  # with the digest of a lock
    try:
        folder = find_cache_folder(environment) / LAYERS
    except LayeringError:
        return  # a cache without a place is refused with the program's other needs
    with suppress(OSError, ValueError, KeyError, TypeError):
        key = read_json(folder / "known" / f"{compute_key(['reference', reference])}.json")["fact"]
        if (folder / "bases" / f"{key}{KINDS['bases']}").is_file():
            return
    message = f"the base image {sanitize(reference, limit=400)} was not fetched before, and no server is asked"
    raise ToolError(Finding(code="no-network", message=message, fix=FIX))


# By the ID or ID_LIKE of os-release(5).
MANAGERS = {
    "debian": "apt", "ubuntu": "apt", "fedora": "dnf", "rhel": "dnf", "centos": "dnf", "suse": "zypper",
    "opensuse": "zypper", "sles": "zypper", "alpine": "apk", "arch": "pacman",
}  # fmt: skip
COMMANDS = {
    "apt": "apt install", "dnf": "dnf install", "zypper": "zypper install", "apk": "apk add", "pacman": "pacman -S",
}  # fmt: skip
# The packages, where the repositories of a system have them (2026-11); OTHERS and UNKNOWN are for the rest.
PACKAGES = {
    "apptainer": dict.fromkeys(("dnf", "zypper", "apk", "pacman"), "apptainer"),
    "squashfs-tools": {**dict.fromkeys(COMMANDS, "squashfs-tools"), "zypper": "squashfs"},
    "docker": {"apt": "docker.io", "dnf": "moby-engine", "zypper": "docker", "apk": "docker", "pacman": "docker"},
}
UNKNOWN = {
    "apptainer": "install Apptainer (apptainer.org/docs/admin)",
    "squashfs-tools": "install the package squashfs-tools (`squashfs` on openSUSE)",
    "docker": "install the Docker engine (docs.docker.com/engine/install), or build on a workstation that has it",
}
# https://apptainer.org/docs/admin/main/installation.html, and https://docs.docker.com/engine/install/
OTHERS = {
    ("apptainer", "ubuntu"): "`{sudo}add-apt-repository -y ppa:apptainer/ppa && {sudo}apt install apptainer`",
    ("apptainer", "debian"): "`{sudo}apt install ./apptainer_*.deb` with the file of "
    "github.com/apptainer/apptainer/releases",
    ("apptainer", "rhel"): "`{sudo}dnf install apptainer` with the repository EPEL (docs.fedoraproject.org/en-US/epel)",
    ("docker", "rhel"): UNKNOWN["docker"],
}
WITHOUT_ROOT = {"squashfs-tools": "`conda install -c conda-forge squashfs-tools`"}
BROUGHT_BY = {
    "apptainer": "apptainer", "singularity": "apptainer", "mksquashfs": "squashfs-tools",
    "unsquashfs": "squashfs-tools", "docker": "docker",
}  # fmt: skip
TYKKY = "load the module of Tykky (LUMI: lumi-container-wrapper)"
BY_HAND = {
    "cotainr": "load its module (LUMI: `module load CrayEnv cotainr`), or `pip install cotainr`",
    "conda-containerize": TYKKY,
    "pip-containerize": TYKKY,
    "wrap-container": TYKKY,
    "sbatch": "run this on a login node of the site",
    "srun": "run this on a login node of the site",
}


def find_installation(name: str, *, environment: Mapping[str, str], root: Path = Path("/")) -> str:
    """Return what brings a program to this machine, "" for one that is not known; `root` has the system's files."""
    product = BROUGHT_BY.get(name)
    if product is None:
        return BY_HAND.get(name, "")
    others = f", without root {WITHOUT_ROOT[product]}" if product in WITHOUT_ROOT else ""
    module = f"`module load {product}` if `module avail {product}` lists it; else "
    own = product != "docker" and has_modules(environment, root=root)  # a cluster has no Docker
    return f"{module if own else ''}{_find_command(product, root=root)}{others}"


def _find_command(product: str, *, root: Path) -> str:
    """Return the command of this system's package manager, or what helps where it has no such package."""
    names = _read_names(root)
    manager = next((MANAGERS[name] for name in names if name in MANAGERS), "")
    sudo = "" if os.geteuid() == 0 else "sudo "
    special = next((OTHERS[product, name] for name in names if (product, name) in OTHERS), "")
    package = PACKAGES[product].get(manager)
    if special or not package:
        return special.format(sudo=sudo) or UNKNOWN[product]
    return f"`{sudo}{COMMANDS[manager]} {package}`"


def _read_names(root: Path) -> tuple[str, ...]:
    """Return the ID of this system and those that it is like, the nearest first."""
    for name in ("etc/os-release", "usr/lib/os-release"):
        try:
            text = (root / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        try:
            words = shlex.split(f"{found.get('ID', '')} {found.get('ID_LIKE', '')}")
        except ValueError:
            return ()
        return tuple(part.split("-")[0] for word in words for part in word.split())
    return ()
