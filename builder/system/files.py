"""Files and folders of the program's own: drafts beside their places, whole or not at all, removed afterwards."""

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
def removed_afterwards(path: Path) -> Iterator[Path]:
    """Give a path whose file or folder is gone at the end, whatever happens."""
    try:
        yield path
    finally:
        remove_tree(path)


def sync(path: Path) -> None:
    """Have a file or folder on the disk, as far as the file system lets us."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def draft_of(path: Path) -> Path:
    """Where what takes a place is written first, beside it: the same for one process, and not to be foreseen.

    Raises OSError for a path that ends in no name, which is a folder's.
    """
    if path.name in ("", ".."):
        raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
    return path.with_name(f".{path.name}.recipe-{os.getpid()}-{_word(os.getpid())}")


@cache
def _word(pid: int) -> str:
    del pid  # a child of this process has its own
    return os.urandom(4).hex()


def write_whole(path: Path, text: str) -> None:
    """Write a text file whole or not at all; raises OSError."""
    draft = draft_of(path)  # as it is noted for the next build, should this one be killed
    remove_tree(draft)
    with removed_afterwards(draft):
        with os.fdopen(os.open(draft, tree.NEW, 0o666), "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)


__all__ = ["draft_of", "remove_tree", "removed_afterwards", "sync", "write_whole"]
