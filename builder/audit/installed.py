"""The ELF files of a tree of files, each with the package that installed it.

Who owns a file is in RECORD of each *.dist-info (packaging.python.org, "Recording installed projects"), in `files` of
conda-meta/*.json, and in /var/lib/dpkg/info/*.list.
"""

from __future__ import annotations

import csv
import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..sif.bounded import BoundsError, format_bound, parse_json
from ..sif.tree import FILE, FOLDER, LINK, TreeEntry, walk
from .binary import Binary, read_binary
from .content import ELF, LARGEST, AuditError, Candidate, Content, OpenFile, can_be_elf
from .distribution import Distribution, Inventory, Kind, SourceKind, Unread, make_inventory
from .variants import FILE as VARIANT_FILE
from .variants import Features, parse_variants

RECORD = re.compile(r"(?:.*/)?(?P<name>[^/]+?)-(?P<version>[^/-]+)\.dist-info/RECORD")
VARIANT = re.compile(rf"(?:.*/)?(?P<name>[^/]+?)-(?P<version>[^/-]+)\.dist-info/{re.escape(VARIANT_FILE)}")
CONDA = re.compile(r"(?P<prefix>(?:.*/)?)conda-meta/[^/]+\.json")
DPKG = re.compile(r"var/lib/dpkg/info/(?P<name>[^/:]+)(?::[^/]+)?\.list")
PYTHON = re.compile(r"(?:^|/)python(3\.\d{1,3}t?)/")
METADATA_SIZE = 64 << 20  # bytes of one list of files
METADATA_TOTAL = 512 << 20
FILES = 200_000  # ELF files of one tree
UNREAD = 1000


def is_metadata_file(path: str) -> bool:
    """Whether a file says who installed what."""
    return any(form.fullmatch(path) for form in (RECORD, VARIANT, CONDA, DPKG))


@dataclass(frozen=True)
class Package:
    """Who owns files."""

    kind: Kind
    name: str
    version: str = ""
    python: str = ""


@dataclass(kw_only=True)
class TreeScan:
    """What has been read of a tree so far."""

    binaries: dict[str, Binary] = field(default_factory=dict)
    metadata: dict[str, bytes] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    unread: list[Unread] = field(default_factory=list)
    room: int = METADATA_TOTAL

    def link(self, path: str) -> None:
        """The name of a link is that of a library, too."""
        if len(self.names) < FILES and ".so" in path:
            self.names.add(path.rpartition("/")[2])

    def take(self, candidate: Candidate) -> None:
        """Read a file where it is an ELF file or says who owns what; raises OSError."""
        path, size = candidate.path, candidate.size
        is_metadata = is_metadata_file(path)
        if not is_metadata and (not can_be_elf(path, size) or len(self.binaries) >= FILES):
            return
        try:
            with candidate.open() as content:
                if is_metadata:
                    self._keep_metadata(path, content)
                elif size > LARGEST:
                    self.skip(path, f"it is larger than {format_bound(LARGEST)}")
                elif content.read(0, 4) == ELF and (binary := read_binary(path, content)) is not None:
                    self.binaries[path] = binary
        except BoundsError as error:
            self.skip(path, str(error))
        except OSError as error:
            self.skip(path, (error.strerror or str(error)).lower())

    def apply_layer(self, layer: TreeScan, hidden: set[str]) -> None:
        """Put a layer over what is there; `hidden` are files and folders that it takes away."""
        for paths in (self.binaries, self.metadata):
            for path in [path for path in paths if _is_hidden(hidden, path)]:
                del paths[path]
        self.binaries |= layer.binaries
        self.metadata |= layer.metadata
        self.names |= layer.names
        self.unread += layer.unread

    def _keep_metadata(self, path: str, content: Content) -> None:
        if content.size <= min(METADATA_SIZE, self.room):
            self.room -= content.size
            self.metadata[path] = content.read(0, content.size)
        else:
            self.skip(path, "it is too large")

    def skip(self, path: str, reason: str) -> None:
        """Note what cannot be read."""
        if len(self.unread) < UNREAD:
            self.unread.append(Unread(path=path, reason=reason))

    def make_inventory(self, kind: SourceKind, *, whole: bool) -> Inventory:
        """Everything, sorted by package."""
        owners = self._find_owners()
        grouped: dict[Package, list[Binary]] = defaultdict(list)
        for path, binary in sorted(self.binaries.items()):
            grouped[owners.get(path) or Package("files", f"/{path.rpartition('/')[0]}")].append(binary)
        variants = self._read_variants()
        for package in variants:
            grouped.setdefault(package, [])
        found = [
            Distribution(
                kind=package.kind, name=package.name, version=package.version, binaries=tuple(binaries),
                python=package.python or _find_python(binaries), variant=variants.get(package, ("", {}))[0],
                features=variants.get(package, ("", {}))[1],
            )
            for package, binaries in sorted(grouped.items(), key=lambda item: (item[0].kind, item[0].name.lower()))
        ]  # fmt: skip
        return make_inventory(kind, found, whole=whole, names=frozenset(self.names), unread=tuple(self.unread))

    def _read_variants(self) -> dict[Package, tuple[str, Features]]:
        """Label and properties of each package that was installed from a variant wheel."""
        found: dict[Package, tuple[str, Features]] = {}
        for path, content in self.metadata.items():
            match = VARIANT.fullmatch(path)
            if match is None:
                continue
            try:
                rows = [*parse_variants(content).items()]
            except AuditError as error:
                self.skip(path, str(error))
                continue
            if rows:
                package = Package("pip", match["name"].replace("_", "-"), match["version"], _parse_python(path))
                found[package] = rows[0]
        return found

    def _find_owners(self) -> dict[str, Package]:
        """Who installed each ELF file: pip's word before conda's, which lists what pip has installed too."""
        owners: dict[str, Package] = {}
        merged = {path.removeprefix("usr/"): path for path in self.binaries}  # /lib is a link to /usr/lib
        for path, content in self.metadata.items():
            text = content.decode("utf-8", errors="replace")
            if match := RECORD.fullmatch(path):
                package = Package("pip", match["name"].replace("_", "-"), match["version"], _parse_python(path))
                site = posixpath.dirname(posixpath.dirname(path))
                listed: Iterable[str] = (posixpath.normpath(posixpath.join(site, row)) for row in _read_rows(text))
            elif match := CONDA.fullmatch(path):
                package, files = _read_conda(content)
                listed = (match["prefix"] + row for row in files)
            elif match := DPKG.fullmatch(path):
                package = Package("deb", match["name"])
                listed = (merged.get(row.lstrip("/").removeprefix("usr/"), "") for row in text.splitlines())
            else:
                continue
            for row in listed:
                if row in self.binaries and (package.kind == "pip" or row not in owners):
                    owners[row] = package
        return owners


