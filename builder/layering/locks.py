"""Who is at work in a cache: locks of the kernel for this machine, marks in its folder for all machines."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .marks import is_dead, new_mark

NO_LOCKS = "its file system has no locks (flock): nothing is removed from it"


class Locks:
    """Locks and marks in one folder; `missing` once the file system has refused a lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.missing = False

    @contextmanager
    def used(self, name: str) -> Iterator[None]:
        """While something is used no one removes it; whoever looks for it does so in here."""
        mark = self.folder / f"{name}@{new_mark()}"
        mark.touch(mode=0o600)
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    def in_use(self, name: str) -> bool:
        """Whether someone uses it, on any machine."""
        return any(not _is_dead(mark) for mark in self.folder.glob(f"{name}@*"))

    @contextmanager
    def waited(self, name: str) -> Iterator[None]:
        """Alone with something that is made; without locks two may make it, and the last one's stays."""
        with self._lock(name, fcntl.LOCK_EX):
            try:
                yield
            finally:
                (self.folder / name).unlink(missing_ok=True)

    @contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        """Alone with something that is to be removed; False while it is used, and where no one could tell."""
        with self._lock(name, fcntl.LOCK_EX | fcntl.LOCK_NB) as locked:
            if not locked:
                yield False
                return
            try:
                yield not self.in_use(name)
            finally:
                (self.folder / name).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove the marks of processes that have ended."""
        for mark in self.folder.glob("*@*"):
            if _is_dead(mark):
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
                    same = False  # whoever had it has removed it
                if same:
                    yield True
                    return


def _is_dead(mark: Path) -> bool:
    return is_dead(mark, mark=mark.name.rpartition("@")[2])
