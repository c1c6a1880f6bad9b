"""The caches as the command line shows them, layers and downloads: what is in them, and how they are made smaller.

What has another name is somebody's own file: it is never removed, and is named.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from builder.layers.cache import CacheEntry, Store, open_shared_cache
from builder.layers.locks import NO_LOCKS
from builder.layers.private_folders import (
    DOWNLOADS,
    FETCH,
    INSTEAD,
    LAYERS,
    UV,
    PrivateError,
    check_cache_content,
    ensure_cache,
    ensure_cache_part,
    find_cache_folder,
    read_limit_bytes,
)
from builder.model.finding import Finding, Location, ToolError
from builder.model.plan import Plan
from builder.sif.errors import LayeringError
from builder.sif.removal import remove
from builder.sif.tree import FOLDER, walk

KEPT = (".lock", ".gitignore", "CACHEDIR.TAG")  # uv's marks: without bytes, and the folder is known by them
_SOURCES = "pypi|index|url|path|editable|git|html|flat-index"
# uv's folders of the versions 0.4 to 0.13, and what is in each.
_BUCKETS = {
    "archive": r"[\w-]{12,32}",
    "binaries": r"uv|ruff|ty",
    "builds": r"\.tmp\w+",
    "built-wheels": _SOURCES,
    "environments": r".+-[0-9a-f]{16}|[0-9a-f]{16}",
    "flat-index": _SOURCES,
    "git": r"db|checkouts|locks|ok",
    "interpreter": r"[0-9a-f]{16}",
    "osv": r"[\w-]+\.msgpack",
    "python": r"cpython-.*|pypy-.*|graalpy-.*|[0-9a-f]{16}.*",
    "sdists": _SOURCES,
    "simple": _SOURCES,
    "wheels": _SOURCES,
}
_DRAFT = r"\.tmp\w+|\.git|\.gitignore|\.lock|\.cache\.lock"
_REPODATA = re.compile(rf"[0-9a-f]{{8,64}}\..+|{_DRAFT}")


@dataclass(frozen=True, kw_only=True)
class Downloads:
    """The files of one program: paths to remove, their bytes, and those that are not its own."""

    own: tuple[Path, ...]
    size: int
    foreign: tuple[Path, ...]


def find_downloads(folder: Path) -> dict[str, Downloads]:
    """What the programs have downloaded into the cache, by program; reads names only, and sizes."""
    return {name: _find(folder / name, uv=name == UV) for name in DOWNLOADS if os.path.lexists(folder / name)}


def _find(part: Path, *, uv: bool) -> Downloads:
    own: list[Path] = []
    foreign: list[Path] = []
    for path in sorted(part.iterdir(), reverse=True) if _is_folder(part) else [part]:
        if uv and path.name in KEPT:
            continue
        inside = sorted(path.iterdir()) if _is_folder(path) else []
        if path == part or not (_is_bucket(path.name) if uv else path.name in ("packages", "repodata")):
            (own if re.fullmatch(_DRAFT, path.name) else foreign).append(path)
            continue
        if not _is_folder(path):
            foreign.append(path)
            continue
        strange = [one for one in inside if not _is_made_by_program(one)]
        own += [one for one in inside if one not in strange] if strange else [path]
        foreign += strange
    return Downloads(own=tuple(own), size=sum(map(_measure_bytes, own)), foreign=tuple(foreign))


def _is_bucket(name: str) -> bool:
    word, _, number = name.rpartition("-v")
    return word in _BUCKETS and number.isdigit()


def _is_made_by_program(path: Path) -> bool:
    """Whether a file in a folder of uv or py-rattler has a name and a form that this program gives."""
    name, above = path.name, path.parent.name
    if path.is_symlink():
        return False
    if re.fullmatch(_DRAFT, name):
        return True
    if above == "repodata":
        return _REPODATA.fullmatch(name) is not None
    if above == "packages":
        if not _is_folder(path):
            return re.fullmatch(r".+-[^-]+-[^-]+\.lock", name) is not None
        return (path / "info").is_dir() or path.with_name(f"{name}.lock").is_file()
    return _is_folder(path) and re.fullmatch(_BUCKETS[above.rpartition("-v")[0]], name) is not None


def remove_downloads(store: Store, found: Downloads) -> None:
    """Remove the files of one program; what is moved away first is never seen half removed."""
    with store.work_folder() as work:
        for number, path in enumerate(found.own):
            try:
                path.replace(work / str(number))
            except PermissionError:  # a folder that its owner cannot write
                remove(path)
            except FileNotFoundError:
                continue


@contextmanager
def lock_uv(folder: Path) -> Iterator[None]:
    """Hold uv's own lock, which each uv that uses the cache holds, in a container too; raises ToolError."""
    lock = folder / UV / ".lock"
    if not lock.is_file() or lock.is_symlink():  # no uv of a version with locks has used it
        yield
        return
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            message, fix = f"uv is using '{lock.parent}'", "try again when no build runs"
            finding = Finding(code="cache-in-use", message=message, at=Location(file=str(lock.parent)), fix=fix)
            raise ToolError(finding) from None
        yield


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _measure_bytes(path: Path) -> int:
    if not _is_folder(path):
        return path.lstat().st_size
    total = 0
    for entry in walk(path.resolve()):
        try:
            total += entry.stat().st_size if entry.kind != FOLDER else 0
        except OSError:
            continue
    return total


