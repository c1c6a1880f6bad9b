"""What this machine has of what a build or a run needs; it looks, and changes nothing."""

from __future__ import annotations

import os
import pwd
import re
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from builder.execute.docker_daemon import GROUP as DOCKER
from builder.execute.docker_daemon import examine_docker
from builder.execute.doctor_binds import examine_bind_paths
from builder.execute.doctor_readings import Reading, examine_places
from builder.execute.machine import find_installation, has_modules
from builder.execute.preflight import is_login_node
from builder.layers.uv import FIX as UV_FIX
from builder.layers.uv import find_own_uv, find_uv
from builder.model.backend import TRAITS
from builder.model.finding import Finding, ToolError
from builder.model.recipe import Recipe
from builder.model.site import Site
from builder.sif.errors import LayeringError
from builder.sif.programs import MORE
from builder.system.process import BackgroundCommand, find_program

PROGRAMS = (
    "apptainer", "singularity", "cotainr", "conda-containerize", "docker", "mksquashfs", "unsquashfs", "sbatch", "srun",
    "mpiexec",
)  # fmt: skip
SECONDS = 1.5  # for the answers of programs, which all work at the same time
SILENT = 2.0  # seconds without a line
CONTROLLER = 0.5  # for Slurm's controller: it answers within milliseconds, and scontrol asks an absent one for 10 s
PYTHONS = ("python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10")
LEAST = 1 << 30  # bytes of address space: Go's programs and a dozen threads do not start with less
_VERSION = re.compile(r"\d+(\.\d+)+")
_VERSION_LINE = re.compile(r"[^/]*(?<![\w./-])v?\d+(\.\d+)+")  # and no place in a program's source, as of a panic


def examine(
    site: Site | None,
    *,
    environment: Mapping[str, str],
    root: Path = Path("/"),
    offline: bool = False,
    recipe: Recipe | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Reading, ...]:
    """Look at everything; `root` is the folder with the system's files, `offline` asks no server.

    With a recipe its own servers are asked, too. After two seconds `tell` gets a line on what has not answered.
    Raises ToolError where this shell has too little memory to start anything.
    """
    check_memory(resource.getrlimit(resource.RLIMIT_AS)[0])
    backend = site.build.backends[0] if site else ""
    found = find_installed(environment)
    parts: dict[str, Callable[[], list[Reading]]] = {
        "the engines": lambda: examine_programs(site, found=found, environment=environment),
        "uv": lambda: [examine_uv(environment, needed=backend == "layers"), examine_rattler()],
        "the bind paths": lambda: examine_bind_paths(found, root=root),
        "Docker": lambda: _examine_docker(found.get("docker"), environment=environment, needed=backend == "docker"),
        "the kernel": lambda: examine_kernel(root, user=_find_user()),
        "the disks": lambda: examine_places(environment=environment, backend=backend),
        "this machine": lambda: examine_machine(site, environment=environment, root=root),
        "Slurm": lambda: examine_slurm(site, environment=environment),
        "the GPU driver": lambda: examine_drivers(site, root=root),
    }
    if not offline:
        from builder.execute.doctor_network import examine_network

        parts["the servers"] = lambda: examine_network(site, environment=environment, recipe=recipe)
    with ThreadPoolExecutor(len(parts)) as pool:  # each waits for others: programs, a daemon, servers
        answers = {name: pool.submit(part) for name, part in parts.items()}
        if late := wait(answers.values(), timeout=SILENT).not_done:
            tell(f"waiting for {' and '.join(name for name, answer in answers.items() if answer in late)}")
        return tuple(reading for answer in answers.values() for reading in answer.result())


def check_memory(limit: int) -> None:
    """Raise ToolError for a limit of address space, in bytes, that the programs of a build do not start with."""
    if limit == resource.RLIM_INFINITY or limit >= LEAST:
        return
    message = f"this shell may use {limit >> 20} MiB of memory (ulimit -v), and a build needs {LEAST >> 20} MiB or more"
    fix = "raise it with `ulimit -v unlimited`, or work on a node that allows more"
    raise ToolError(Finding(code="no-memory", message=message, fix=fix))


