"""Checks before any work begins: the output's place, the programs, the space, and whether this is a login node."""

from __future__ import annotations

import fnmatch
import os
import resource
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from builder.execute.machine import find_installation
from builder.execute.replaceable import check_file, check_files_next_to, check_named_output, list_files_next_to
from builder.layers.locks import make_mark
from builder.model.finding import ConfigError, Finding, Location, ToolError
from builder.model.plan import Plan, Step
from builder.model.site import Site
from builder.sif.programs import MORE
from builder.system.files import find_closed_folder, find_protected
from builder.system.process import BackgroundCommand, find_program


def is_login_node(site: Site, *, environment: Mapping[str, str]) -> bool:
    """A machine of the site outside every job; one that is not the site's is no login node of it.

    Where a site's file does not know the names of its nodes, its base images on its own disks and sbatch tell.
    """
    if environment.get("SLURM_JOB_ID"):
        return False
    if site.hostnames:
        name = os.uname().nodename
        return any(fnmatch.fnmatchcase(name.partition(".")[0], form) for form in site.hostnames)
    own = [Path(image.reference) for image in site.base_images if image.reference.startswith("/")]
    return any(path.exists() for path in own) and find_program("sbatch", env=environment) is not None


GIB = 1024**3
# An image packs to 0.31 to 0.50 of its unpacked tree (Apptainer 1.4.5: zstd, gzip and lz4 of 1 GB with torch).
PACKED = 0.5
# What the backend `layers` takes of its cache. Measured with new caches (docs/packing.md, `make bench`):
# 0.6 MB with six, 90 MB with numpy (1.3 GiB foreseen for the tree), 1306 MB with torch for CPUs (3.3 GiB, so 0.37 of
# it); TMPDIR 0.3 MB, Apptainer 394 MB. A cache that has packages already may have these: only what is missing is taken.
NEW_CACHE = 0.4
KEPT = 0.1
FEW_FILES = 200  # a plan folder has about as many
SMALLEST = 32 * 1024**2  # bytes: below that no image with Python was seen (docs/packing.md)
# GiB of temporary files of such a build: 0.3 MB, and 38 MB more (uv) for steps in a container.
TEMPORARY = 0.005
IN_CONTAINER = 0.05
SUFFIXES = 60  # bytes around the name of an image in those next to it: `.NAME.provenance.json.recipe-PID-RANDOM`
MOVE_CACHE = "set RECIPE_CACHE_DIR to a folder on a larger disk, or make room with `recipe cache prune`"
LARGER = "choose a folder on a larger disk with --tmpdir, or set TMPDIR"
MOVE_OUTPUT = "choose a larger disk with -o"


def check_output(
    plan: Plan,
    output: Path,
    *,
    force: bool,
    kept: Path | None,
    folder: Path | None = None,
    named: Path | None = None,
    makes: bool = False,
    why: Callable[[], tuple[str, str]] = lambda: ("", ""),
) -> None:
    """Refuse an output that cannot or must not be written; `kept` is an image that is reused. Raises ConfigError.

    `folder` is the plan folder and `named` the output as the user wrote it. `makes` says that its folder is made where
    it is missing, `why` what is known of an output that exists, and a fix.
    """
    check_output_folder(output, makes=makes)
    if named is not None and not named.exists():
        check_named_output(named)
    link = folder / plan.image if folder else None
    _check_protected(output)
    check_files_next_to(output, link=link)
    if not os.path.lexists(output) or (kept is not None and _is_same(kept, output)):
        return
    check_named_output(named or output)
    if plan.image_kind == "sif" and output.is_dir():
        fix = f"name a file, as in -o {output / plan.image}"
        raise _make_config_error("output-kind", f"the output '{output}' is a folder, and the image is a file", fix=fix)
    if output.exists() and not (output.is_file() or output.is_dir()):
        message = f"the output '{output}' exists and is no regular file: it is never replaced"
        raise _make_config_error("output-kind", message, fix="give another output with -o")
    if _is_same(Path(plan.base), output):
        message = f"the output '{output}' exists and is the base image of this build: it is never replaced"
        raise _make_config_error("output-kind", message, fix="give another output with -o")
    if output.is_file():
        check_file(output, link=link)
    if not force:
        known, better = why()
        fix = f"{better}, --force to replace it" if better else "give --force to replace it"
        fix += ", or another output with -o"
        message = f"the output '{output}' exists" + (f": {known}" if known else "")
        raise _make_config_error("output-exists", message, fix=fix)
    fix = "remove it yourself, or give another output with -o"
    if plan.image_kind == "folder" and not (output.is_dir() and _is_wrapper(output)):
        raise _make_config_error("output-kind", f"the output '{output}' is no folder of wrappers, so it stays", fix=fix)