COMPILED = "compiled"  # of a download; it is kept with the layers, and is bounded with them


def ensure_cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder of all that builds keep, made or checked; raises ToolError when it cannot be used."""
    with _convert_errors():
        return ensure_cache(find_cache_folder(environment))


def open_cache(environment: Mapping[str, str]) -> Store:
    """The cache that builds use; raises ToolError when its folder cannot be used."""
    with _convert_errors():
        return Store(find_cache_folder(environment))


def is_layer_cache_missing(environment: Mapping[str, str]) -> bool:
    """Whether there is no cache of layers yet; makes nothing, raises ToolError where its folder cannot be used."""
    with _convert_errors():
        folder = find_cache_folder(environment)
        if _is_there(folder):
            check_cache_content(ensure_cache_part(folder))
        return not _is_there(folder / LAYERS)


def _is_there(path: Path) -> bool:
    """Whether a path exists; raises OSError where that cannot be known."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def find_backend_cache(backend: str, environment: Mapping[str, str]) -> Path | None:
    """The cache that a backend's layers are made in, None where it has none; makes nothing, raises ToolError."""
    if backend == "layers":
        with _convert_errors():
            read_limit_bytes(environment)
            folder = find_cache_folder(environment)
            if folder.exists():
                folder = ensure_cache_part(folder)
                check_cache_content(folder)
            open_shared_cache(environment)
            return folder
    if backend == "apptainer":
        _check_uv(environment, make=False)
    return None


@contextmanager
def prepare_layer_cache(plan: Plan, environment: Mapping[str, str]) -> Iterator[Path | None]:
    """Check the cache before steps of a plan use it, and give the one that layers are made in.

    What a step that was ended has left there is removed. Raises ToolError where it cannot be used.
    """
    if plan.backend != "layers":
        if plan.backend == "apptainer":
            _check_uv(environment)
        yield None
        return
    store = open_cache(environment)
    with _convert_errors():
        read_limit_bytes(environment)  # the limit applies when the image is made
        open_shared_cache(environment)
    try:
        yield store.folder.parent
    finally:
        with suppress(OSError):
            store.sweep()


def _check_uv(environment: Mapping[str, str], *, make: bool = True) -> None:
    """Raise ToolError for a cache that is not safe; without one the engine's build downloads what it needs."""
    try:
        folder = find_cache_folder(environment)
        if make:
            ensure_cache(folder)
        elif folder.exists():
            check_cache_content(ensure_cache_part(folder))
    except PrivateError as error:
        raise ToolError(Finding(code="cache-folder", message=str(error), fix=error.fix)) from None
    except (LayeringError, OSError):
        return


