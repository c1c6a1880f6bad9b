"""The plan folder: written whole or not at all, brought up to date where it exists, strangers' files left alone."""

from __future__ import annotations

import errno
import glob
import itertools
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath

import builder
from builder.execute.build_options import Signals
from builder.execute.folder_lock import lock_folder
from builder.execute.replaceable import (
    check_unedited,
    check_unrecorded,
    has_record,
    is_plan_folder,
    look,
    note_written,
    read_written,
)
from builder.inspect.origin import compute_sources_identity, keep_image_report, note_old, note_sources
from builder.inspect.source_rules import SourceRules
from builder.layers import copies
from builder.layers.locks import is_dead, make_mark
from builder.model.finding import BuilderError, ConfigError, Finding, Location, ToolError
from builder.model.plan import Copy, Plan, from_json, to_json
from builder.model.text import is_plain_path
from builder.sif import removal, tree
from builder.sif.bounded import LIMIT
from builder.system.files import FULL, make_temporary_path, remove_tree
from builder.system.layout import (
    AGAIN,
    JOBS,
    KEPT_FILE,
    LOCK_FILE,
    LOGS,
    OLD_FILE,
    OWN_PACKAGES,
    PLAN_FILE,
    REPORT_FILE,
    RESULTS,
    SOURCES_FILE,
    STAGING,
    STATE_FILE,
    SUBMITTED_FILE,
    WRITTEN_FILE,
)
from builder.system.trust import check_folder, mark_as_own, read_below

PACKAGE = Path(builder.__file__).parent
# What ships with us, by its name in plan.json: packages, and where each is below the path in the plan folder.
BUNDLED = {"layering": {"layers": "", "sif": "/sif", "audit": "/audit"}, "smoke": {"smoke": ""}}

OLD_STAGING = 3600.0  # seconds after which no one writes there any more, on another machine
OWN = (LOCK_FILE, STATE_FILE, SOURCES_FILE, OLD_FILE, KEPT_FILE, WRITTEN_FILE)
RESERVED = (PLAN_FILE, REPORT_FILE, LOGS, JOBS, RESULTS, AGAIN, *OWN)
KEEP = "give --force to lose these changes, or another output with -o"
Check = Callable[[Path], None]
ELSEWHERE = "choose another folder with -o, or remove this one"  # of commands without --force


def refuse_jobs(folder: Path) -> None:
    """Raise ConfigError where jobs were submitted from a folder: nothing here knows whether they have ended."""
    if (folder / JOBS / SUBMITTED_FILE).exists():
        message, fix = "jobs were submitted from this folder", f"see `recipe status {folder}`, or choose another folder"
        raise ConfigError(Finding(code="jobs-running", message=message, at=Location(file=str(folder)), fix=fix))


def write_plan(
    plan: Plan,
    folder: Path,
    *,
    recipe_folder: Path,
    force: bool = False,
    fix: str = KEEP,
    check_jobs: Check = refuse_jobs,
) -> None:
    """Write a plan's files into a new folder, or into one that an earlier plan wrote.

    Relative sources of copies are looked up in `recipe_folder`. Raises ConfigError when the folder is someone else's,
    a path leaves it, a source is missing, jobs still work there or, without `force`, files there were changed by hand
    (`fix` says what to do then), and ToolError when the disk is full; the folder is then as it was.
    """
    with lock_plan_folder(plan, folder, recipe_folder=recipe_folder, force=force, fix=fix, check_jobs=check_jobs):
        pass


@contextmanager
def lock_plan_folder(
    plan: Plan,
    folder: Path,
    *,
    recipe_folder: Path,
    force: bool = False,
    fix: str = KEEP,
    check_jobs: Check = refuse_jobs,
) -> Iterator[None]:
    """Write a plan's files as `write_plan`, and keep other builds out of the folder from then on.

    `check_jobs` raises while jobs of the folder wait or run: they were submitted for the plan that it holds.
    """
    check_plan_folder(plan, folder, recipe_folder=recipe_folder, force=force, fix=fix)
    folder = folder.resolve()
    with ExitStack() as held:
        try:
            _write(plan, folder, recipe_folder=recipe_folder, held=held, force=force, fix=fix, check_jobs=check_jobs)
        except OSError as error:
            raise _make_write_error(error, folder) from None
        yield


