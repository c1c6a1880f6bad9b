"""The folders of the cache: where each program keeps what it downloads; all of them are the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..sif.errors import LayeringError
from .private_folders import ensure_private_folder

UV = "uv"  # uv's downloads
CONDA = "conda"  # py-rattler's downloads: packages/ and repodata/
FETCH = "fetch"  # plan folders of `recipe fetch`
LAYERS = "layers-1"  # layers, base images and what is known of them
DOWNLOADS = (UV, CONDA)
LIMIT_GIB = 40.0
INSTEAD = "set RECIPE_CACHE_DIR to a folder of your own"


def find_cache_folder(environment: Mapping[str, str]) -> Path:
    """Return RECIPE_CACHE_DIR, else `recipe` in the user's cache folder; raises LayeringError if no home is known."""
    if own := environment.get("RECIPE_CACHE_DIR"):
        return Path(own)
    if above := environment.get("XDG_CACHE_HOME"):
        return Path(above, "recipe")
    if home := environment.get("HOME"):
        return Path(home, ".cache", "recipe")
    raise LayeringError("HOME is not set, so the cache has no folder", fix=INSTEAD)


def ensure_cache(folder: Path) -> Path:
    """Make or check the cache folder and the folders in it; return its path without links.

    Raises PrivateError if one is another user's or others can write it, and OSError.
    """
    folder = ensure_cache_part(folder)
    for name in (*DOWNLOADS, FETCH):
        ensure_cache_part(folder / name)
    return folder


def ensure_cache_part(folder: Path) -> Path:
    """Make or check one folder of the cache; raises what `ensure_cache` raises."""
    return ensure_private_folder(folder, what="cache folder", instead=INSTEAD)


def read_limit_bytes(environment: Mapping[str, str]) -> int:
    """Return RECIPE_CACHE_GIB, else 40 GiB, in bytes; raises LayeringError if it is not a number."""
    text = environment.get("RECIPE_CACHE_GIB") or ""
    try:
        gib = float(text) if text else LIMIT_GIB
    except ValueError:
        gib = -1.0
    if not 0.0 <= gib < 2.0**40:  # not for NaN and infinity either
        message = f"RECIPE_CACHE_GIB is '{text}', which is not a number of GiB"
        raise LayeringError(message, fix="set it to a number, as in RECIPE_CACHE_GIB=40")
    return int(gib * 2**30)
