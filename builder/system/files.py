"""The program's own files and folders: written atomically, removed afterwards."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from builder.sif import tree

remove_tree = tree.remove


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


def write_atomic(path: Path, text: str, *, keep: bool = False) -> None:
    """Write a text file atomically; raises OSError.

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