def check_plan_folder(plan: Plan, folder: Path, *, recipe_folder: Path, force: bool, fix: str = KEEP) -> None:
    """Raise ConfigError where a plan cannot be written into a folder; writes nothing."""
    _check_paths(plan)
    if folder.is_symlink() and not folder.exists():
        raise _make_taken_error(folder, "is a link that leads to nothing")
    folder = folder.resolve()
    if _check_folder(folder) and not force:
        if has_record(folder):
            check_unedited(folder, paths=_list_paths(plan), fix=fix)
        else:
            check_unrecorded(folder, texts=_list_known_texts(plan, folder), fix=fix)
    for copy in plan.copies:
        if not copy.bundled:
            _find_source(copy, recipe_folder=recipe_folder)


def check_copies(plan: Plan, *, folder: Path, recipe_folder: Path) -> None:
    """Raise ConfigError for a file or folder of the recipe that cannot be copied; reads no content."""
    for copy in plan.copies:
        if copy.bundled:
            continue
        rules = SourceRules(copy, recipe_folder=recipe_folder, folder=folder)
        source = _find_source(copy, recipe_folder=recipe_folder)
        _check_readable(source, allowed=os.access(source, os.R_OK | (os.X_OK if source.is_dir() else 0)))
        for entry in tree.walk(source) if source.is_dir() else ():
            if rules.covers(source / entry.path, top=source):
                entry.enter = False
                continue
            _check_entry(entry, top=source)
            rights = os.R_OK | (os.X_OK if entry.kind == tree.FOLDER else 0)
            allowed = entry.kind == tree.LINK or os.access(entry.name, rights, dir_fd=entry.at)
            _check_readable(source / entry.path, allowed=allowed)


def _check_readable(path: Path, *, allowed: bool) -> None:
    if not allowed:
        message, fix = f"'{path}' is to be copied into the image, and you may not read it", "check its rights"
        raise ConfigError(Finding(code="copy-unreadable", message=message, at=Location(file=str(path)), fix=fix))


def _write(
    plan: Plan, folder: Path, *, recipe_folder: Path, held: ExitStack, force: bool, fix: str, check_jobs: Check
) -> None:
    exists = _check_folder(folder)
    staging = folder.with_name(_name_staging(folder) + make_mark())
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_old_staging(folder)
    sources = compute_sources_identity(plan, recipe_folder=recipe_folder, folder=folder)  # before they are copied
    with Signals(once=True).catch(), make_temporary_path(staging):
        staging.mkdir()
        mark_as_own(staging)
        _fill(plan, staging, folder=folder, recipe_folder=recipe_folder)
        if not exists:
            note_sources(staging, sources)
            exists = not _take_place(staging, folder, held=held)
        if exists:
            held.enter_context(lock_folder(folder))  # not under a build that runs
            check_plan_folder(plan, folder, recipe_folder=recipe_folder, force=force, fix=fix)
            check_jobs(folder)
            _update(plan, staging, folder=folder, sources=sources)


