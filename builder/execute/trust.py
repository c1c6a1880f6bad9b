"""Whose a plan folder is, asked before anything in it is believed, written or run.

A folder, or a file in it, of another user or writable for everybody is refused unless the user has said `--trust`. One
that a group may write, as the folders of projects on clusters are, is accepted, and that is said once. Links below the
folder are not followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from builder.layering.bounded import BoundsError
from builder.model.finding import ConfigError, Finding, Place

FIX = "look at what is in it, then add --trust; or build in a folder of your own with -o"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(kw_only=True)
class Word:
    """What the user of this process has said: `--trust` or not, and where what is worth knowing goes."""

    trusted: bool = False
    say: Callable[[str], None] | None = None
    told: set[Path] = field(default_factory=set)


WORD = Word()  # of the whole process: there is one user, and one command line


def check_folder(folder: Path) -> None:
    """Raise ConfigError when a plan folder that exists is another user's, or writable for everybody."""
    with suppressed_missing():
        handle = _open(folder, os.O_DIRECTORY)
        try:
            _check(os.fstat(handle), folder, what="plan folder")
        finally:
            os.close(handle)


def read_below(folder: Path, name: str, *, limit: int) -> bytes:
    """The bytes of a file below a plan folder, all of which is ours and none of it a link.

    Raises ConfigError for what is another user's, ValueError for what is no regular file of at most `limit` bytes, and
    OSError.
    """
    handle, path = open_below(folder, name), folder / name
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise BoundsError("it is not a regular file")
        _check(found, path, what="file")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise BoundsError(f"it is larger than {limit >> 20} MiB")
    return content


def open_below(folder: Path, name: str) -> int:
    """Open a file below a plan folder for reading, no component of it a link; raises ConfigError and OSError."""
    *parents, last = name.split("/")
    handle, path = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), folder
    try:
        _check(os.fstat(handle), path, what="plan folder")
        for part in parents:
            path = path / part
            inner = _open(path, os.O_DIRECTORY, name=part, within=handle)
            os.close(handle)
            handle = inner
            _check(os.fstat(handle), path, what="folder")
        return _open(path / last, name=last, within=handle)
    finally:
        os.close(handle)


def check_links(folder: Path, name: str) -> None:
    """Raise ConfigError where a component of a path below a plan folder is a link; what is missing is none."""
    path = folder
    for part in name.split("/"):
        path = path / part
        if path.is_symlink():
            raise _leads_out(path)


@contextmanager
def suppressed_missing() -> Iterator[None]:
    """What is not there belongs to nobody else."""
    try:
        yield
    except FileNotFoundError:
        return


def _open(path: Path, more: int = 0, *, name: str = "", within: int | None = None) -> int:
    flags = _OPEN | more if within is not None else (_OPEN | more) & ~os.O_NOFOLLOW
    try:
        return os.open(name or path, flags, dir_fd=within)
    except OSError:
        if within is not None and path.is_symlink():
            raise _leads_out(path) from None
        raise


def _check(found: os.stat_result, path: Path, *, what: str) -> None:
    whose = ""
    if found.st_uid not in (0, os.geteuid()):
        whose = f"belongs to another user (uid {found.st_uid})"
    elif found.st_mode & stat.S_IWOTH:
        whose = "may be written by every user of this machine"
    if whose and not WORD.trusted:
        message = f"the {what} '{path}' {whose}: what is in it decides which files are written and what is run"
        raise ConfigError(Finding(code="folder-foreign", message=message, at=Place(file=str(path)), fix=FIX))
    # A group of the same number as its user is that user's own.
    group = found.st_mode & stat.S_IWGRP and found.st_gid != found.st_uid and what == "plan folder"
    if group and WORD.say is not None and path not in WORD.told:
        WORD.told.add(path)
        WORD.say(f"note: the group {found.st_gid} may write the plan folder '{path}': its members decide what is run")


def _leads_out(path: Path) -> ConfigError:
    message = f"'{path}' is a link, and links in a plan folder are not followed"
    fix = "remove it, or write the plan folder again with `recipe plan`"
    return ConfigError(Finding(code="folder-link", message=message, at=Place(file=str(path)), fix=fix))
