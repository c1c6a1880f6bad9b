"""The cache of layers as the command line shows it: what is in it, whether it is whole, and how it is made smaller."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from builder.execute.download_cache import find_downloads, lock_uv, remove_downloads
from builder.layers.cache import CacheEntry, Store, open_shared_cache
from builder.layers.cache_folders import (
    DOWNLOADS,
    FETCH,
    INSTEAD,
    LAYERS,
    check_cache_content,
    ensure_cache,
    ensure_cache_part,
    find_cache_folder,
    read_limit_bytes,
)
from builder.layers.locks import NO_LOCKS
from builder.layers.private_folders import PrivateError
from builder.model.finding import Finding, Location, ToolError
from builder.model.plan import Plan
from builder.sif.errors import LayeringError

COMPILED = "compiled"  # of a download; it is kept with the layers, and is bounded with them


@dataclass(frozen=True, kw_only=True)
class CacheItem:
    """One thing in the cache; `used` is a time in seconds since 1970, `size` in bytes."""

    kind: str
    title: str
    key: str
    size: int
    used: float
    file: str


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


def find_layer_cache(plan: Plan, environment: Mapping[str, str]) -> Path | None:
    """The cache that layers are made in, None where a plan has none; makes nothing, raises ToolError."""
    return find_backend_cache(plan.backend, environment)


def find_backend_cache(backend: str, environment: Mapping[str, str]) -> Path | None:
    """The same of a backend, before there is a plan."""
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


def list_items(store: Store) -> tuple[CacheItem, ...]:
    """Everything in the cache, what was used longest ago first."""
    return tuple(_make_item(entry) for entry in store.list_entries())


def check_files(store: Store) -> tuple[tuple[CacheItem, ...], tuple[Path, ...]]:
    """Check every file by its SHA-256; what is wrong is returned and removed unless a build reads it.

    Files that belong to nothing come second, those that were removed.
    """
    stray = tuple(path for path in store.find_broken() if store.drop_stray(path))
    return tuple(_make_item(entry) for entry in store.list_entries() if not store.check(entry)), stray


def prune(
    store: Store, environment: Mapping[str, str], *, gib: float | None, dry_run: bool = False
) -> tuple[CacheItem, ...]:
    """Remove what is not whole, and what was used longest ago until the rest fits into `gib` or the cache's limit.

    With `dry_run` give the same list and remove nothing.
    """
    if not dry_run:
        store.sweep()
        for path in store.find_broken_facts():
            path.unlink(missing_ok=True)
    return tuple(_make_item(entry) for entry in store.prune(_limit(environment, gib=gib), dry_run=dry_run))


def _limit(environment: Mapping[str, str], *, gib: float | None) -> int:
    with _convert_errors():
        return read_limit_bytes(environment if gib is None else {"RECIPE_CACHE_GIB": str(gib)})


def measure_downloads(environment: Mapping[str, str]) -> dict[str, int]:
    """What was downloaded, by whom, in bytes; it may all be downloaded again."""
    return {name: found.size for name, found in find_downloads(find_cache_folder(environment)).items()}


def list_foreign(store: Store) -> tuple[str, ...]:
    """Files in the folders of the cache that recipe, uv and py-rattler did not name, relative to the cache."""
    folder = store.folder.parent
    found = [path for downloads in find_downloads(folder).values() for path in downloads.foreign]
    return tuple(str(path.relative_to(folder)) for path in sorted([*found, *store.find_foreign()]))


def prune_downloads(store: Store, *, without: Collection[CacheItem] = (), dry_run: bool = False) -> dict[str, int]:
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
        counted = {item.file for item in without}
        compiled = [one for one in store.list_entries() if one.kind == COMPILED and str(one.path) not in counted]
        gone = [entry for entry in compiled if (store.is_free(entry) if dry_run else store.drop(entry))]
    return {name: one.size for name, one in found.items()} | {COMPILED: sum(entry.size for entry in gone)}


def _make_item(entry: CacheEntry) -> CacheItem:
    return CacheItem(
        kind=entry.kind, title=entry.title, key=entry.key, size=entry.size, used=entry.used, file=str(entry.path)
    )
