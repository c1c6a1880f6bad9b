"""Errors of the system as findings: the path, what may not be done with it, whose it is, and what gives the right."""

from __future__ import annotations

import ast
import errno
import os
import re
import shlex
import stat
from pathlib import Path

from builder.layers.private_folders import format_owner
from builder.model.finding import BuilderError, ConfigError, Finding, Location, ToolError

FIXES = {
    errno.ENOENT: "make the folder first, or check the path",
    errno.EPERM: "choose a place of your own",
    errno.EROFS: "choose a place that can be written",
    errno.ENOSPC: "free space there, or choose another place",
    errno.EDQUOT: "free space there (your quota is used up), or choose another place",
    errno.EFBIG: "raise the limit of a file's size with `ulimit -f`, or choose another place",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.EISDIR: "name a file, not a folder",
    errno.ENOTDIR: "a part of the path is a file: check the path",
    errno.EMFILE: "raise the limit of open files with `ulimit -n`",
    errno.ELOOP: "a link in the path leads back to itself: check the path",
}
# Before Python 3.13 Path.resolve reports a link that leads back to itself so, not as an OSError.
_LOOP = re.compile(r"Symlink loop from (.+)", re.DOTALL)
FULL = (errno.ENOSPC, errno.EDQUOT)


def to_builder_error(error: Exception) -> BuilderError | None:
    """The findings and exit code of an expected exception; None for a fault of the program."""
    if isinstance(error, BuilderError):
        return error
    # What Python raises where the system refuses a thread has no class of its own.
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't start new thread" in str(error)):
        message, fix = "there is not enough memory for this", "free some, or run it on a node with more"
        return ToolError(Finding(code="no-memory", message=message, fix=fix))
    if isinstance(error, OSError) and error.errno is not None:
        return _make_system_error(error, error.errno)
    if isinstance(error, RuntimeError) and (loop := _LOOP.fullmatch(str(error))):
        return _make_system_error(
            OSError(errno.ELOOP, os.strerror(errno.ELOOP), ast.literal_eval(loop[1])), errno.ELOOP
        )
    return None


def _make_system_error(error: OSError, number: int) -> BuilderError:
    """A finding for an error of the system: the path, the reason and the fix."""
    path = next((str(name) for name in (error.filename2, error.filename) if name), "")
    reason = (error.strerror or str(error)).lower()
    if path and number == errno.EACCES:
        return ConfigError(find_closed_folder(Path(path)) or _make_rights_finding(Path(path), reason))
    message = f"'{path}': {reason}" if path else f"the system reported: {reason}"
    code = "no-space" if number in FULL else "path-refused"
    fix = FIXES.get(number, "check the path and its permissions")
    if path and number == errno.ENOENT and not Path(path).parent.exists():
        fix = f"make the folder first: `mkdir -p {shlex.quote(str(Path(path).parent))}`"
    finding = Finding(code=code, message=message, at=Location(file=path) if path else None, fix=fix)
    return ToolError(finding) if number in FULL else ConfigError(finding)


def find_closed_folder(path: Path) -> Finding | None:
    """The finding for a path below a folder that this user may not enter: which it is, and whose; None if none is."""
    for folder in reversed(path.parents):
        try:
            known = folder.stat()
        except OSError:
            return None  # it is missing: an error of another kind
        if stat.S_ISDIR(known.st_mode) and not os.access(folder, os.X_OK):
            message = f"'{path}' cannot be reached: the folder '{folder}' may not be entered"
            return Finding(code="path-refused", message=message, fix=_suggest_right(folder, known, right="x"))
    return None


def check_reachable(path: Path) -> None:
    """Raise ConfigError, with the folder and its owner, for a path below a folder that may not be entered."""
    if closed := find_closed_folder(path):
        raise ConfigError(closed)


def _make_rights_finding(path: Path, reason: str) -> Finding:
    """The finding for a file or folder that may not be read, or for a folder in which nothing may be written."""
    if path.exists() and not os.access(path, os.R_OK):
        message = f"'{path}' may not be read"
        return Finding(code="path-refused", message=message, fix=_suggest_right(path, path.stat(), right="r"))
    folder = path if path.is_dir() else path.parent
    if folder.is_dir() and not os.access(folder, os.W_OK):
        message = f"'{path}' may not be written: nothing may be written in the folder '{folder}'"
        fix = _suggest_right(folder, folder.stat(), right="w")
        return Finding(code="path-refused", message=message, fix=fix)
    fix = "choose a place of your own, or ask its owner for the right"
    return Finding(code="path-refused", message=f"'{path}': {reason}", at=Location(file=str(path)), fix=fix)


def _suggest_right(path: Path, known: os.stat_result, *, right: str) -> str:
    """What gives a right to a path: a command where it is the user's own, else its owner."""
    word = shlex.quote(str(path))
    if known.st_uid == os.getuid():
        return f"it is your own: `chmod u+{'rwx' if path.is_dir() else 'r'} {word}`"
    if known.st_uid == 0:
        return "it belongs to the system: name a path of your own"
    return (
        f"ask {format_owner(known.st_uid)}, whose it is, to type `chmod o+{right} {word}`, or name a path of your own"
    )
