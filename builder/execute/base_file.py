"""Whether the file of a base image is still the one that was locked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from builder.execute.cache_maintenance import is_layer_cache_missing, open_cache
from builder.model.finding import ToolError
from builder.model.lock import BaseLock
from builder.sif.bounded import hash_file


def has_base_changed(base: BaseLock, path: Path, *, environment: Mapping[str, str]) -> bool:
    """Compare a file with a lock; the cache of layers, if there is one, keeps the digests of unchanged files.

    What cannot be read is not known to have changed: a build reports it.
    """
    try:
        if path.stat().st_size != base.size:
            return True
        return f"sha256:{_find_digest(path, environment)}" != base.digest
    except OSError:
        return False


def _find_digest(path: Path, environment: Mapping[str, str]) -> str:
    with suppress(ToolError):
        if not is_layer_cache_missing(environment):
            return open_cache(environment).find_digest(path)
    return hash_file(path)
