"""Works below folders with foreign content: no link in them is ever followed.

A container step, a base image, a package or a recipe's folder may hold links to any place of this machine. Here every
name is opened from the folder that it is in, never by its whole path, and never through a link; that holds also while
another process swaps a folder for a link. `root` is a folder whose own path is ours; `path` names what is below it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe would keep who opens it waiting.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER, LINK, FILE, OTHER = stat.S_IFDIR, stat.S_IFLNK, stat.S_IFREG, 0


def sync(path: Path) -> None:
    """Flush a file or folder to the disk; raises OSError for a file."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(number)
    except OSError:
        if os.path.isfile(path):
            raise
    finally:
        os.close(number)


class TreeError(OSError):
    """A path or a link below a tree that leads out of it, or is of another kind than expected."""


@dataclass(slots=True)
class TreeEntry:
    """One name found by a walk; `at` is its folder, open until the walk moves on."""

    name: str
    kind: int
    above: TreeEntry | None
    at: int = -1
    enter: bool = True  # whether the walk enters this folder

    @property
    def path(self) -> str:
        """The path below the folder where the walk began."""
        names, entry = [self.name], self.above
        while entry is not None:
            names.append(entry.name)
            entry = entry.above
        return "/".join(reversed(names))

    def stat(self) -> os.stat_result:
        """What the system knows of it, of a link itself."""
        return os.stat(self.name, dir_fd=self.at, follow_symlinks=False)

    def read_target(self) -> str:
        """Where a link leads."""
        return os.readlink(self.name, dir_fd=self.at)

    def open(self) -> int:
        """A descriptor of an ordinary file; raises TreeError where it is something else by now."""
        return open_file(self.name, self.at, self.path)

    def sync(self) -> None:
        """Have an ordinary file on the disk."""
        handle = self.open()
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def open_up(self) -> int | None:
        """Give the owner the rights to read a file or a folder; returns its mode where it lacked them, else None."""
        needed = {FOLDER: stat.S_IRWXU, FILE: stat.S_IRUSR}.get(self.kind, 0)
        mode = stat.S_IMODE(self.stat().st_mode)
        if mode & needed == needed:
            return None
        _add_rights(self.name, self.at, needed)
        return mode

    def set_time(self, seconds: int) -> None:
        """Set both times, of a link itself."""
        os.utime(self.name, (seconds, seconds), dir_fd=self.at, follow_symlinks=False)

    def unlink(self) -> None:
        """Remove a file or a link."""
        os.unlink(self.name, dir_fd=self.at)


def split_path(path: str) -> list[str]:
    """The names in a path; raises TreeError for one that can lead upwards."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise TreeError(errno.EINVAL, "the path leads out of its folder", path)
    return parts


def can_leave_tree(path: str, target: str) -> bool:
    """Whether a link at `path` could lead out of the tree: it is absolute, goes up too far, or up behind a name.

    Behind a name `..` leads to wherever another link points. Where no link leaves in this sense, no chain of them does.
    """
    words = [word for word in target.split("/") if word not in ("", ".")]
    ups = next((number for number, word in enumerate(words) if word != ".."), len(words))
    return target.startswith("/") or ".." in words[ups:] or ups >= len(split_path(path))


@contextmanager
def open_folder_below(root: Path, path: str = "", *, make: int | None = None) -> Iterator[int]:
    """A descriptor of a folder below another; with `make` those that are missing get this mode.

    Raises TreeError where a part of the path is a link or no folder, FileNotFoundError where it is missing.
    """
    here = os.open(root, LISTED)
    try:
        for name in split_path(path):
            if make is not None:
                with suppress(FileExistsError):
                    os.mkdir(name, make, dir_fd=here)
            inner = open_folder(name, here, path)
            os.close(here)
            here = inner
        yield here
    finally:
        os.close(here)


def open_folder(name: str, at: int, path: str, *, open_up: bool = False) -> int:
    """A descriptor of a folder in an open one; with `open_up` one that its owner may not even read gets all rights."""
    try:
        return os.open(name, LISTED, dir_fd=at)
    except NotADirectoryError:
        raise TreeError(errno.ELOOP, f"'{name}' is a link or a file where a folder should be", path) from None
    except PermissionError:
        if not open_up:
            raise
        _add_rights(name, at, stat.S_IRWXU)
        return os.open(name, LISTED, dir_fd=at)


def _add_rights(name: str, at: int, rights: int) -> None:
    """Give the owner rights to a file or a folder that cannot even be opened; raises TreeError for a link."""
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:  # of the descriptor itself, even if its name is another one's by now
        mode = os.fstat(handle).st_mode
        if stat.S_ISLNK(mode):
            raise TreeError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(mode) | rights)
    finally:
        os.close(handle)


def open_file(name: str, at: int, path: str) -> int:
    """A descriptor of an ordinary file in an open folder; raises TreeError for anything else."""
    try:
        handle = os.open(name, READ, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise TreeError(errno.ELOOP, "it is no ordinary file", path) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise TreeError(errno.ELOOP, "it is no ordinary file", path)
    return handle


# --- one file --------------------------------------------------------------------------------------------------------


def stat_path(root: Path, path: str) -> os.stat_result | None:
    """The status of a path, of a link itself; None where nothing is there without following a link."""
    above, _, name = "/".join(split_path(path)).rpartition("/")
    with suppress(FileNotFoundError, TreeError), open_folder_below(root, above) as at:
        return os.stat(name or ".", dir_fd=at, follow_symlinks=False)
    return None


def read(root: Path, path: str, *, limit: int) -> bytes:
    """The content of an ordinary file, at most so many bytes; raises OSError, TreeError for a link or a pipe."""
    above, _, name = "/".join(split_path(path)).rpartition("/")
    with open_folder_below(root, above) as at, open(open_file(name, at, path), "rb") as file:
        return file.read(limit)


def keep(root: Path, path: str) -> int:
    """A descriptor of a file for reading and writing, as it is or made; raises TreeError for what leads elsewhere.

    A file with a second name may belong to another place.
    """
    above, _, name = "/".join(split_path(path)).rpartition("/")
    with open_folder_below(root, above) as at:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.open(name, flags, 0o644, dir_fd=at)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise TreeError(errno.ELOOP, "it is no ordinary file", path) from None
            raise
    noted = os.fstat(handle)
    if stat.S_ISFIFO(noted.st_mode) or noted.st_nlink > 1:
        os.close(handle)
        raise TreeError(errno.ELOOP, "it is no file of its own", path)
    return handle


def create(root: Path, path: str, *, mode: int = 0o666) -> int:
    """A descriptor of a new file that takes the place of a file or a link; folders on the way are made.

    A file with other names, as in a cache, keeps its content under these.
    """
    above, _, name = "/".join(split_path(path)).rpartition("/")
    with open_folder_below(root, above, make=0o777) as at:
        return create_in(at, name, mode=mode)


def create_in(at: int, name: str, *, mode: int = 0o666) -> int:
    """The same in an open folder."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=at)
    return os.open(name, NEW, mode, dir_fd=at)


