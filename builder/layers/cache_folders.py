"""The folders of the cache: where each program keeps what it downloads; all of them are the user's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..sif.errors import LayeringError
from .private_folders import PrivateError, ensure_private_folder

UV = "uv"  # uv's downloads
CONDA = "conda"  # py-rattler's downloads: packages/ and repodata/
FETCH = "fetch"  # plan folders of `recipe fetch`
LAYERS = "layers-1"  # layers, base images and what is known of them
DOWNLOADS = (UV, CONDA)
PARTS = {*DOWNLOADS, FETCH, LAYERS}
MARK = ".recipe-cache"  # in a folder that recipe has made its cache
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

    Raises PrivateError if one is another user's, others can write it or it holds files of the user's, and OSError.
    """
    folder = ensure_cache_part(folder)
    check_cache_content(folder)
    for name in (*DOWNLOADS, FETCH):
        ensure_cache_part(folder / name)
    with suppress(OSError):  # there already, or a full disk: then its form tells
        handle = os.open(folder / MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write("recipe keeps its cache here: `recipe cache prune --downloads` removes uv/ and conda/\n")
    return folder


def check_cache_content(folder: Path) -> None:
    """Raise PrivateError where the folders of the cache hold files that recipe did not put there; writes nothing.

    A cache has a mark. One of an earlier version has none and is known by what is in it.
    """
    if not folder.is_dir() or (folder / MARK).is_file():
        return
    names = {path.name for path in folder.iterdir()}
    own = {name for name in names if name in PARTS and (not (folder / name).is_dir() or any((folder / name).iterdir()))}
    made = {*DOWNLOADS, FETCH} <= names or names <= PARTS  # all by recipe, or by a script of a plan
    strange = next((name for name in sorted(own) if not (made and _has_form(folder / name))), None)
    if strange is None or (folder / MARK).is_file():  # another build may have begun to fill it
        return
    message = f"the folder '{folder}' is to be the cache, and '{strange}' in it holds files that recipe did not make"
    raise PrivateError(folder / strange, message, fix="set RECIPE_CACHE_DIR to an empty or new folder")


def _has_form(part: Path) -> bool:
    """Whether a folder of the cache holds what recipe, or the program that it is for, puts there."""
    if not part.is_dir():
        return False
    names = {path.name for path in part.iterdir()}
    if part.name == UV:
        return (part / "CACHEDIR.TAG").is_file()
    if part.name == CONDA:
        return names <= {"packages", "repodata"}
    if part.name == LAYERS:
        return (part / "locks").is_dir()
    return all((part / name).is_dir() for name in names)


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
