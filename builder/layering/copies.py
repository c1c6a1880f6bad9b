"""Files and folders copied from a tree of somebody else's to a place below another: links come last."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from .tree import (
    FOLDER,
    LINK,
    NEW,
    OTHER,
    Entry,
    TreeError,
    both_ways,
    create,
    exchanged,
    folder,
    open_file,
    open_folder,
    parts_of,
)

BLOCK = 1 << 20


def copy(
    source: Path,
    root: Path,
    path: str,
    *,
    skip: Callable[[Entry], bool] = lambda _: False,
    check: Callable[[Entry], None] = lambda _: None,
) -> None:
    """Copy a folder or a file with modes and times to a place below `root`; raises OSError.

    `check` sees every entry before it is copied. Links come last: nothing is written through them. What is neither a
    file, a folder nor a link is refused.
    """
    if not stat.S_ISDIR(os.lstat(source).st_mode):
        with folder(source.parent) as at:
            _copy_file(open_file(source.name, at, str(source)), create(root, path))
        return
    links, modes = list[tuple[str, str]](), list[tuple[str, os.stat_result]]()
    with folder(source) as top, folder(root, path, make=0o700) as base:
        modes.append(("", os.fstat(top)))
        last, at = "", os.dup(base)
        try:
            for entry, left in both_ways(top):
                if left:
                    continue
                if skip(entry):
                    entry.enter = False
                    continue
                check(entry)
                whole = entry.path
                above = whole[: -len(entry.name)]
                if entry.kind == LINK:
                    links.append((whole, entry.target()))
                elif entry.kind == OTHER:
                    raise TreeError(errno.EINVAL, "it is neither a file, a folder nor a link", whole)
                else:
                    if above != last:
                        at, last = exchanged(at, _descend(base, above)), above
                    if entry.kind == FOLDER:
                        os.mkdir(entry.name, 0o700, dir_fd=at)
                        modes.append((whole, entry.stat()))
                    else:
                        _copy_file(entry.open(), os.open(entry.name, NEW, 0o600, dir_fd=at))
            for whole, target in links:
                at = exchanged(at, _descend(base, whole.rpartition("/")[0]))
                os.symlink(target, whole.rpartition("/")[2], dir_fd=at)
            for whole, noted in reversed(modes):
                at = exchanged(at, _descend(base, whole))
                _like(at, noted)
        finally:
            os.close(at)


def _descend(base: int, path: str) -> int:
    here = os.dup(base)
    for name in parts_of(path):
        here = exchanged(here, open_folder(name, here, path))
    return here


def _copy_file(source: int, target: int) -> None:
    with open(source, "rb", buffering=0) as old, open(target, "wb", buffering=0) as new:
        pour(old.fileno(), new.fileno())
        _like(new.fileno(), os.fstat(old.fileno()))


def _like(handle: int, noted: os.stat_result) -> None:
    os.fchmod(handle, stat.S_IMODE(noted.st_mode) & 0o777)
    os.utime(handle, ns=(noted.st_atime_ns, noted.st_mtime_ns))


def pour(source: int, target: int) -> None:
    """Copy what is left of one open file to another; raises OSError."""
    try:
        while os.sendfile(target, source, None, BLOCK * 64):  # None: from where it stands
            pass
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
        while block := os.read(source, BLOCK):
            with open(target, "wb", closefd=False, buffering=0) as file:
                while block:
                    block = block[file.write(block) or 0 :]
