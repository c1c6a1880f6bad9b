"""Files and folders copied from a foreign tree below another folder: links come last."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..sif.tree import (
    FOLDER,
    LINK,
    NEW,
    OTHER,
    TreeEntry,
    TreeError,
    create,
    open_file,
    open_folder,
    open_folder_below,
    replace_descriptor,
    split_path,
    walk,
    walk_both_ways,
)

BLOCK = 1 << 20


def copy(
    source: Path, root: Path, path: str, *, skip: Callable[[TreeEntry], bool] = lambda _: False,
    check: Callable[[TreeEntry], None] = lambda _: None,
) -> None:  # fmt: skip
    """Copy a folder or a file with modes and times to a place below `root`; raises OSError.

    `check` is called with every entry before it is copied. Links come last: nothing is written through them. What is
    neither a file, a folder nor a link is refused.
    """
    if not stat.S_ISDIR(os.lstat(source).st_mode):
        with open_folder_below(source.parent) as at:
            _copy_file(open_file(source.name, at, str(source)), create(root, path))
        return
    links, modes = list[tuple[str, str]](), list[tuple[str, os.stat_result]]()
    with open_folder_below(source) as top, open_folders(root) as at:
        modes.append((path, os.fstat(top)))
        at(path)
        for entry, left in walk_both_ways(top):
            if left:
                continue
            if skip(entry):
                entry.enter = False
                continue
            check(entry)
            above, place = f"{path}/{entry.above.path}" if entry.above else path, f"{path}/{entry.path}"
            if entry.kind == LINK:
                links.append((place, entry.read_target()))
            elif entry.kind == FOLDER:
                at(place)
                modes.append((place, entry.stat()))
            elif entry.kind == OTHER:
                raise TreeError(errno.EINVAL, "it is neither a file, a folder nor a link", entry.path)
            else:
                _copy_file(entry.open(), os.open(entry.name, NEW, 0o600, dir_fd=at(above)))
        for place, target in links:
            os.symlink(target, place.rpartition("/")[2], dir_fd=at(place.rpartition("/")[0]))
        for place, noted in reversed(modes):
            _copy_metadata(at(place), noted)


@contextmanager
def open_folders(root: Path) -> Iterator[Callable[[str], int]]:
    """Yield a function that returns a descriptor of a folder below `root`, which it creates if it is missing.

    The descriptor is valid until the next call. Of files in one folder only the first one opens all folders above.
    """
    with open_folder_below(root) as base:
        last: tuple[str, int] = ("", os.dup(base))

        def at(path: str) -> int:
            nonlocal last
            if path != last[0]:
                here = os.dup(base)
                last = (path, replace_descriptor(last[1], here))
                for name in split_path(path):
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o777, dir_fd=here)
                    inner = open_folder(name, here, path)
                    here = replace_descriptor(here, inner)
                    last = (path, here)
            return last[1]

        try:
            yield at
        finally:
            os.close(last[1])


def merge(source: Path, root: Path) -> None:
    """Move the files of a folder into another that may have the same folders; raises OSError."""
    with open_folders(root) as at:
        for entry in walk(source):
            if entry.kind == FOLDER:
                at(entry.path)
            else:
                above = entry.above.path if entry.above else ""
                os.replace(entry.name, entry.name, src_dir_fd=entry.at, dst_dir_fd=at(above))


def set_modes(root: Path, mode_of: Callable[[str], int]) -> None:
    """Give each folder below another the mode for its path, and that folder the mode for ""; raises OSError."""
    with open_folder_below(root) as top:
        for entry, left in walk_both_ways(top):
            if left:
                inner = open_folder(entry.name, entry.at, entry.name)
                os.fchmod(inner, mode_of(entry.path))
                os.close(inner)
        os.fchmod(top, mode_of(""))


def _copy_file(source: int, target: int) -> None:
    with open(source, "rb", buffering=0) as old, open(target, "wb", buffering=0) as new:
        copy_bytes(old.fileno(), new.fileno())
        _copy_metadata(new.fileno(), os.fstat(old.fileno()))


def _copy_metadata(handle: int, noted: os.stat_result) -> None:
    os.fchmod(handle, stat.S_IMODE(noted.st_mode) & 0o777)
    os.utime(handle, ns=(noted.st_atime_ns, noted.st_mtime_ns))


def copy_bytes(source: int, target: int) -> None:
    """Copy the rest of one open file to another; raises OSError."""
    try:
        while os.sendfile(target, source, None, BLOCK * 64):  # None: from its position
            pass
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise
        while block := os.read(source, BLOCK):
            with open(target, "wb", closefd=False, buffering=0) as file:
                while block:
                    block = block[file.write(block) or 0 :]
