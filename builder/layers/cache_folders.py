"""The folders of the cache: where each program keeps what it downloads; all of them are the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..sif.errors import LayeringError
from .private import private_folder

UV = "uv"  # uv's downloads
CONDA = "conda"  # py-rattler's downloads: packages/ and repodata/
FETCH = "fetch"  # plan folders of `recipe fetch`
LAYERS = "layers-1"  # layers, base images and what is known of them
DOWNLOADS = (UV, CONDA)
LIMIT_GIB = 40.0
INSTEAD = "set RECIPE_CACHE_DIR to a folder of your own"


def cache_folder(environment: Mapping[str, str]) -> Path:
    """RECIPE_CACHE_DIR, else `recipe` in the user's cache folder; raises LayeringError where no home is known."""
    if own := environment.get("RECIPE_CACHE_DIR"):
        return Path(own)
    if above := environment.get("XDG_CACHE_HOME"):
        return Path(above, "recipe")
    if home := environment.get("HOME"):
        return Path(home, ".cache", "recipe")
    raise LayeringError("there is no place for the cache: HOME is not set", fix=INSTEAD)


def own_cache(folder: Path) -> Path:
    """Make or check the cache folder, and what is kept in it; returns its path without links.

    Raises PrivateError for one that is another user's or that others can write, and OSError.
    """
    folder = cache_part(folder)
    for name in (*DOWNLOADS, FETCH):
        cache_part(folder / name)
    return folder


def cache_part(folder: Path) -> Path:
    """Make or check one folder of the cache; raises what `own_cache` raises."""
    return private_folder(folder, what="cache folder", instead=INSTEAD)


def limit_bytes(environment: Mapping[str, str]) -> int:
    """RECIPE_CACHE_GIB, else 40 GiB; raises LayeringError for what is no number of GiB."""
    said = environment.get("RECIPE_CACHE_GIB") or ""
    try:
        gib = float(said) if said else LIMIT_GIB
    except ValueError:
        gib = -1.0
    if not 0.0 <= gib < 2.0**40:  # not for NaN and infinity either
        message = f"RECIPE_CACHE_GIB is '{said}', which is no number of GiB"
        raise LayeringError(message, fix="set it to a number, as in RECIPE_CACHE_GIB=40")
    return int(gib * 2**30)
