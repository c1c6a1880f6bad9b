"""Folders that belong to the user, where no one else can write: those of the cache, and temporary ones.

`private_folder` of engine.sh is the same for the scripts.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..sif.errors import LayeringError

OTHERS = stat.S_IWGRP | stat.S_IWOTH


class PrivateError(LayeringError):
    """A folder that is not the user's own, or that others can write; `path` is the faulty one."""

    def __init__(self, path: Path, message: str, *, fix: str) -> None:
        super().__init__(message, fix=fix)
        self.path = path


def ensure_private_folder(path: Path, *, instead: str) -> Path:
    """Make a cache folder for this user alone, or check one that exists; return its path without links.

    What to do `instead` is for the message. Raises PrivateError if another user could write in it, or
    change what its path leads to, and OSError.
    """
    return _check_path(path, what="cache folder", instead=instead, shared=False)


def ensure_temporary_parent(path: Path, *, instead: str) -> Path:
    """Make or check a folder for temporary folders; one that all users share is accepted if it is sticky (/tmp).

    Return its path without links; raises what `ensure_private_folder` raises.
    """
    return _check_path(path, what="temporary folder", instead=instead, shared=True)


def format_owner(number: int) -> str:
    """Return a user's name and number."""
    import pwd

    with suppress(KeyError):
        return f"{pwd.getpwuid(number).pw_name} (uid {number})"
    return f"uid {number}"


def _check_path(path: Path, *, what: str, instead: str, shared: bool) -> Path:
    ours = os.getuid()
    system = {0, ours, os.stat("/").st_uid}  # in a user name space root's folders may have another number
    asked = Path(os.path.abspath(path))
    for link in (asked, *asked.parents):
        with suppress(FileNotFoundError):
            seen = link.lstat()
            if stat.S_ISLNK(seen.st_mode) and seen.st_uid not in system:
                raise _make_error(what, asked, link, f"is a link of {format_owner(seen.st_uid)}", instead=instead)
    # No other user can change the real path from here on, whatever happens to a link.
    place = Path(os.path.realpath(asked))
    for folder in (*reversed(place.parents), place):
        last = folder == place
        try:
            seen = folder.stat()
        except FileNotFoundError:
            _make(folder)
            seen = folder.stat()
        sticky = bool(seen.st_mode & stat.S_ISVTX)
        if not stat.S_ISDIR(seen.st_mode):
            raise _make_error(what, asked, folder, "is no folder", instead=instead)
        if seen.st_uid not in (system if not last or (shared and sticky) else {ours}):
            raise _make_error(what, asked, folder, f"belongs to {format_owner(seen.st_uid)}", instead=instead)
        if (seen.st_mode & (OTHERS if last else stat.S_IWOTH)) and not (sticky and (shared or not last)):
            who = "all users" if seen.st_mode & stat.S_IWOTH else "its group"
            if seen.st_uid == ours:  # only its owner can change that
                instead = f"run `chmod -R go-w {shlex.quote(str(folder))}`, or {instead}"
            raise _make_error(what, asked, folder, f"can be written by {who}", instead=instead)
    return place


def _make(folder: Path) -> None:
    with suppress(FileExistsError):
        folder.mkdir(0o700)
        if stat.S_IMODE(folder.stat().st_mode) & 0o777 != 0o700:
            folder.chmod(0o700)  # a umask that takes rights of the user's own


def _make_error(what: str, asked: Path, folder: Path, why: str, *, instead: str) -> PrivateError:
    if folder == asked:
        return PrivateError(folder, f"the {what} '{asked}' {why}", fix=instead)
    return PrivateError(folder, f"the {what} '{asked}' is not safe: '{folder}' {why}", fix=instead)


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
    return ensure_private_folder(folder, instead=INSTEAD)


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
