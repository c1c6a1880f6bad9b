"""The cache of layers as the command line shows it: what is in it, whether it is whole, and how it is made smaller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.layering.store import STORE, Entry, Store, cache_folder, limit_bytes
from builder.model.finding import Finding, Place, ToolError


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
    """Remove what was used longest ago until the rest fits into `gib`, or into the cache's own limit."""
    store.sweep()
    limit = limit_bytes(environment) if gib is None else int(gib * 2**30)
    return tuple(_cached(entry) for entry in store.prune(limit))


def _cached(entry: Entry) -> Cached:
    return Cached(
        kind=entry.kind, title=entry.title, key=entry.key, size=entry.size, used=entry.used, file=str(entry.path)
    )
