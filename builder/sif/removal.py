"""Removes what is below folders with foreign content, whatever its modes; no link in them is ever followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .tree import FOLDER, LISTED, TreeError, open_folder, open_folder_below, split_path, walk_both_ways


def remove(path: Path, *, below: Path | None = None) -> bool:
    """Remove a file, a link or a folder with all that is in it, whatever its modes; False when something is left.

    Nothing is removed where a file system is mounted inside. With `below` the path is one below that folder, which is
    not left through a link: what is behind one counts as gone.
    """
    root, inside = (path.parent, "") if below is None else (below, str(path.parent))
    try:
        with _open_parent(root, inside, trusted=below is None) as at:
            return _remove(path.name, at)
    except (FileNotFoundError, NotADirectoryError, TreeError):
        return True
    except OSError:
        return False


@contextmanager
def _open_parent(root: Path, inside: str, *, trusted: bool) -> Iterator[int]:
    if not trusted:
        with open_folder_below(root, inside) as at:
            yield at
        return
    at = os.open(root, LISTED & ~os.O_NOFOLLOW)
    try:
        yield at
    finally:
        os.close(at)


def remove_empty(root: Path, path: str) -> None:
    """Remove a folder that holds nothing."""
    above, _, name = "/".join(split_path(path)).rpartition("/")
    with suppress(OSError), open_folder_below(root, above) as at:
        os.rmdir(name, dir_fd=at)


def _remove(name: str, at: int) -> bool:
    try:
        os.unlink(name, dir_fd=at)
        return True
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EPERM):
            return False
    top = open_folder(name, at, name, open_up=True)
    try:
        if _has_mount_below(top):
            return False
        with suppress(OSError):
            os.fchmod(top, stat.S_IMODE(os.fstat(top).st_mode) | stat.S_IRWXU)
        _remove_content(top)
        os.rmdir(name, dir_fd=at)
    except OSError:
        return False
    finally:
        os.close(top)
    return True


def _remove_content(top: int) -> None:
    for entry, left in walk_both_ways(top, open_up=True):
        with suppress(OSError):
            if left:
                os.rmdir(entry.name, dir_fd=entry.at)
            elif entry.kind != FOLDER:
                entry.unlink()


def _has_mount_below(top: int) -> bool:
    """Whether something is mounted below a folder, also a folder of the same file system."""
    place = os.fsencode(os.readlink(f"/proc/self/fd/{top}")).rstrip(b"/") + b"/"
    with open("/proc/self/mountinfo", "rb") as file:
        points = [line.split(b" ")[4] for line in file]
    for octal, char in ((rb"\040", b" "), (rb"\011", b"\t"), (rb"\012", b"\n"), (rb"\134", b"\\")):
        points = [point.replace(octal, char) for point in points]
    return any(point.startswith(place) for point in points)
