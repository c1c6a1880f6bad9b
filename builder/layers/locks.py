"""Who is at work in a cache: locks of the kernel for this machine, marks in its folder for all machines.

A mark is a file; its name has a process, its start, the boot of its machine and the machine. A file system may keep
locks for each of its nodes alone (Lustre's `localflock`) or none at all. A mark is visible on all nodes, and complete
from the moment it has its name.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

AGE = 14 * 86400.0  # seconds after which a mark of another machine is ignored
_PROC = Path("/proc")


def make_mark() -> str:
    """Return a name that no other mark has: RANDOM.PID.START.BOOT.MACHINE."""
    pid = os.getpid()
    return f"{os.urandom(4).hex()}.{pid}.{_read_start_time(pid)}.{_find_boot()}.{_name_machine()}"


def is_mark(name: str) -> bool:
    """Whether a name is one that `make_mark` gives."""
    return re.fullmatch(r"[0-9a-f]{8}\.[0-9]+\.[0-9]*\.[0-9a-f]{8}\..+", name) is not None


def is_dead(path: Path, *, mark: str = "", age: float = AGE) -> bool:
    """Whether the process that made a file has ended; `mark` is the part of its name that tells, by default all of it.

    A process of this machine is looked up. For another machine, and for a name that is not a mark, `age` decides.
    """
    try:
        made = path.lstat().st_mtime
    except OSError:
        return False  # removed meanwhile
    parts = (mark or path.name).split(".", 4)
    if len(parts) == 5 and parts[4] == _name_machine() and parts[1].isascii() and parts[1].isdigit():
        if parts[3] == _find_boot() and parts[2]:
            return _read_start_time(int(parts[1])) != parts[2]
        if made < _read_boot_time():  # and not by another machine of the same name
            return True
    return time.time() - made > age


def _read_start_time(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; "" if it is not running."""
    with suppress(OSError, IndexError):
        # The name of the program is in brackets and may contain anything.
        fields = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[19] if fields[0] not in "ZX" else ""  # it has ended, and was not waited for
    return ""


@cache
def _find_boot() -> str:
    """Identify the boot of this machine, and the name space of process numbers."""
    boot = space = ""
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii")
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256((boot + space).encode()).hexdigest()[:8]


@cache
def _read_boot_time() -> float:
    with suppress(OSError, ValueError, IndexError):
        text = (_PROC / "stat").read_text(encoding="ascii")
        return float(text.partition("\nbtime ")[2].split()[0])
    return 0.0


def _name_machine() -> str:
    return os.uname().nodename.replace("/", "_")[:64]


NO_LOCKS = "its file system has no locks (flock): nothing is removed from it"


class Locks:
    """Locks and marks in one folder; `missing` is set when the file system has refused a lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.missing = False

    @contextmanager
    def mark(self, name: str) -> Iterator[None]:
        """Prevent the removal of something while it is used; look it up inside."""
        mark = self.folder / f"{name}@{make_mark()}"
        mark.touch(mode=0o600)
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    def is_used(self, name: str) -> bool:
        """Whether a process uses it, on any machine."""
        return any(not _is_dead(mark) for mark in self.folder.glob(f"{name}@*"))

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Wait for the lock of something that is made; without locks two may make it, and the last one wins."""
        with self._lock(name, fcntl.LOCK_EX):
            try:
                yield
            finally:
                (self.folder / name).unlink(missing_ok=True)

    @contextmanager
    def try_lock(self, name: str) -> Iterator[bool]:
        """Lock something to remove it; yield False while it is used, or if the file system has no locks."""
        with self._lock(name, fcntl.LOCK_EX | fcntl.LOCK_NB) as locked:
            if not locked:
                yield False
                return
            try:
                yield not self.is_used(name)
            finally:
                (self.folder / name).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove the marks of processes that have ended."""
        for mark in self.folder.glob("*@*"):
            if is_mark(mark.name.rpartition("@")[2]) and _is_dead(mark):
                mark.unlink(missing_ok=True)

    @contextmanager
    def _lock(self, name: str, how: int) -> Iterator[bool]:
        path = self.folder / name
        while True:
            with path.open("a") as file:
                try:
                    fcntl.flock(file, how)
                except BlockingIOError:
                    yield False
                    return
                except OSError:
                    self.missing = True
                    yield False
                    return
                try:
                    same = path.stat().st_ino == os.fstat(file.fileno()).st_ino
                except FileNotFoundError:
                    same = False  # the process that had the lock has removed it
                if same:
                    yield True
                    return


def _is_dead(mark: Path) -> bool:
    return is_dead(mark, mark=mark.name.rpartition("@")[2])