def _check_protected(output: Path) -> None:
    for path in (output, *list_files_next_to(output)):
        if protected := find_protected(path):
            message = f"{'the output ' if path == output else ''}{protected.message}"
            raise _make_config_error("output-rights", message, fix="choose another output with -o")


def check_output_reachable(output: Path) -> None:
    """Raise ConfigError for an output below a folder that may not be entered: nothing can be looked up there."""
    if closed := find_closed_folder(output):
        fix = f"{closed.fix}; or choose another output with -o"
        raise ConfigError(replace(closed, code="output-rights", message=f"the output {closed.message}", fix=fix))


def check_bindable(path: Path, *, what: str, fix: str, code: str = "path-special") -> None:
    """Refuse a path that no container can be given: its bind option splits at colons and commas (Apptainer 1.4.5)."""
    found = next((letter for letter in ":," if letter in str(path.resolve())), "")
    if found:
        message = f"the path of {what} '{path}' contains '{found}', at which container engines split their bind option"
        raise _make_config_error(code, message, fix=fix)


def check_output_folder(output: Path, *, makes: bool = False) -> None:
    """Refuse an output whose folder is missing or cannot be written to. Raises ConfigError."""
    fix = "give an output without it with -o"
    check_bindable(output, what="the output", fix=fix, code="output-name")
    parent = _find_existing(output.parent) if makes else output.parent
    if parent.exists() and not parent.is_dir():
        message = f"the output '{output}' cannot be in '{parent}', which is a file"
        raise _make_config_error("output-folder", message, fix="give an output in a folder with -o")
    if not parent.is_dir():
        fix = f"make '{parent}'"
        raise _make_config_error("output-folder", f"the folder of the output '{output}' does not exist", fix=fix)
    # The kernel's own file systems, such as /proc, have no blocks: no file can be made there, by root neither.
    if not os.access(parent, os.W_OK | os.X_OK) or os.statvfs(parent).f_blocks == 0:
        fix = "choose another output with -o"
        raise _make_config_error("output-rights", f"you may not write to '{parent}'", fix=fix)
    room = os.pathconf(parent, "PC_NAME_MAX") - max(SUFFIXES, len(f"..plan.recipe-{make_mark()}"))
    if len(os.fsencode(output.name)) > room:
        message = f"the name of the output '{output}' is too long: {room} bytes leave room for the files next to it"
        raise _make_config_error("output-name", message, fix="give a shorter name with -o")


def _make_config_error(code: str, message: str, *, fix: str) -> ConfigError:
    return ConfigError(Finding(code=code, message=message, fix=fix))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _is_wrapper(folder: Path) -> bool:
    """Whether a folder is empty or one that Tykky made."""
    return not any(folder.iterdir()) or ((folder / "bin").is_dir() and (folder / "common.sh").is_file())


def find_programs(steps: Sequence[Step], *, environment: Mapping[str, str]) -> dict[str, Path]:
    """Find the programs of all steps; raises ToolError with every one that is missing."""
    found: dict[str, Path] = {}
    missing: dict[tuple[str, str], list[str]] = {}  # the step and the fix, and what one fix brings
    named: set[str] = set()
    for step in steps:
        for wanted in step.programs:
            names = wanted.split("|")
            path = next((path for name in names if (path := _find_step_program(name, environment=environment))), None)
            if path is not None:
                found[path.name] = path
            elif wanted not in named:
                named.add(wanted)
                known = (find_installation(name, environment=environment) for name in names)
                fix = next(filter(None, known), "install it, or load its module")
                missing.setdefault((step.name, fix), []).append(" or ".join(f"'{name}'" for name in names))
    if missing:
        raise ToolError(*(_make_missing_finding(step, programs, fix=fix) for (step, fix), programs in missing.items()))
    return found


def _find_step_program(name: str, *, environment: Mapping[str, str]) -> Path | None:
    """Find a program as its step does: squashfs's also where only administrators have it on PATH."""
    found = find_program(name, env=environment)
    return find_program(name, env={"PATH": MORE}) if found is None and name.endswith("squashfs") else found


def _make_missing_finding(step: str, programs: Sequence[str], *, fix: str) -> Finding:
    are = "which is" if len(programs) == 1 else "which are"
    message = f"step '{step}' needs {' and '.join(programs)}, {are} not on PATH"
    return Finding(code="no-program", message=message, fix=fix)


