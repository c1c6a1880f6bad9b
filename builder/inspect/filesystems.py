"""The files that say what an image holds, out of a squashfs, an archive's layer or a folder; sizes are bounded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

from builder.inspect import package_databases as databases
from builder.inspect.package_databases import RPM, WANTED, read_rpm_packages
from builder.model.contents import InstalledPackage, TorchBuild
from builder.model.text import sanitize
from builder.sif.archive import ArchiveError, Stream, read_members
from builder.sif.bounded import BoundsError, read_file
from builder.sif.reader import File, Reader, drop_surrogates
from builder.sif.squashfs import FILE, SquashfsError

MOST = 20_000  # packages of one file
ALL = 100_000  # of an image


@dataclass(frozen=True, kw_only=True)
class Statement:
    """All of it; most files say one thing only."""

    packages: tuple[InstalledPackage, ...] = ()
    torch: TorchBuild | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    release: Mapping[str, str] | None = None
    base: str = ""
    unknown: str = ""


@dataclass(kw_only=True)
class StatementReader:
    """Reads the files of one image, until they list more packages than any image has."""

    left: int = ALL

    def read(self, path: str, content: bytes | bytearray) -> Statement:
        """Read a wanted file."""
        found = read_statement(path, content if self.left > 0 else None)
        self.left -= len(found.packages)
        return found


def read_statement(path: str, content: bytes | bytearray | None) -> Statement:
    """Read a wanted file; None is one that could not be read."""
    package = databases.parse_conda_package(path, content) or databases.parse_pip_package(path, content)
    one = (package,) if package is not None and package.name else ()
    if content is None:
        return Statement(packages=one, unknown=f"{sanitize(path, limit=200)} could not be read")
    if one:
        return Statement(packages=one)
    if databases.DPKG.fullmatch(path):
        found = tuple(islice(databases.parse_deb_packages(content), MOST + 1))
        more = f"{sanitize(path, limit=200)} lists more than {MOST} packages" if len(found) > MOST else ""
        return Statement(packages=found[:MOST], unknown=more)
    if databases.RPM.fullmatch(path):
        rpms = read_rpm_packages(content) if path.endswith(".sqlite") else None
        unread = f"packages of rpm: {path} is not a database that can be read without rpm"
        return Statement(packages=rpms or (), unknown=unread if rpms is None else "")
    if path == databases.APK:
        return Statement(unknown="packages of apk (Alpine) are not listed")
    if path == databases.LABELS:
        return Statement(labels=databases.parse_labels(databases.parse_object(content)))
    if path == databases.RECORD:
        return Statement(base=databases.to_word(databases.parse_object(content).get("base")))
    if path in databases.RELEASES:
        return Statement(release=databases.release(content))
    return Statement(torch=databases.parse_torch_build(path, content) if content else None)


FILE_LIMIT = 16 * 1024 * 1024  # bytes; dpkg's status of a full desktop has 5 MiB, conda's record of Python 1
RPM_LIMIT = 160 * 1024 * 1024  # that of a full desktop has 100
TOTAL_LIMIT = 512 * 1024 * 1024
UNPACKED_LIMIT = 2 * 1024 * 1024 * 1024  # bytes of the blocks in which these files are; of 2800 packages 0.3 GB
FILES = 50_000
ROOT = ("usr/", "bin/", "opt/", "var/lib/")
HIDDEN = 200_000  # paths of lower layers


class LayerTree(Protocol):
    """One layer: the wanted files with their sizes in bytes, and the paths that it hides in the layers below."""

    @property
    def files(self) -> Mapping[str, int]: ...

    @property
    def hidden(self) -> frozenset[str]: ...

    def read(self, paths: Sequence[str]) -> Mapping[str, Statement]: ...


def is_wanted(path: str, size: int) -> bool:
    """Say whether a file is one of those we read, and not too large for one."""
    return size <= (RPM_LIMIT if RPM.fullmatch(path) else FILE_LIMIT) and WANTED.fullmatch(path) is not None


@dataclass(kw_only=True)
class SquashfsTree:
    """A squashfs at an offset of a file."""

    image: Path
    offset: int
    files: dict[str, int] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    reader: StatementReader = field(default_factory=StatementReader)
    _found: dict[str, File] = field(default_factory=dict)

    def list(self) -> None:
        """List the wanted files; raises SquashfsError and OSError."""
        hidden: set[str] = set()
        with self.image.open("rb") as source:
            for file in Reader(source, offset=self.offset).list_files():
                if file.whiteout:
                    hidden.add(file.path[1:])
                elif file.kind == FILE and file.size and (file.path.endswith(_ENDS) or _STATUS in file.path):
                    path = drop_surrogates(file.path[1:])
                    if len(self.files) < FILES and is_wanted(path, file.size):
                        self.files[path], self._found[path] = file.size, file
        self.hidden = frozenset(hidden)

    def read(self, paths: Sequence[str]) -> Mapping[str, Statement]:
        """Read files; what cannot be read is left out."""
        found: dict[str, Statement] = {}
        with self.image.open("rb") as source:
            squashfs = Reader(source, offset=self.offset)
            for path in paths:
                if squashfs.unpacked > UNPACKED_LIMIT:
                    found[path] = read_statement(path, b"")
                    continue
                with suppress(SquashfsError):
                    found[path] = self.reader.read(path, squashfs.read(self._found[path], limit=self.files[path]))
        return found


# Every path of a wanted file ends with one of these or holds the last: a search for them is faster than one pattern.
_ENDS = (
    ".dist-info/METADATA", ".egg-info", ".egg-info/PKG-INFO", "/torch/version.py", ".json", "/dpkg/status",
    "/rpmdb.sqlite", "/Packages", "/Packages.db", "/apk/db/installed", "/os-release",
)  # fmt: skip
_STATUS = "/dpkg/status.d/"


@dataclass(kw_only=True)
class ArchiveTree:
    """A layer of a docker-archive: a tar file inside a tar file, perhaps compressed."""

    files: dict[str, int] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    reader: StatementReader = field(default_factory=StatementReader)
    statements: dict[str, Statement] = field(default_factory=dict)
    is_root: bool = False  # it has a folder that a root file system has

    def take(self, layer: Stream, *, room: int) -> None:
        """Read all that is wanted while passing by; raises ArchiveError and OSError."""
        hidden: set[str] = set()
        for member, content in read_members(layer):
            path = member.name.removeprefix("./").lstrip("/")
            folder, _, name = path.rpartition("/")
            self.is_root = self.is_root or f"{path}/".startswith(ROOT)
            if name == ".wh..wh..opq":
                hidden.add(f"{folder}/")
            elif name.startswith(".wh."):
                hidden.add(f"{folder}/{name[4:]}".lstrip("/"))
            elif member.regular and len(self.files) < FILES and is_wanted(path, member.size) and member.size <= room:
                self.statements[path] = self.reader.read(path, content.read(member.size))
                self.files[path] = member.size
                room -= member.size
            if len(hidden) > HIDDEN:
                raise ArchiveError(f"it hides more than {HIDDEN} paths")
        self.hidden = frozenset(hidden)

    def read(self, paths: Sequence[str]) -> Mapping[str, Statement]:
        """Give what was read."""
        return {path: self.statements[path] for path in paths if path in self.statements}


@dataclass(kw_only=True)
class FolderTree:
    """A folder that is a root file system, or a part of one; links are not followed."""

    root: Path
    files: dict[str, int] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    reader: StatementReader = field(default_factory=StatementReader)

    def list(self) -> bool:
        for folder, _, names in os.walk(self.root):
            below = os.path.relpath(folder, self.root)
            for name in names:
                path = name if below == "." else f"{below}/{name}"
                full = Path(folder, name)
                if WANTED.fullmatch(path) and not full.is_symlink() and full.is_file():
                    size = full.stat().st_size
                    if len(self.files) < FILES and is_wanted(path, size):
                        self.files[path] = size
        return True

    def read(self, paths: Sequence[str]) -> Mapping[str, Statement]:
        """Read files; what cannot be read is left out."""
        found = {}
        for path in paths:
            with suppress(OSError, BoundsError):
                limit = FILE_LIMIT if not RPM.fullmatch(path) else RPM_LIMIT
                found[path] = self.reader.read(path, read_file(Path(self.root, path), limit=limit))
        return found


def read_all(trees: Sequence[LayerTree]) -> Mapping[str, Statement]:
    """What every wanted file says as the image shows it: the last layer wins."""
    owner: dict[str, LayerTree] = {}
    for tree in trees:
        for path in [path for path in owner if _is_hidden(path, tree.hidden)]:
            del owner[path]
        owner |= dict.fromkeys(tree.files, tree)
    found: dict[str, Statement] = {}
    room = TOTAL_LIMIT
    for tree in trees:
        own = []
        for path in sorted(path for path, its in owner.items() if its is tree):
            if tree.files[path] <= room:
                room -= tree.files[path]
                own.append(path)
        found |= tree.read(own)
    return {path: found[path] if path in found else read_statement(path, None) for path in sorted(owner)}


def _is_hidden(path: str, hidden: frozenset[str]) -> bool:
    if not hidden:
        return False
    parts = path.split("/")
    parents = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
    return path in hidden or any(parent in hidden or f"{parent}/" in hidden for parent in parents)