def _examine_docker(program: Path | None, *, environment: Mapping[str, str], needed: bool) -> list[Reading]:
    said = query_version_lines({"docker": program}, environment=environment)["docker"] if program else ""
    return examine_docker(environment=environment, program=program, version=said, needed=needed)


def find_installed(environment: Mapping[str, str]) -> dict[str, Path]:
    """The programs that are here, also those that only administrators have on PATH."""
    path = f"{environment.get('PATH', os.defpath)}{os.pathsep}{MORE}"
    return {name: found for name in PROGRAMS if (found := find_program(name, env={"PATH": path})) is not None}


def examine_programs(site: Site | None, *, found: Mapping[str, Path], environment: Mapping[str, str]) -> list[Reading]:
    """Which engines are here, in which version; what the site's default backend needs must be."""
    readings = [
        Reading(name=name, state="ok", says=said or str(found[name]), group="engines")
        for name, said in query_version_lines(found, environment=environment).items()
    ]
    for need in list_missing(site, found=found) if site else ():
        says = f"missing; the backend {site.build.backends[0]} needs it" if site else ""
        name, fix = " or ".join(need), find_installation(need[0], environment=environment)
        readings.append(Reading(name=name, state="bad", says=says, fix=fix, group="engines"))
    return readings


def list_missing(site: Site, *, found: Mapping[str, Path]) -> list[list[str]]:
    """The programs that the site's default backend needs and that are not here; alternatives together."""
    needs = [need.split("|") for need in TRAITS[site.build.backends[0]].programs]
    return [names for names in needs if not any(name in found for name in names)]


def query_version_lines(found: Mapping[str, Path], *, environment: Mapping[str, str]) -> dict[str, str]:
    """The line in which each says its version, "" where none does."""
    asked = {
        name: BackgroundCommand([str(path), "-version" if "squashfs" in name else "--version"], env=environment)
        for name, path in found.items()
    }
    try:
        answers = {name: question.wait(timeout=SECONDS) for name, question in asked.items()}
        return {name: find_version_line(one.text) if one.exit_code >= 0 else "" for name, one in answers.items()}
    finally:
        for question in asked.values():
            question.stop()


