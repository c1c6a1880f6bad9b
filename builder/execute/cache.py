"""The cache of layers as the command line shows it: what is in it, whether it is whole, and how it is made smaller."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from builder.execute.asking import capture
from builder.execute.locking.uv import uv_program
from builder.layering.store import STORE, Entry, Store, cache_folder, limit_bytes
from builder.model.finding import Finding, Place, ToolError

DOWNLOADS = ("uv", "conda")  # folders beside the cache of layers
COMPILED = "compiled"  # of a download; it lies with the layers, and is bounded with them
SECONDS = 600.0  # for uv to clear its folder


@dataclass(frozen=True, kw_only=True)
class Cached:
    """One thing in the cache; `used` is a time in seconds since 1970, `size` in bytes."""

    kind: str
    title: str
    key: str
    size: int
    used: float
    file: str


def cache_of(environment: Mapping[str, str]) -> tuple[Path, str]:
    """The folder of all that builds keep, and the name in it of what is no download."""
    return cache_folder(environment), STORE


def open_cache(environment: Mapping[str, str]) -> Store:
    """The cache that builds use; raises ToolError when its folder cannot be used."""
    folder = cache_folder(environment)
    try:
        return Store(folder)
    except OSError as error:
        message = f"the cache folder '{folder}' cannot be used: {(error.strerror or str(error)).lower()}"
        finding = Finding(
            code="cache-folder", message=message, at=Place(file=str(folder)), fix="set RECIPE_CACHE_DIR to another one"
        )
        raise ToolError(finding) from None


def contents(store: Store) -> tuple[Cached, ...]:
    """Everything in the cache, what was used longest ago first."""
    return tuple(_cached(entry) for entry in store.entries())


def verify(store: Store) -> tuple[tuple[Cached, ...], tuple[Path, ...]]:
    """Check every file by its SHA-256; what is wrong is removed and returned, with files that belong to nothing."""
    stray = tuple(store.broken())
    altered = tuple(_cached(entry) for entry in store.entries() if not store.intact(entry))
    for path in stray:
        path.unlink(missing_ok=True)
    return altered, stray


def prune(store: Store, environment: Mapping[str, str], *, gib: float | None) -> tuple[Cached, ...]:
    """Remove what is not whole, and what was used longest ago until the rest fits into `gib` or the cache's limit."""
    store.sweep()
    for path in store.broken_facts():
        path.unlink(missing_ok=True)
    limit = limit_bytes(environment) if gib is None else int(gib * 2**30)
    return tuple(_cached(entry) for entry in store.prune(limit))


def downloads(environment: Mapping[str, str]) -> dict[str, int]:
    """What was downloaded, by whom, in bytes; it may all be downloaded again."""
    found = {name: cache_folder(environment) / name for name in DOWNLOADS}
    return {name: _bytes_in(folder) for name, folder in found.items() if folder.is_dir()}


def prune_downloads(store: Store, environment: Mapping[str, str]) -> int:
    """Remove all that was downloaded, and what was compiled of it; returns the bytes of both.

    Raises ToolError while a build uses it.
    """
    folder, size = cache_folder(environment), sum(downloads(environment).values())
    with store.downloads(alone=True) as ours:
        if not ours:
            message, fix = "a build is using what was downloaded", "try again when it has ended"
            raise ToolError(Finding(code="cache-in-use", message=message, at=Place(file=str(folder)), fix=fix))
        if (folder / "conda").is_dir():
            with store.work() as work:
                (folder / "conda").replace(work / "conda")
        size += sum(entry.size for entry in store.entries() if entry.kind == COMPILED and store.drop(entry))
    if (folder / "uv").is_dir():
        # uv knows by locks of its own whether one of its kind is at work, in a container too.
        argv = [uv_program(environment), "cache", "clean", "--cache-dir", str(folder / "uv"), "--quiet"]
        done = capture(argv, env=environment, timeout=SECONDS)
        if done.exit_code:
            message = (
                f"uv does not clear '{folder / 'uv'}': {done.text.strip()[-200:] or f'exit code {done.exit_code}'}"
            )
            raise ToolError(Finding(code="cache-in-use", message=message, fix="try again when no build runs"))
    return size - sum(downloads(environment).values())


def _bytes_in(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(root, name).lstat().st_size
    return total


def _cached(entry: Entry) -> Cached:
    return Cached(
        kind=entry.kind, title=entry.title, key=entry.key, size=entry.size, used=entry.used, file=str(entry.path)
    )