def _is_hidden(hidden: set[str], path: str) -> bool:
    parts = path.split("/")
    return any("/".join(parts[: end + 1]) in hidden for end in range(len(parts)))


def _read_rows(record: str) -> Iterator[str]:
    """The paths in a RECORD; what the reader of CSV refuses ends it."""
    with suppress(csv.Error):
        for row in csv.reader(record.splitlines()):
            if row:
                yield row[0]


def _read_conda(content: bytes) -> tuple[Package, list[str]]:
    try:
        found = parse_json(content, limit=METADATA_SIZE)
    except ValueError:
        found = {}
    found = found if isinstance(found, dict) else {}
    files = found.get("files")
    package = Package("conda", str(found.get("name", ""))[:200], str(found.get("version", ""))[:200])
    return package, [row for row in files if isinstance(row, str)] if isinstance(files, list) else []


def _find_python(binaries: list[Binary]) -> str:
    return next((word for binary in binaries if (word := _parse_python(binary.path))), "")


def _parse_python(path: str) -> str:
    match = PYTHON.search(path)
    return match[1] if match else ""


MOST_FILES = 5_000_000
ROOM, TIMES = 1 << 30, 60
SYSTEM = ("usr/lib", "usr/bin")  # a root file system has them


def read_folder(root: Path) -> Inventory:
    """Every ELF file below a folder; raises OSError where the folder itself cannot be read."""
    tree = TreeScan()
    for number, entry in enumerate(walk(root)):
        if number >= MOST_FILES:
            break
        if entry.kind == FOLDER and not os.access(entry.name, os.R_OK | os.X_OK, dir_fd=entry.at):
            entry.enter = False
            tree.skip(entry.path, "permission denied")
        elif entry.kind == LINK:
            tree.link(entry.name)
        elif entry.kind == FILE:
            noted = entry.stat()
            size = min(noted.st_size, ROOM + TIMES * 512 * noted.st_blocks)  # a sparse file may say any size
            tree.take(Candidate(path=entry.path, size=size, open=partial(_open_entry, entry, size)))
    whole = all((root / name).is_dir() for name in SYSTEM)
    return tree.make_inventory("folder", whole=whole)


@contextmanager
def _open_entry(entry: TreeEntry, size: int) -> Iterator[Content]:
    descriptor = entry.open()
    try:
        yield OpenFile(descriptor=descriptor, size=size)
    finally:
        os.close(descriptor)