def find_version_line(text: str) -> str:
    """The first line with a number of a version, its blanks made one."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return next((line[:80] for line in lines if line.isprintable() and _VERSION_LINE.match(line)), "")


def examine_uv(environment: Mapping[str, str], *, needed: bool) -> Reading:
    """The uv that builds and locks use."""
    group = "engines"
    try:
        found = find_uv(environment)
    except LayeringError as error:
        return Reading(name="uv", state="bad" if needed else "none", says=str(error), fix=error.fix, group=group)
    if found is None:
        return Reading(name="uv", state="bad" if needed else "none", says="missing", fix=UV_FIX, group=group)
    whose = "the one that was installed with recipe" if found == find_own_uv() else "by RECIPE_UV or PATH"
    said = query_version_lines({"uv": Path(found)}, environment=environment)["uv"]
    return Reading(name="uv", state="ok", says=f"{said}, {whose}", group=group)


def examine_rattler() -> Reading:
    """What solves and links conda packages: it is installed with the extra `conda`, or uv fetches it."""
    try:
        says = f"{version('py-rattler')}, for conda packages"
    except PackageNotFoundError:
        says = "is fetched when a conda environment first needs it (30 MB)"
    return Reading(name="py-rattler", state="ok", says=says, group="engines")


def _find_user() -> str:
    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_name
    return str(os.getuid())


def examine_kernel(root: Path, *, user: str) -> list[Reading]:
    """User namespaces, sub-ids and FUSE: what unprivileged builds and fast starts rest on (Apptainer admin guide)."""
    limit = _read_text(root / "proc/sys/user/max_user_namespaces")
    # Debian's and Ubuntu's own switches.
    closed = _read_text(root / "proc/sys/kernel/unprivileged_userns_clone") == "0"
    spaces = limit.isdecimal() and int(limit) > 0 and not closed
    numbers = (user, str(os.getuid()))
    subuid = any(line.split(":")[0] in numbers for line in _read_text(root / "etc/subuid").splitlines())
    fuse = root / "dev/fuse"
    usable = fuse.exists() and os.access(fuse, os.R_OK | os.W_OK)
    return [
        Reading(
            name="user namespaces",
            state="ok" if spaces else "none",
            says="allowed" if spaces else "not allowed",
            fix="" if spaces else "definition files need them, or a setuid installation: ask the site",
            group="kernel",
        ),
        Reading(
            name="sub-ids",
            state="ok" if subuid else "none",
            says=f"{user} has a range in /etc/subuid" if subuid else f"no range for {user} in /etc/subuid",
            fix="" if subuid else "packages that make users cannot be installed in %post without one",
            group="kernel",
        ),
        Reading(
            name="/dev/fuse",
            state="ok" if usable else "none",
            says="usable" if usable else "not usable",
            fix="" if usable else "without it every start unpacks the image: ask the administrator",
            group="kernel",
        ),
    ]


def examine_machine(site: Site | None, *, environment: Mapping[str, str], root: Path) -> list[Reading]:
    """Processor, Python for plan folders, and whether this is a machine of the site."""
    return [*_examine_place(site, environment=environment, root=root), _examine_python(environment)]


def _examine_place(site: Site | None, *, environment: Mapping[str, str], root: Path) -> list[Reading]:
    """What is read of files alone: processor, modules, base image, node."""
    here = os.uname().machine
    if site is None:
        return [Reading(name="processor", state="ok", says=here)]
    same, backend = here == site.node.arch, site.build.backends[0]
    said = here if same else f"{here} here, {site.node.arch} at '{site.name}'"
    fix = "" if same else f"build on a machine of {site.node.arch}: an engine builds for its own processor"
    readings = [Reading(name="processor", state="ok" if same else "bad", says=said, fix=fix)]
    fix = f"log in to '{site.name}', or write the plan folder here with `recipe plan {site.name} ENV` and copy it there"
    loads = site.build.where == "site" and (*site.build.modules, *site.build.backend_modules.get(backend, ()))
    if loads:
        there = has_modules(environment, root=root)
        says = "the module command is here" if there else "no module command: this is not a machine of the site"
        readings.append(Reading(name="modules", state="ok" if there else "bad", says=says, fix="" if there else fix))
    base = site.base_images[0].reference if site.base_images else ""
    if base.startswith("/"):
        there = (root / base.lstrip("/")).exists()
        says = base if there else f"{base} is not here: this is not a machine of the site"
        readings.append(Reading(name="base image", state="ok" if there else "bad", says=says, fix="" if there else fix))
    if is_login_node(site, environment=environment):
        heavy = site.build.login_heavy == "no"
        fix = "build with --submit, or with --here all the same" if heavy else ""
        says = f"a login node of '{site.name}'" + (", where builds are too heavy" if heavy else "")
        readings.append(Reading(name="node", state="none" if heavy else "ok", says=says, fix=fix))
    return readings


def _examine_python(environment: Mapping[str, str]) -> Reading:
    """What runs the programs of a plan folder by hand; `recipe` itself brings its own."""
    found = {path.resolve(): path for name in PYTHONS if (path := find_program(name, env=environment)) is not None}
    for path in found.values():  # nearly always the first one will do
        said = query_version_lines({"python": path}, environment=environment)["python"]
        if (match := _VERSION.search(said)) and tuple(map(int, match[0].split(".")))[:2] >= (3, 10):
            return Reading(name="Python", state="ok", says=f"{match[0]} ({path}), for plan folders by hand")
    says = f"none from 3.10 on PATH for plan folders by hand; recipe runs with {sys.version.split()[0]}"
    return Reading(name="Python", state="none", says=says, fix="load its module, or set RECIPE_PYTHON")


def examine_slurm(site: Site | None, *, environment: Mapping[str, str]) -> list[Reading]:
    """Whether jobs can be submitted from here, and whether the controller answers."""
    if find_program("sbatch", env=environment) is None:
        if site is None or site.scheduler.kind == "none":
            return []
        fix = f"log in to '{site.name}' to submit; without it --submit is refused"
        return [
            Reading(
                name="sbatch", state="none", says="missing: no job can be submitted from here", fix=fix, group="Slurm"
            )
        ]
    answer = BackgroundCommand(["scontrol", "ping"], env=environment).wait(timeout=CONTROLLER)
    none = f"no answer within {CONTROLLER} s" if answer.exit_code == 124 else "no answer"
    line = next((" ".join(text.split())[:120] for text in answer.text.splitlines() if text.strip()), none)
    up = answer.exit_code == 0 and " is UP" in line
    fix = "" if up else "try again in a while; on a login node of the site it should answer"
    return [Reading(name="controller", state="ok" if up else "none", says=line, fix=fix, group="Slurm")]


def examine_sites(
    sites: Mapping[str, Site], *, environment: Mapping[str, str], known: Sequence[Reading] = (), root: Path = Path("/")
) -> list[Reading]:
    """For which sites the default backend could work here; `known` is what was read of this machine already."""
    no_docker = [f"docker's {one.name}" for one in known if one.group == DOCKER and one.state != "ok"]
    found, readings = find_installed(environment), []
    for name, site in sites.items():
        lacks = [" or ".join(names) for names in list_missing(site, found=found)]
        lacks += [one.name for one in _examine_place(site, environment=environment, root=root) if one.state == "bad"]
        lacks += no_docker if "docker" in found and site.build.backends[0] == "docker" else []
        says = f"lacks {', '.join(lacks)}" if lacks else f"can be built here with {site.build.backends[0]}"
        fix = f"see `recipe doctor {name}`" if lacks else ""
        readings.append(Reading(name=name, state="none" if lacks else "ok", says=says, fix=fix, group="sites"))
    return readings


def examine_drivers(site: Site | None, *, root: Path) -> list[Reading]:
    """The GPU drivers of this node, held against the site's; only a node with the site's GPUs can tell."""
    found = {vendor: version for vendor, version in _read_drivers(root).items() if version}
    readings = [
        Reading(name=f"{vendor} driver", state="ok", says=version, group="GPU") for vendor, version in found.items()
    ]
    if site is None or site.gpu is None:
        return readings
    here = found.get(site.gpu.vendor)
    if here is None:
        says = f"none here; the site's is {site.gpu.driver or 'unknown'}"
        return [
            *readings,
            Reading(name=f"{site.gpu.vendor} driver", state="none", says=says, fix="look on a GPU node", group="GPU"),
        ]
    if here != site.gpu.driver or site.gpu.other_driver:
        known = " or ".join(filter(None, (site.gpu.driver, site.gpu.other_driver)))
        says = f"{here} here, {known or 'unknown'} in the site's file"
        fix = f"check and build with --driver {here}, or write it into a site of your own"
        return [Reading(name=f"{site.gpu.vendor} driver", state="bad", says=says, fix=fix, group="GPU")]
    return readings


def _read_drivers(root: Path) -> dict[str, str]:
    nvidia = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", _read_text(root / "proc/driver/nvidia/version"))
    intel = _read_text(root / "sys/module/xe/version") or _read_text(root / "sys/module/i915/version")
    return {
        "amd": _read_text(root / "sys/module/amdgpu/version"),
        "nvidia": nvidia.group(1) if nvidia else "",
        "intel": intel,
    }


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
