"""The plan folder: written whole or not at all, brought up to date where it exists, strangers' files left alone."""

from __future__ import annotations

import errno
import glob
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath

import builder
from builder.execute.hold import hold
from builder.execute.image.origin import note_old, note_sources, sources_of
from builder.execute.names import (
    AGAIN,
    JOBS,
    LOCK_FILE,
    LOGS,
    OLD_FILE,
    PLAN_FILE,
    REPORT_FILE,
    RESULTS,
    SOURCES_FILE,
    STATE_FILE,
)
from builder.execute.tree import remove_tree, removed_afterwards
from builder.model.finding import BuilderError, ConfigError, Finding, Place, ToolError
from builder.model.plan import Copy, Plan
from builder.model.plan_json import from_json, to_json

OLD_STAGING = 3600.0  # seconds after which nobody writes there any more
RESERVED = (PLAN_FILE, REPORT_FILE, LOGS, LOCK_FILE, STATE_FILE, JOBS, RESULTS, AGAIN, SOURCES_FILE, OLD_FILE)
FULL = (errno.ENOSPC, errno.EDQUOT)


def write_plan(plan: Plan, folder: Path, *, recipe_folder: Path) -> None:
    """Write a plan's files into a new folder, or into one that an earlier plan wrote.

    Relative sources of copies are looked up in `recipe_folder`. Raises ConfigError when the folder is someone else's,
    a path leaves it or a source is missing, and ToolError when the disk is full; the folder is then as it was.
    """
    with hold_plan(plan, folder, recipe_folder=recipe_folder):
        pass


@contextmanager
def hold_plan(plan: Plan, folder: Path, *, recipe_folder: Path) -> Iterator[None]:
    """Write a plan's files as `write_plan`, and keep other builds out of the folder from then on."""
    folder = folder.resolve()
    _check_paths(plan)
    with ExitStack() as held:
        try:
            _write(plan, folder, recipe_folder=recipe_folder, held=held)
        except OSError as error:
            raise _unwritable(error, folder) from None
        yield


def _write(plan: Plan, folder: Path, *, recipe_folder: Path, held: ExitStack) -> None:
    exists = _check_folder(folder)
    staging = folder.with_name(f".{folder.name}.recipe-{os.getpid()}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_old_staging(folder)
    sources = sources_of(plan, recipe_folder=recipe_folder, folder=folder)  # before they are copied
    with removed_afterwards(staging):
        staging.mkdir()
        _fill(plan, staging, folder=folder, recipe_folder=recipe_folder)
        if not exists:
            note_sources(staging, sources)
            exists = not _take_place(staging, folder, held=held)
        if exists:
            held.enter_context(hold(folder))  # not under a build that runs
            _check_folder(folder)
            _update(plan, staging, folder=folder, sources=sources)


def _take_place(staging: Path, folder: Path, *, held: ExitStack) -> bool:
    """Give a new folder its name, locked; False where another build was faster, whose lock then says so."""
    with ExitStack() as lock:
        lock.enter_context(hold(staging, becomes=folder))
        try:
            staging.replace(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        held.push(lock.pop_all())
        return True


def _unwritable(error: OSError, folder: Path) -> BuilderError:
    # Of many files that could not be copied the first says why.
    first = str(error.args[0][0][2]) if isinstance(error, shutil.Error) else ""
    number = next((number for number in FULL if f"[Errno {number}]" in first), error.errno)
    code = "folder-unwritable"
    if number in FULL:
        message = f"the plan folder '{folder}' cannot be written: {os.strerror(number).lower()}"
        fix = f"make room on the disk of '{folder.parent}', or choose another folder with -o"
        return ToolError(Finding(code=code, message=message, at=Place(file=str(folder)), fix=fix))
    at = Place(file=str(error.filename or folder))
    message = f"the plan folder '{folder}' cannot be written: {(first or error.strerror or str(error)).lower()}"
    fix = "choose another folder with -o, or give it the rights and the space"
    return ConfigError(Finding(code=code, message=message, at=at, fix=fix))


def _check_folder(folder: Path) -> bool:
    """Whether this is a plan folder of ours; False when it is new or empty."""
    if not os.path.lexists(folder):
        return False
    if folder.is_dir():
        if (folder / PLAN_FILE).is_file():
            return True
        if not any(folder.iterdir()):
            return False
    what = "holds files that no plan wrote" if folder.is_dir() else "is a file"
    message = f"the plan folder '{folder}' {what}"
    raise ConfigError(Finding(code="folder-taken", message=message, fix="choose another folder with -o, or remove it"))


def _check_paths(plan: Plan) -> None:
    findings = [finding for path in _paths(plan) if (finding := _path_fault(path))]
    seen: set[str] = set()
    for path in _paths(plan):
        parents = {str(parent) for parent in PurePosixPath(path).parents}
        if path in seen or parents & seen:
            findings.append(_path_finding(path, "is taken by another file of the plan"))
        seen.add(path)
    if findings:
        raise ConfigError(*findings)


def _paths(plan: Plan) -> list[str]:
    return sorted([file.path for file in plan.files] + [copy.path for copy in plan.copies])


def _path_fault(path: str) -> Finding | None:
    parts = path.split("/")
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in parts) or not path.isprintable():
        return _path_finding(path, "is not a plain path inside it")
    if parts[0] in RESERVED:
        return _path_finding(path, "is a name that the build itself uses")
    return None


def _path_finding(path: str, what: str) -> Finding:
    fix = "use another name: a relative path without '..'"
    return Finding(code="plan-path", message=f"the path '{path}' in the plan folder {what}", fix=fix)


def _fill(plan: Plan, staging: Path, *, folder: Path, recipe_folder: Path) -> None:
    for file in plan.files:
        path = staging / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8", newline="")
        if file.executable:
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (mode & 0o444) >> 2)  # whoever may read it may run it
    for copy in plan.copies:
        target = staging / copy.path
        target.parent.mkdir(parents=True, exist_ok=True)
        _copy(_source(copy, recipe_folder=recipe_folder), target, skip={folder, staging}, bundled=copy.bundled)
    (staging / PLAN_FILE).write_text(to_json(plan), encoding="utf-8", newline="")


