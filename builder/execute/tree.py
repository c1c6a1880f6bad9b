"""Folders: removed with whatever rights a build left in them."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def remove_tree(path: Path) -> bool:
    """Remove a folder, also one with read-only folders inside; False when something of it is left.

    Links are removed, never followed, and nothing is removed where another file system is mounted inside.
    """
    try:
        device = path.lstat().st_dev
    except OSError:
        return not os.path.lexists(path)
    if path.is_symlink() or not path.is_dir():
        with suppress(OSError):
            path.unlink()
        return not os.path.lexists(path)
    _open_up(path)
    for root, folders, _ in os.walk(path):
        for name in folders:
            inner = Path(root, name)
            if not inner.is_symlink():
                if inner.lstat().st_dev != device:
                    return False
                _open_up(inner)
    shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def _open_up(folder: Path) -> None:
    with suppress(OSError):
        folder.chmod(stat.S_IMODE(folder.lstat().st_mode) | stat.S_IRWXU)


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
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def draft_of(path: Path) -> Path:
    """Where what takes a place is written first, beside it."""
    return path.with_name(f".{path.name}.recipe-{os.getpid()}")


def write_whole(path: Path, text: str) -> None:
    """Write a text file whole or not at all; raises OSError."""
    draft = draft_of(path)
    with removed_afterwards(draft):
        with draft.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
