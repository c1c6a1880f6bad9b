"""The program's own files and folders: written atomically, removed afterwards."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from builder.sif import tree
from builder.sif.tree import remove as remove_tree


@contextmanager
def temporary_path(path: Path) -> Iterator[Path]:
    """Yield a path, and remove its file or folder at the end in any case."""
    try:
        yield path
    finally:
        remove_tree(path)


def sync(path: Path) -> None:
    """Flush a file or folder to the disk, as far as the file system supports it."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def draft_path(path: Path) -> Path:
    """Return the path at which a file is written before it is renamed: constant in one process, unpredictable outside.

    Raises OSError for a path without a name, which is a folder's.
    """
    if path.name in ("", ".."):
        raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
    return path.with_name(f".{path.name}.recipe-{os.getpid()}-{_random_suffix(os.getpid())}")


@cache
def _random_suffix(pid: int) -> str:
    del pid  # a child of this process has its own
    return os.urandom(4).hex()


def write_atomic(path: Path, text: str) -> None:
    """Write a text file atomically; raises OSError."""
    draft = draft_path(path)  # the same as recorded for the next build, in case this one is killed
    remove_tree(draft)
    with temporary_path(draft):
        with os.fdopen(os.open(draft, tree.NEW, 0o666), "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)


__all__ = ["draft_path", "remove_tree", "sync", "temporary_path", "write_atomic"]