def _source(copy: Copy, *, recipe_folder: Path) -> Path:
    base = Path(builder.__file__).parent if copy.bundled else recipe_folder
    source = (base / copy.source).resolve()
    if not source.exists():
        message = f"'{copy.source}' is to be copied into the image and does not exist"
        raise ConfigError(
            Finding(code="copy-missing", message=message, at=Place(file=str(source)), fix="check the path")
        )
    return source


def _copy(source: Path, target: Path, *, skip: set[Path], bundled: bool) -> None:
    """Copy a file or folder; links inside a folder stay links, the plan folder itself is left out."""
    if source.is_file():
        shutil.copy(source, target)
        return
    if not source.is_dir():
        raise ConfigError(_copy_finding(source, "is neither a file nor a folder"))

    def ignored(at: str, names: list[str]) -> Iterable[str]:
        inside = [Path(at, name) for name in names]
        for path in inside:
            _check_entry(path, top=source)
        return [path.name for path in inside if path in skip or (bundled and path.name == "__pycache__")]

    shutil.copytree(source, target, symlinks=True, ignore=ignored)


def _check_entry(path: Path, *, top: Path) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        target = path.readlink()
        inside = Path(os.path.normpath(path.parent / target)).is_relative_to(top)
        if target.is_absolute() or not inside:
            raise ConfigError(_copy_finding(path, f"is a link to '{target}', which is not in the copied folder"))
    elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ConfigError(_copy_finding(path, "is neither a file, a folder nor a link"))


def _copy_finding(path: Path, what: str) -> Finding:
    fix = "put what the image needs into a folder of its own"
    return Finding(code="copy-kind", message=f"'{path}' {what}", at=Place(file=str(path)), fix=fix)


def _update(plan: Plan, staging: Path, *, folder: Path, sources: str) -> None:
    """Bring our own folder up to date: what the old plan wrote is replaced or removed, all else stays."""
    note_old(folder, plan, sources=sources)  # first: a build that is killed here leaves old products known as old
    note_sources(folder, sources)
    inside = folder.resolve()
    new = _paths(plan)
    for path in _old_paths(folder):
        if path not in new and _stays_inside(folder / path, inside):
            remove_tree(folder / path)
            _remove_empty(folder / path, top=folder)
    for path in [*new, PLAN_FILE]:
        target = folder / path
        if not _stays_inside(target, inside):
            raise ConfigError(_path_finding(path, "leads out of it through a link"))
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir() and not target.is_symlink():
            remove_tree(target)
        (staging / path).replace(target)


def _remove_old_staging(folder: Path) -> None:
    """Remove what a killed run left beside the folder."""
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.recipe-*"):
        with suppress(OSError):
            if time.time() - left.lstat().st_mtime > OLD_STAGING:
                remove_tree(left)


def _old_paths(folder: Path) -> list[str]:
    with suppress(ConfigError, OSError, UnicodeDecodeError):
        old = _paths(from_json((folder / PLAN_FILE).read_text(encoding="utf-8")))
        return [path for path in old if _path_fault(path) is None]
    return []  # a plan of another version: its files stay


def _stays_inside(path: Path, inside: Path) -> bool:
    return path.parent.resolve().is_relative_to(inside)


def _remove_empty(path: Path, *, top: Path) -> None:
    with suppress(OSError):
        for parent in path.parents:
            if parent == top:
                return
            parent.rmdir()