def write(root: Path, path: str, content: bytes, *, mode: int | None = None) -> None:
    """Write a file as `create` makes it, with exactly this mode, or what the umask leaves of 0666; raises OSError."""
    with open(create(root, path), "wb") as file:
        file.write(content)
        if mode is not None:
            os.fchmod(file.fileno(), mode)


def link(root: Path, path: str, target: str) -> None:
    """Put a link in the place of a file or a link; raises OSError."""
    above, _, name = "/".join(split_path(path)).rpartition("/")
    with open_folder_below(root, above, make=0o777) as at:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=at)
        os.symlink(target, name, dir_fd=at)


def move(root: Path, path: str, to_root: Path, to: str) -> None:
    """Move a path of one tree to a path of another, where it replaces a file or a link; raises OSError."""
    above, _, name = "/".join(split_path(path)).rpartition("/")
    to_above, _, to_name = "/".join(split_path(to)).rpartition("/")
    with open_folder_below(root, above) as at, open_folder_below(to_root, to_above, make=0o777) as to_at:
        os.replace(name, to_name, src_dir_fd=at, dst_dir_fd=to_at)


# --- many files ------------------------------------------------------------------------------------------------------


def walk(root: Path, path: str = "") -> Iterator[TreeEntry]:
    """Everything below a folder, a folder before what is in it; nothing where there is no folder, as behind a link.

    Other file systems that are mounted there are passed over. Raises OSError.
    """
    if path and not is_folder(root, path):
        return
    with open_folder_below(root, path) as top:
        yield from (entry for entry, left in walk_both_ways(top) if not left)


def is_folder(root: Path, path: str) -> bool:
    """Whether the path is a folder, with no link on the way."""
    noted = stat_path(root, path)
    return noted is not None and stat.S_ISDIR(noted.st_mode)


def walk_both_ways(top: int, *, open_up: bool = False) -> Iterator[tuple[TreeEntry, bool]]:
    """Every entry, a folder a second time (True) when all that is in it was given.

    However deep the tree is, two folders are open: the way back leads through `..`, which must be where it came from.
    """
    device = os.fstat(top).st_dev
    here, above = os.dup(top), list[tuple[TreeEntry, tuple[int, int]]]()
    todo = [_list_entries(here, None)]
    try:
        while todo:
            if not todo[-1]:
                todo.pop()
                if above:
                    entry, known = above.pop()
                    entry.at = here = _go_back(here, known, entry)
                    yield entry, True
                continue
            entry = todo[-1].pop()
            entry.at = here
            yield entry, False
            if entry.kind != FOLDER or not entry.enter:
                continue
            try:
                inner = open_folder(entry.name, here, entry.name, open_up=open_up)
            except OSError as error:
                if open_up or error.errno == errno.ENOENT:  # what cannot be removed stays; the caller has removed it
                    continue
                raise
            stood, goes = os.fstat(here), os.fstat(inner)
            if goes.st_dev != device:
                os.close(inner)
                continue
            if open_up and goes.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.fchmod(inner, stat.S_IMODE(goes.st_mode) | stat.S_IRWXU)
            above.append((entry, (stood.st_dev, stood.st_ino)))
            here = replace_descriptor(here, inner)
            todo.append(_list_entries(here, entry))
    finally:
        os.close(here)


def _go_back(here: int, known: tuple[int, int], entry: TreeEntry) -> int:
    """Leave a folder for `..`; raises TreeError where that is not the one that the walk came from."""
    above = os.open("..", LISTED, dir_fd=here)
    back = os.fstat(above)
    if (back.st_dev, back.st_ino) != known:
        os.close(above)
        raise TreeError(errno.EAGAIN, "the folder was moved while it was read", entry.path)
    return replace_descriptor(here, above)


def replace_descriptor(old: int, new: int) -> int:
    """Close one descriptor for another."""
    os.close(old)
    return new


def _list_entries(at: int, above: TreeEntry | None) -> list[TreeEntry]:
    """What is in a folder, in an order to be taken from the end: files come before folders."""
    with os.scandir(at) as items:
        found = [TreeEntry(item.name, _find_kind(item), above) for item in items]
    return sorted(found, key=lambda entry: (entry.kind != FOLDER, entry.name))


def _find_kind(item: os.DirEntry[str]) -> int:
    if item.is_symlink():
        return LINK
    if item.is_dir(follow_symlinks=False):
        return FOLDER
    return FILE if item.is_file(follow_symlinks=False) else OTHER
