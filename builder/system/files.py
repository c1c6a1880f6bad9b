"""The program's own files and folders, written atomically and removed afterwards; errors of the system as findings."""

from __future__ import annotations

import ast
import errno
import os
import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from builder.layers.private_folders import format_owner
from builder.model.finding import BuilderError, ConfigError, Finding, Location, ToolError
from builder.sif import removal, tree

remove_tree = removal.remove


@contextmanager
def make_temporary_path(path: Path) -> Iterator[Path]:
    """Yield a path, and remove its file or folder at the end in any case."""
    try:
        yield path
    finally:
        remove_tree(path)


def sync(path: Path) -> None:
    """Flush a file or folder to the disk, as far as the file system supports it."""
    with suppress(OSError):
        tree.sync(path)


def name_draft(path: Path) -> Path:
    """Return the path at which a file is written before it is renamed: constant in one process, unpredictable outside.

    Raises OSError for a path without a name, which is a folder's.
    """
    if path.name in ("", ".."):
        raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
    return path.with_name(f".{path.name}.recipe-{os.getpid()}-{_make_suffix(os.getpid())}")


@cache
def _make_suffix(pid: int) -> str:
    del pid  # a child of this process has its own
    return os.urandom(4).hex()


NO_LINKS = (errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP)  # of file systems without them


def rename_new(draft: Path, path: Path) -> None:
    """Rename a file or folder to a path at which nothing is; raises FileExistsError, and OSError."""
    if draft.is_file() and not draft.is_symlink():
        try:
            path.hardlink_to(draft)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
        else:
            draft.unlink()
            return
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    draft.rename(path)


def write_atomic(path: Path, text: str, *, keep: bool = False, new: bool = False) -> None:
    """Write a text file atomically; raises OSError. A `new` one replaces nothing: raises FileExistsError.

    With `keep` the file exists, and the new one gets its owner, mode and extended attributes, as far as possible. One
    that has several names (hard links) is written in place, so that it has the same text by each of them.
    """
    like = path.stat() if keep else None
    draft = name_draft(path)  # the same as recorded for the next build, in case this one is killed
    remove_tree(draft)
    with make_temporary_path(draft):
        with os.fdopen(
            os.open(draft, tree.NEW, 0o666 if like is None else 0o600), "w", encoding="utf-8", newline=""
        ) as file:
            file.write(text)
            file.flush()
            if like is not None:
                _keep_status(file.fileno(), like, of=path)
            os.fsync(file.fileno())
        if like is not None and like.st_nlink > 1:
            _write_in_place(path, text.encode())  # there is room for it: the draft was written
        elif new:
            rename_new(draft, path)
        else:
            draft.replace(path)


def _write_in_place(path: Path, content: bytes) -> None:
    """Write over a file, and put its old content back where that fails; raises OSError."""
    with path.open("r+b", buffering=0) as file:
        old = file.read()
        try:
            _overwrite(file.fileno(), content)
        except OSError:
            with suppress(OSError):
                _overwrite(file.fileno(), old)
            raise


def _overwrite(handle: int, content: bytes) -> None:
    done = 0
    while done < len(content):
        done += os.pwrite(handle, content[done:], done)
    os.ftruncate(handle, len(content))
    os.fsync(handle)


def _keep_status(handle: int, like: os.stat_result, *, of: Path) -> None:
    """Give an open file the owner, the extended attributes and the mode of another one."""
    with suppress(OSError):  # only root may give a file away
        os.fchown(handle, like.st_uid, like.st_gid)
    with suppress(OSError):  # a file system without them
        for name in os.listxattr(of):
            with suppress(OSError):
                os.setxattr(handle, name, os.getxattr(of, name))
    os.fchmod(handle, stat.S_IMODE(like.st_mode))


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
    if number == errno.ENOENT and not path and not _has_folder():
        message, fix = "the current folder was removed", "go to a folder that exists, for example `cd`"
        return ConfigError(Finding(code="path-refused", message=message, fix=fix))
    if path and number == errno.EACCES:
        return ConfigError(find_closed_folder(Path(path)) or _make_rights_finding(Path(path), reason))
    message = f"'{path}': {reason}" if path else f"the system reported: {reason}"
    code = "no-space" if number in FULL else "path-refused"
    fix = FIXES.get(number, "check the path and its permissions")
    if path and number == errno.ENOENT and not Path(path).parent.exists():
        fix = f"make the folder first: `mkdir -p {shlex.quote(str(Path(path).parent))}`"
    finding = Finding(code=code, message=message, at=Location(file=path) if path else None, fix=fix)
    return ToolError(finding) if number in FULL else ConfigError(finding)


def _has_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - its error is the question
    except OSError:
        return False
    return True


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


def find_unreadable(path: Path) -> Finding | None:
    """The finding for a file or folder that this user may not read, None for any other."""
    if not path.exists() or os.access(path, os.R_OK):
        return None
    fix = _suggest_right(path, path.stat(), right="r")
    return Finding(code="path-refused", message=f"'{path}' may not be read", fix=fix)


def find_protected(path: Path) -> Finding | None:
    """The finding for a file of another user in a sticky folder, such as /tmp: only its owner may replace it there."""
    user = os.geteuid()
    try:
        known, folder = path.lstat(), path.parent.stat()
    except OSError:
        return None
    if not folder.st_mode & stat.S_ISVTX or user in (0, known.st_uid, folder.st_uid):
        return None
    message = (
        f"'{path}' belongs to {format_owner(known.st_uid)}, and only its owner may replace it in the sticky folder "
    )
    return Finding(code="path-refused", message=f"{message}folder '{path.parent}'", fix="choose a folder of your own")


def _make_rights_finding(path: Path, reason: str) -> Finding:
    """The finding for a file or folder that may not be read, or for a folder in which nothing may be written."""
    if unreadable := find_unreadable(path):
        return unreadable
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
