"""Downloads in the cache: which files are uv's and py-rattler's, by their names, and their removal.

What has another name is somebody's own file: it is never removed, and is named.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builder.layers.cache import Store
from builder.layers.cache_folders import DOWNLOADS, UV
from builder.model.finding import Finding, Location, ToolError
from builder.sif.tree import FOLDER, remove, walk

KEPT = (".lock", ".gitignore", "CACHEDIR.TAG")  # uv's marks: without bytes, and the folder is known by them
_SOURCES = "pypi|index|url|path|editable|git|html|flat-index"
# uv's folders of the versions 0.4 to 0.13, and what is in each.
_BUCKETS = {
    "archive": r"[\w-]{12,32}",
    "binaries": r"uv|ruff|ty",
    "builds": r"\.tmp\w+",
    "built-wheels": _SOURCES,
    "environments": r".+-[0-9a-f]{16}|[0-9a-f]{16}",
    "flat-index": _SOURCES,
    "git": r"db|checkouts|locks|ok",
    "interpreter": r"[0-9a-f]{16}",
    "osv": r"[\w-]+\.msgpack",
    "python": r"cpython-.*|pypy-.*|graalpy-.*|[0-9a-f]{16}.*",
    "sdists": _SOURCES,
    "simple": _SOURCES,
    "wheels": _SOURCES,
}
_DRAFT = r"\.tmp\w+|\.git|\.gitignore|\.lock|\.cache\.lock"
_REPODATA = re.compile(rf"[0-9a-f]{{8,64}}\..+|{_DRAFT}")


@dataclass(frozen=True, kw_only=True)
class Downloads:
    """The files of one program: paths to remove, their bytes, and those that are not its own."""

    own: tuple[Path, ...]
    size: int
    foreign: tuple[Path, ...]


def find_downloads(folder: Path) -> dict[str, Downloads]:
    """What the programs have downloaded into the cache, by program; reads names only, and sizes."""
    return {name: _find(folder / name, uv=name == UV) for name in DOWNLOADS if os.path.lexists(folder / name)}


def _find(part: Path, *, uv: bool) -> Downloads:
    own: list[Path] = []
    foreign: list[Path] = []
    for path in sorted(part.iterdir(), reverse=True) if _is_folder(part) else [part]:
        if uv and path.name in KEPT:
            continue
        inside = sorted(path.iterdir()) if _is_folder(path) else []
        if path == part or not (_is_bucket(path.name) if uv else path.name in ("packages", "repodata")):
            (own if re.fullmatch(_DRAFT, path.name) else foreign).append(path)
            continue
        if not _is_folder(path):
            foreign.append(path)
            continue
        strange = [one for one in inside if not _is_made_by_program(one)]
        own += [one for one in inside if one not in strange] if strange else [path]
        foreign += strange
    return Downloads(own=tuple(own), size=sum(map(_measure_bytes, own)), foreign=tuple(foreign))


def _is_bucket(name: str) -> bool:
    word, _, number = name.rpartition("-v")
    return word in _BUCKETS and number.isdigit()


def _is_made_by_program(path: Path) -> bool:
    """Whether a file in a folder of uv or py-rattler has a name and a form that this program gives."""
    name, above = path.name, path.parent.name
    if path.is_symlink():
        return False
    if re.fullmatch(_DRAFT, name):
        return True
    if above == "repodata":
        return _REPODATA.fullmatch(name) is not None
    if above == "packages":
        if not _is_folder(path):
            return re.fullmatch(r".+-[^-]+-[^-]+\.lock", name) is not None
        return (path / "info").is_dir() or path.with_name(f"{name}.lock").is_file()
    return _is_folder(path) and re.fullmatch(_BUCKETS[above.rpartition("-v")[0]], name) is not None


def remove_downloads(store: Store, found: Downloads) -> None:
    """Remove the files of one program; what is moved away first is never seen half removed."""
    with store.work_folder() as work:
        for number, path in enumerate(found.own):
            try:
                path.replace(work / str(number))
            except PermissionError:  # a folder that its owner cannot write
                remove(path)
            except FileNotFoundError:
                continue


@contextmanager
def lock_uv(folder: Path) -> Iterator[None]:
    """Hold uv's own lock, which each uv that uses the cache holds, in a container too; raises ToolError."""
    lock = folder / UV / ".lock"
    if not lock.is_file() or lock.is_symlink():  # no uv of a version with locks has used it
        yield
        return
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            message, fix = f"uv is using '{lock.parent}'", "try again when no build runs"
            finding = Finding(code="cache-in-use", message=message, at=Location(file=str(lock.parent)), fix=fix)
            raise ToolError(finding) from None
        yield


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _measure_bytes(path: Path) -> int:
    if not _is_folder(path):
        return path.lstat().st_size
    total = 0
    for entry in walk(path.resolve()):
        try:
            total += entry.stat().st_size if entry.kind != FOLDER else 0
        except OSError:
            continue
    return total