def _take_place(staging: Path, folder: Path, *, held: ExitStack) -> bool:
    """Give a new folder its name, locked; False where another build was faster, whose lock then says so."""
    with ExitStack() as lock:
        lock.enter_context(lock_folder(staging, becomes=folder))
        try:
            staging.replace(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        held.push(lock.pop_all())
        return True


def _make_write_error(error: OSError, folder: Path) -> BuilderError:
    code, reason = "folder-unwritable", (error.strerror or str(error)).lower()
    if error.errno in FULL:
        message = f"the plan folder '{folder}' cannot be written: {reason}"
        fix = f"make room on the disk of '{folder.parent}', or choose another folder with -o"
        return ToolError(Finding(code=code, message=message, at=Location(file=str(folder)), fix=fix))
    at = Location(file=str(error.filename or folder))
    message = f"the plan folder '{folder}' cannot be written: {reason}"
    fix = "choose another folder with -o, or give it the rights and the space"
    return ConfigError(Finding(code=code, message=message, at=at, fix=fix))


def _check_folder(folder: Path) -> bool:
    """Whether this is a plan folder of ours; False when it is new or empty. Raises ConfigError for any other."""
    check_folder(folder)
    if not os.path.lexists(folder):
        return False
    if not folder.is_dir():
        raise _make_taken_error(folder, "is a file")
    if is_plan_folder(folder):
        return True
    if not any(folder.iterdir()):
        return False
    foreign = (folder / PLAN_FILE).is_file()
    raise _make_taken_error(
        folder, f"holds a {PLAN_FILE} that recipe did not write" if foreign else "holds files that recipe did not write"
    )


def _make_taken_error(folder: Path, what: str) -> ConfigError:
    # Not "the plan folder": it holds no plan, and `recipe module` and `kernel` have no such word.
    message = f"'{_shown(folder)}' {what}"
    fix = f"choose another folder, as in -o {shlex.quote(_free_name(folder))}"
    return ConfigError(Finding(code="folder-taken", message=message, fix=fix))


def _list_known_texts(plan: Plan, folder: Path) -> dict[str, set[bytes]]:
    """What may be at each path that this plan or the one in the folder writes, as far as the plans hold it."""
    plans, known = [plan], dict[str, set[bytes]]()
    try:
        plans.append(from_json(read_below(folder, PLAN_FILE, limit=LIMIT)))
    except (ConfigError, OSError, ValueError):
        known[PLAN_FILE] = set()  # of another version, or no plan at all
    known |= {path: set() for one in plans for path in _list_paths(one)}
    for file in (file for one in plans for file in one.files if _find_path_fault(file.path) is None):
        known[file.path].add(file.text.encode())
    return known


def _shown(folder: Path) -> str:
    """A folder as it was typed, as far as that is known: from the current one."""
    here = Path.cwd()
    return str(folder.relative_to(here)) if here in folder.parents else str(folder)


def _free_name(folder: Path) -> str:
    """A name for -o: of a plan folder, or of an image whose plan folder is the name with `.plan`."""
    start = str(Path(_shown(folder)).with_suffix("" if folder.suffix == ".plan" else folder.suffix))
    names = (f"{start}-{number}" for number in itertools.count(2))
    return next(name for name in names if not (os.path.lexists(name) or os.path.lexists(f"{name}.plan")))


def _check_paths(plan: Plan) -> None:
    findings = [finding for path in _list_paths(plan) if (finding := _find_path_fault(path))]
    seen: set[str] = set()
    for path in _list_paths(plan):
        parents = {str(parent) for parent in PurePosixPath(path).parents}
        if path in seen or parents & seen:
            findings.append(_make_path_finding(path, "is taken by another file of the plan"))
        seen.add(path)
    if findings:
        raise ConfigError(*findings)


def _list_paths(plan: Plan) -> list[str]:
    return sorted([file.path for file in plan.files] + [copy.path for copy in plan.copies])


def _find_path_fault(path: str) -> Finding | None:
    if not is_plain_path(path):
        return _make_path_finding(path, "is not a plain path inside it")
    if path.split("/")[0] in RESERVED:
        return _make_path_finding(path, "is a name that the build itself uses")
    return None


def _make_path_finding(path: str, what: str) -> Finding:
    fix = "use another name: a relative path without '..'"
    return Finding(code="plan-path", message=f"the path '{path}' in the plan folder {what}", fix=fix)


def _fill(plan: Plan, staging: Path, *, folder: Path, recipe_folder: Path) -> None:
    for file in plan.files:
        handle = tree.create(staging, file.path, mode=0o777 if file.executable else 0o666)
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as out:
            out.write(file.text)
    for copy in plan.copies:
        if copy.bundled:
            for package, below in BUNDLED[copy.source].items():
                _copy(PACKAGE / package, staging, f"{copy.path}{below}", rules=None)
            continue
        source = _find_source(copy, recipe_folder=recipe_folder)
        rules = SourceRules(copy, recipe_folder=recipe_folder, folder=folder)
        _copy(source, staging, copy.path, rules=rules)
        if copy.path.startswith(OWN_PACKAGES) and source.is_dir() and (source / ".git").exists():
            from builder.execute.own_version import ARCHIVAL, make_archival  # few recipes have such a package

            if text := make_archival(source, environment=os.environ):
                removal.remove(Path(copy.path, ARCHIVAL), below=staging)
                tree.write(staging, f"{copy.path}/{ARCHIVAL}", text.encode())
    tree.write(staging, PLAN_FILE, to_json(plan).encode())
    note_written(staging, look(staging, [*_list_paths(plan), PLAN_FILE]))


def _find_source(copy: Copy, *, recipe_folder: Path) -> Path:
    """What is to be copied; a link of the recipe's folder may not lead out of it, the path itself may."""
    base = recipe_folder.resolve()
    named = Path(os.path.normpath(base / copy.source))
    source = named.resolve()
    if not source.exists():
        message = f"'{copy.source}' is to be copied into the image and does not exist"
        fix = "check the path"
        raise ConfigError(Finding(code="copy-missing", message=message, at=Location(file=str(source)), fix=fix))
    if named.is_relative_to(base) and not source.is_relative_to(base):
        message = f"'{copy.source}' leads through a link to '{source}', which is not in the recipe's folder"
        fix = "name that place itself in `container.files`, if it is what the image is to hold"
        raise ConfigError(Finding(code="copy-kind", message=message, at=Location(file=str(named)), fix=fix))
    return source


def _copy(source: Path, staging: Path, path: str, *, rules: SourceRules | None) -> None:
    """Copy a file or folder; links inside a folder stay links.

    `rules` say what is left out of a recipe's folders; None for what comes with the program.
    """
    if not (source.is_file() or source.is_dir()):
        raise ConfigError(_copy_finding(source, "is neither a file nor a folder"))

    def ignored(entry: tree.TreeEntry) -> bool:
        return rules.covers(source / entry.path, top=source) if rules else entry.name == "__pycache__"

    copies.copy(source, staging, path, skip=ignored, check=lambda entry: _check_entry(entry, top=source))


def _check_entry(entry: tree.TreeEntry, *, top: Path) -> None:
    if entry.kind == tree.LINK:
        target = entry.read_target()
        # Where `..` follows a name, only the files can say where that leads.
        inside = Path(os.path.realpath(top / entry.path)).is_relative_to(top)
        if tree.can_leave_tree(entry.path, os.path.normpath(target)) or not inside:
            message = f"is a link to '{target}', which is not in the copied folder"
            raise ConfigError(_copy_finding(top / entry.path, message))
    elif entry.kind == tree.OTHER:
        raise ConfigError(_copy_finding(top / entry.path, "is neither a file, a folder nor a link"))


def _copy_finding(path: Path, what: str) -> Finding:
    fix = "put what the image needs into a folder of its own"
    return Finding(code="copy-kind", message=f"'{path}' {what}", at=Location(file=str(path)), fix=fix)


def _update(plan: Plan, staging: Path, *, folder: Path, sources: str) -> None:
    """Bring our own folder up to date: what the old plan wrote is replaced or removed, all else stays."""
    keep_image_report(folder)
    note_old(folder, plan, sources=sources)  # first: a build that is killed here leaves old products known as old
    note_sources(folder, sources)
    new = _list_paths(plan)
    known, _ = read_written(folder)
    coming, _ = read_written(staging)
    both = {name: (*known.get(name, ()), *coming.get(name, ())) for name in {*known, *coming}}
    note_written(folder, both, whole=False)  # one that is killed here leaves no changes that anybody made by hand
    for path in _list_old_paths(folder):
        if path not in new:
            removal.remove(Path(path), below=folder)
            _remove_empty(path, top=folder)
    for path in [*new, PLAN_FILE, WRITTEN_FILE]:
        if tree.is_folder(folder, path):
            removal.remove(Path(path), below=folder)
        try:
            tree.move(staging, path, folder, path)
        except tree.TreeError:
            raise ConfigError(_make_path_finding(path, "leads out of it through a link")) from None


def _remove_old_staging(folder: Path) -> None:
    """Remove what a killed run left next to the folder."""
    start = _name_staging(folder)
    for left in folder.parent.glob(f"{glob.escape(start)}*"):
        if is_dead(left, mark=left.name.removeprefix(start), age=OLD_STAGING):
            remove_tree(left)


def _name_staging(folder: Path) -> str:
    return f".{folder.name}{STAGING}"


def _list_old_paths(folder: Path) -> list[str]:
    with suppress(ConfigError, OSError, ValueError):
        old = _list_paths(from_json(read_below(folder, PLAN_FILE, limit=LIMIT)))
        return [path for path in old if _find_path_fault(path) is None]
    return []  # a plan of another version: its files stay


def _remove_empty(path: str, *, top: Path) -> None:
    for parent in PurePosixPath(path).parents[:-1]:
        removal.remove_empty(top, str(parent))