@contextmanager
def _convert_errors() -> Iterator[None]:
    try:
        yield
    except LayeringError as error:
        raise ToolError(Finding(code="cache-folder", message=str(error), fix=error.fix)) from None
    except OSError as error:
        folder = str(error.filename or "")
        message = f"the cache folder '{folder}' cannot be used: {(error.strerror or str(error)).lower()}"
        raise ToolError(Finding(code="cache-folder", message=message, at=Location(file=folder), fix=INSTEAD)) from None


def explain_no_locks(store: Store) -> str:
    """Why nothing was removed, where the file system cannot say who is at work; "" where it can."""
    return f"the cache '{store.folder.parent}': {NO_LOCKS}" if store.locks.missing else ""


def list_download_folders(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders of the cache that hold no layers; raises ToolError when it cannot be used."""
    own = ensure_cache_folder(environment)
    return tuple(own / name for name in (*DOWNLOADS, FETCH))


def check_files(store: Store) -> tuple[tuple[CacheEntry, ...], tuple[Path, ...]]:
    """Check every file by its SHA-256; what is wrong is returned and removed unless a build reads it.

    Files that belong to nothing come second, those that were removed.
    """
    stray = tuple(path for path in store.find_broken() if store.drop_stray(path))
    return tuple(entry for entry in store.list_entries() if not store.check(entry)), stray


def prune(
    store: Store, environment: Mapping[str, str], *, gib: float | None, dry_run: bool = False
) -> tuple[CacheEntry, ...]:
    """Remove what is not whole, and what was used longest ago until the rest fits into `gib` or the cache's limit.

    With `dry_run` give the same list and remove nothing.
    """
    if not dry_run:
        store.sweep()
        for path in store.find_broken_facts():
            path.unlink(missing_ok=True)
    with _convert_errors():
        limit = read_limit_bytes(environment if gib is None else {"RECIPE_CACHE_GIB": str(gib)})
    return tuple(store.prune(limit, dry_run=dry_run))


def measure_downloads(environment: Mapping[str, str]) -> dict[str, int]:
    """What was downloaded, by whom, in bytes; it may all be downloaded again."""
    return {name: found.size for name, found in find_downloads(find_cache_folder(environment)).items()}


def list_foreign(store: Store) -> tuple[str, ...]:
    """Files in the folders of the cache that recipe, uv and py-rattler did not name, relative to the cache."""
    folder = store.folder.parent
    found = [path for downloads in find_downloads(folder).values() for path in downloads.foreign]
    return tuple(str(path.relative_to(folder)) for path in sorted([*found, *store.find_foreign()]))


def prune_downloads(store: Store, *, without: Collection[CacheEntry] = (), dry_run: bool = False) -> dict[str, int]:
    """Remove all that was downloaded, and what was compiled of it; returns the bytes, by whom.

    With `dry_run` give the same numbers and remove nothing; what is compiled and in `without` counts elsewhere. Raises
    ToolError while a build uses it.
    """
    folder = store.folder.parent
    with store.lock_downloads(alone=True) as ours:
        if store.locks.missing:
            message, fix = explain_no_locks(store), "remove the folder yourself when no build runs"
            raise ToolError(Finding(code="cache-in-use", message=message, at=Location(file=str(folder)), fix=fix))
        if not ours:
            message, fix = "a build is using what was downloaded", "try again when it has ended"
            raise ToolError(Finding(code="cache-in-use", message=message, at=Location(file=str(folder)), fix=fix))
        with lock_uv(folder):
            found = find_downloads(folder)
            if not dry_run:
                for downloads in found.values():
                    remove_downloads(store, downloads)
        counted = {entry.path for entry in without}
        compiled = [one for one in store.list_entries() if one.kind == COMPILED and one.path not in counted]
        gone = [entry for entry in compiled if (store.is_free(entry) if dry_run else store.drop(entry))]
    return {name: one.size for name, one in found.items()} | {COMPILED: sum(entry.size for entry in gone)}
