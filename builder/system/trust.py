"""The owner of a plan folder, checked before anything in it is trusted, written or run.

A folder, or a file in it, that belongs to another user or is writable for everybody is refused without `--trust`. One
that a group may write, as project folders on clusters are, is accepted with a note. Links below the folder are not
followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from builder.model.finding import ConfigError, Finding, Location
from builder.sif.bounded import BoundsError, format_bound
from builder.sif.tree import open_file, open_folder, split_path

FIX = "look at what is in it, then add --trust; or build in a folder of your own with -o"

COPY = "look at what is in it, then copy it to a folder of your own"  # for commands without the option


@dataclass(kw_only=True)
class TrustSettings:
    """The user's choice: `--trust` or not, and the function that prints notes."""

    trusted: bool = False
    say: Callable[[str], None] | None = None
    reported: set[Path] = field(default_factory=set)

    @property
    def fix(self) -> str:
        """What makes a command accept a folder of another user: only one with the option has set `say`."""
        return FIX if self.say is not None else COPY


TRUST = TrustSettings()  # one for the process: there is one user, and one command line


@contextmanager
def read_to_show() -> Iterator[None]:
    """Read plan folders of others, too, as long as the block lasts: what is in them is only shown."""
    before, TRUST.trusted = TRUST.trusted, True
    try:
        yield
    finally:
        TRUST.trusted = before


def mark_as_own(folder: Path) -> None:
    """Record a folder that this process has just made: no note about its group is needed."""
    TRUST.reported.add(folder.resolve())


def check_folder(folder: Path) -> None:
    """Raise ConfigError if a plan folder, or anything in it, is another user's or leads elsewhere.

    Checks its files and those of its folders: scripts, records, logs, results. For a folder that does not exist yet,
    the folders above are checked, in which it could be replaced.
    """
    folder = folder.resolve()
    for above in folder.parents:
        _check_above(above)
    with suppress(FileNotFoundError, NotADirectoryError):
        _check(folder.stat(), folder, what="plan folder")
        for path in sorted(folder.iterdir()):
            _check_entry(path, folder)
            if path.is_dir() and not path.is_symlink():
                with suppress(PermissionError):
                    for inner in path.iterdir():
                        _check_entry(inner, folder)


def _check_above(folder: Path) -> None:
    with suppress(OSError):
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and not TRUST.trusted:
            message = f"every user of this machine may write '{folder}', and put another folder in the plan's place"
            at = Location(file=str(folder))
            raise ConfigError(Finding(code="folder-foreign", message=message, at=at, fix=TRUST.fix))


def _check_entry(path: Path, folder: Path) -> None:
    with suppress(FileNotFoundError):
        found = path.lstat()
        if not stat.S_ISLNK(found.st_mode):
            _check(found, path, what="folder" if stat.S_ISDIR(found.st_mode) else "file")
            return
        target = Path(os.path.normpath(path.parent / path.readlink()))
        if not (target.is_relative_to(folder) or is_published(target, folder)) and not TRUST.trusted:
            raise link_error(path)


def is_published(target: Path, folder: Path) -> bool:
    """Whether a path is the image of a plan folder, or the one that failed its smoke test."""
    name = folder.name.removesuffix(".plan")
    images = [folder.parent / f"{name}{ending}" for ending in ("", ".sif", ".failed", ".sif.failed")]
    return any(target in (path, path.resolve()) for path in images)


def read_below(folder: Path, name: str, *, limit: int) -> bytes:
    """Read a file below a plan folder; every part of its path has to be ours and not a link.

    Raises ConfigError for what is another user's, ValueError for more than `limit` bytes, and OSError.
    """
    with os.fdopen(open_below(folder, name), "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise BoundsError(f"it is larger than {format_bound(limit)}")
    return content


def open_below(folder: Path, name: str) -> int:
    """Open an ordinary file below a plan folder for reading, as `read_below` does; raises ConfigError and OSError."""
    *parents, last = split_path(name)
    handle, path = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), folder
    try:
        _check(os.fstat(handle), path, what="plan folder")
        for part in parents:
            path = path / part
            inner = open_folder(part, handle, name)
            os.close(handle)
            handle = inner
            _check(os.fstat(handle), path, what="folder")
        found = open_file(last, handle, name)
    finally:
        os.close(handle)
    try:
        _check(os.fstat(found), path / last, what="file")
    except BaseException:
        os.close(found)
        raise
    return found


def _check(found: os.stat_result, path: Path, *, what: str) -> None:
    whose = ""
    if found.st_uid not in (0, os.geteuid()):
        whose = f"belongs to another user (uid {found.st_uid})"
    elif found.st_mode & stat.S_IWOTH:
        whose = "may be written by every user of this machine"
    if whose and not TRUST.trusted:
        message = f"the {what} '{path}' {whose}: what is in it decides which files are written and what is run"
        raise ConfigError(Finding(code="folder-foreign", message=message, at=Location(file=str(path)), fix=TRUST.fix))
    # A group of the same number as its user is that user's own.
    group = found.st_mode & stat.S_IWGRP and found.st_gid != found.st_uid and what == "plan folder"
    if group and TRUST.say is not None and path not in TRUST.reported:
        TRUST.reported.add(path)
        TRUST.say(f"note: the group {found.st_gid} may write the plan folder '{path}': its members decide what is run")


def link_error(path: Path) -> ConfigError:
    """Return the error for a foreign link in a plan folder."""
    message = f"'{path}' is a link that leads out of the plan folder"
    fix = "remove it, or add --trust after a look" if TRUST.say is not None else "remove it"
    return ConfigError(Finding(code="folder-link", message=message, at=Location(file=str(path)), fix=fix))
