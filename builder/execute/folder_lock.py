"""One build at a time in a plan folder."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builder.model.finding import ConfigError, Finding, Location, ToolError
from builder.sif import tree
from builder.system.layout import LOCK_FILE

# A Lustre client without the `flock` mount option has no locks at all; the build then continues without one.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)

RIGHTS = "choose another folder, or give it the rights and the space"
_HELD: set[tuple[int, Path]] = set()  # by this process: thread, folder


@contextmanager
def lock_folder(folder: Path, *, becomes: Path | None = None) -> Iterator[None]:
    """Keep other builds out of a folder; raises ConfigError when one is at work, ToolError when it cannot be locked.

    The lock belongs to this process: the kernel drops it when the process dies, however it dies. Who holds a folder
    may hold it again. A folder that `becomes` another one inside the `with` block is held by that name.
    """
    ours = (threading.get_ident(), (becomes or folder).resolve())
    if ours in _HELD:
        yield
        return
    path = folder / LOCK_FILE
    try:
        handle = tree.keep(folder.resolve(), LOCK_FILE)
    except tree.TreeError:
        raise ConfigError(_make_foreign_finding(path)) from None
    except OSError as error:
        raise _make_unwritable_error(folder, error) from None
    try:
        _lock(handle, path)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()} {os.uname().nodename}\n".encode(), 0)
        _HELD.add(ours)
        yield
    finally:
        _HELD.discard(ours)
        os.close(handle)


def check_unlocked(folder: Path) -> None:
    """Raise ConfigError when a build is at work in a folder, as `lock_folder` would; nothing is made."""
    path = folder / LOCK_FILE
    if (threading.get_ident(), folder.resolve()) in _HELD or not os.path.lexists(path):
        return
    try:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ConfigError(_make_foreign_finding(path)) from None
        raise _make_unwritable_error(folder, error) from None
    try:
        _lock(handle, path)
    finally:
        os.close(handle)


def _lock(handle: int, path: Path) -> None:
    """Lock an open file; raises ConfigError when a build holds it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(_make_busy_finding(os.pread(handle, 64, 0), path)) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def _make_unwritable_error(folder: Path, error: OSError) -> ToolError:
    message = f"the plan folder '{folder}' cannot be written: {(error.strerror or str(error)).lower()}"
    return ToolError(Finding(code="folder-unwritable", message=message, fix=RIGHTS))


def _make_foreign_finding(path: Path) -> Finding:
    return Finding(
        code="folder-taken",
        message=f"'{path.name}' in the plan folder is no file of a build's own, but leads somewhere else",
        at=Location(file=str(path)),
        fix="see who put it there and remove it, or build to another output with -o",
    )


def _make_busy_finding(content: bytes, path: Path) -> Finding:
    pid, _, host = content.decode("utf-8", errors="replace").strip().partition(" ")
    who = f"pid {pid} on {host}" if pid.isdecimal() else "its process is not known"
    return Finding(
        code="build-running",
        message=f"another build of this output is running ({who})",
        at=Location(file=str(path)),
        fix="wait for it, stop it, or build to another output with -o",
    )
