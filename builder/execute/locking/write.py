"""The files of locks on disk: whole or not at all, the index last. No link that a recipe's folder holds is followed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from builder.execute.locking.site import Locked
from builder.execute.tree import draft_of
from builder.layering import tree
from builder.model.finding import ConfigError, Finding, Place, ToolError
from builder.model.lock import Lock
from builder.model.lock_files import PIXI, PYLOCK, Entry, index_text, read_index, read_lock, site_folder


def write_locks(index: Path, locked: Iterable[Locked], *, tool: str) -> None:
    """Write the locks of some sites; those of other sites stay. Raises ToolError where that cannot be."""
    new = {item.lock.site: item for item in locked}
    top = index.parent.resolve()
    locks, files = _kept(index, without=set(new))
    for site, item in new.items():
        locks[site] = item.lock
        files[site] = (_digest(item.conda), _digest(item.pip))
    try:
        for site, item in new.items():
            folder = _below(index, site)
            for name, text in ((PIXI, item.conda), (PYLOCK, item.pip)):
                _replace(top, folder / name, text)
            tree.remove_empty(top, str(folder))
        _replace(top, Path(index.name), index_text(locks, files=files, tool=tool))
    except OSError as error:
        at = Place(file=str(index.parent / (error.filename or index.name)))
        message = f"the lock cannot be written: {(error.strerror or str(error)).lower()}"
        odd = isinstance(error, tree.TreeError)
        fix = "look where it leads, remove it, and lock again" if odd else "check the rights and the space"
        raise ToolError(Finding(code="lock-write", message=message, at=at, fix=fix)) from None


def _kept(index: Path, *, without: set[str]) -> tuple[dict[str, Lock], dict[str, tuple[str, str]]]:
    """The locks of other sites; one that is faulty is left out, with its files: it could not be used either."""
    entries: Mapping[str, Entry] = {}
    with suppress(ConfigError):
        found = read_index(index)
        entries = found.sites if found else {}
    locks, files = {}, {}
    for site, entry in entries.items():
        if site in without:
            continue
        with suppress(ConfigError):
            lock = read_lock(index, site)
            if lock is not None:
                locks[site], files[site] = lock, (entry.conda, entry.pip)
                continue
        tree.remove(_below(index, site), below=index.parent.resolve())
    return locks, files


def _below(index: Path, site: str) -> Path:
    """The folder of a site's files, from the one that the index is in."""
    return site_folder(index, site).relative_to(index.parent)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def _replace(top: Path, path: Path, text: str) -> None:
    """Put a file below a folder in its place at once; without text it goes."""
    if not text:
        tree.remove(path, below=top)
        return
    draft = draft_of(path)
    try:
        tree.write(top, str(draft), text.encode())
        tree.move(top, str(draft), top, str(path))
    finally:
        tree.remove(draft, below=top)
