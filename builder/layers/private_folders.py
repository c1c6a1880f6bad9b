"""Folders that belong to the user: no one else can write there, or replace them.

`private_folder` of engine.sh is the same for the scripts.
"""

from __future__ import annotations

import os
import shlex
import stat
from contextlib import suppress
from pathlib import Path

from ..sif.errors import LayeringError

OTHERS = stat.S_IWGRP | stat.S_IWOTH


class PrivateError(LayeringError):
    """A folder that is not the user's own, or that others can write; `path` is the faulty one."""

    def __init__(self, path: Path, message: str, *, fix: str) -> None:
        super().__init__(message, fix=fix)
        self.path = path


def ensure_private_folder(path: Path, *, what: str, instead: str) -> Path:
    """Make a folder for this user alone, or check one that exists; return its path without links.

    `what` it is and what to do `instead` are for the message. Raises PrivateError if another user could write in it, or
    change what its path leads to, and OSError.
    """
    return _check_path(path, what=what, instead=instead, shared=False)


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