@contextmanager
def query_versions(
    programs: Mapping[str, Path], *, environment: Mapping[str, str]
) -> Iterator[Callable[[float], dict[str, str]]]:
    """Ask programs for their versions; the answers, waited for so many seconds each, while the `with` block lasts."""
    questions = {
        name: BackgroundCommand([str(path), "--version"], env=environment) for name, path in sorted(programs.items())
    }
    try:
        yield lambda seconds: _collect_versions(questions, seconds=seconds)
    finally:
        for question in questions.values():
            question.stop()


def _collect_versions(questions: Mapping[str, BackgroundCommand], *, seconds: float) -> dict[str, str]:
    """One that does not say its version is left out."""
    versions = {}
    for name, question in questions.items():
        answer = question.wait(timeout=seconds)
        line = next((text.strip() for text in answer.text.splitlines() if text.strip()), "")
        if answer.exit_code == 0 and line.isprintable():
            versions[name] = line[:120]
    return versions


def check_space(
    steps: Sequence[Step], *, scratch: Path, folder: Path, output: Path, cache: Path | None = None,
    temporary: float = TEMPORARY,
) -> None:  # fmt: skip
    """Raise ToolError when a file system has too little free space for the largest step.

    With a `cache` the build works in it, and needs `temporary` GiB of the temporary folder.
    """
    needed = max((step.space_gib for step in steps), default=0.0)
    if cache is not None and needed > 0:
        _check_rights(cache)
    at_work = ("the temporary folder", scratch, needed, LARGER)
    part = KEPT if cache is not None and (cache / "uv").is_dir() else NEW_CACHE
    places = [
        at_work if cache is None else ("the cache", cache, needed * part, MOVE_CACHE),
        ("the temporary folder", scratch, temporary if cache is not None and needed > 0 else 0.0, LARGER),
        ("the plan folder", folder, needed * PACKED, MOVE_OUTPUT),
        ("the folder of the output", output.parent, needed * PACKED, MOVE_OUTPUT),
    ]
    findings = [finding for what, path, gib, fix in places if (finding := find_shortage(what, path, gib, fix=fix))]
    if needed > 0:
        findings += [finding for what, path, _, fix in places if (finding := _find_few_files(what, path, fix=fix))]
        findings += _find_small_files()
    if findings:
        raise ToolError(*findings)


def _find_few_files(what: str, path: Path, *, fix: str) -> Finding | None:
    """The finding on a file system that has no room for the files of a plan folder, whatever its free space."""
    try:
        seen = os.statvfs(_find_existing(path.absolute()))
    except OSError:
        return None
    if seen.f_files == 0 or seen.f_favail >= FEW_FILES:  # some file systems have no limit, and say 0
        return None
    message = f"{what} '{path}' is on a file system that takes {seen.f_favail} more files (`df -i`)"
    return Finding(code="no-space", message=message, fix=fix, at=Location(file=str(path)))


def _find_small_files() -> list[Finding]:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit == resource.RLIM_INFINITY or limit >= SMALLEST:
        return []
    message = f"no file may be larger than {limit / 1e6:.1f} MB here (`ulimit -f`), and an image is"
    return [Finding(code="file-size", message=message, fix="raise it with `ulimit -f unlimited`")]


def can_create_folder(path: Path) -> bool:
    """Whether a folder that is missing can be made."""
    above = _find_existing(path.absolute())
    return above.is_dir() and os.access(above, os.W_OK | os.X_OK)


def _find_existing(path: Path) -> Path:
    """The folder itself, or the one that it would be made in."""
    return next((folder for folder in (path, *path.parents) if folder.exists()), path)


def _check_rights(cache: Path) -> None:
    """Raise ToolError where the cache cannot be written or made."""
    if not os.access(_find_existing(cache.absolute()), os.W_OK | os.X_OK):
        message = (
            f"the cache folder '{cache}' cannot be used: you may not write to '{_find_existing(cache.absolute())}'"
        )
        finding = Finding(code="cache-folder", message=message, fix="set RECIPE_CACHE_DIR to a folder of your own")
        raise ToolError(finding)


def _format(gib: float) -> str:
    return f"{gib:.1f} GiB" if gib >= 0.1 else f"{gib * 1024:.0f} MiB"


def find_shortage(what: str, path: Path, gib: float, *, fix: str) -> Finding | None:
    """The finding on a folder that has less than `gib` GiB free, None where it has enough or that is not known."""
    if gib <= 0:
        return None
    try:
        free = shutil.disk_usage(_find_existing(path.absolute())).free / GIB
    except OSError:
        return None  # the step itself will say what is wrong there
    if free >= gib:
        return None
    message = f"{what} '{path}' has {_format(free)} free, and the build needs {_format(gib)}"
    return Finding(code="no-space", message=message, fix=fix, at=Location(file=str(path)))
