"""The files that say what an image holds, out of a squashfs, an archive's layer or a folder; sizes are bounded."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from builder.inspect.package_databases import RPM, WANTED
from builder.inspect.statements import Reader, Said, said_of
from builder.model.finding import Finding, ToolError
from builder.sif.archive import ArchiveError, Stream, members
from builder.sif.bounded import BoundsError, read_file
from builder.sif.listing import row_of
from builder.system.capture import read_output, stream_output

FILE_LIMIT = 16 * 1024 * 1024  # bytes; dpkg's status of a full desktop has 5 MiB, conda's record of Python 1
RPM_LIMIT = 160 * 1024 * 1024  # that of a full desktop has 100
AT_ONCE = 32 * 1024 * 1024  # bytes of files that are read together
TOTAL_LIMIT = 512 * 1024 * 1024
LISTING_LIMIT = 512 * 1024 * 1024  # two million files
FILES = 50_000
LOOKED_AT = 8_000_000  # entries of one folder of a squashfs, over all look-ups in it: some seconds
HIDDEN = 200_000  # paths of lower layers
SECONDS = 300.0
BATCH = 100_000  # characters of a command line


class Tree(Protocol):
    """One layer: the wanted files with their sizes in bytes, and the paths that it hides in the layers below."""

    @property
    def files(self) -> Mapping[str, int]: ...

    @property
    def hidden(self) -> frozenset[str]: ...

    def read(self, paths: Sequence[str]) -> Mapping[str, Said]: ...


def wanted(path: str, size: int) -> bool:
    """Say whether a file is one of those we read, and not too large for one."""
    return size <= (RPM_LIMIT if RPM.fullmatch(path) else FILE_LIMIT) and WANTED.fullmatch(path) is not None


@dataclass(kw_only=True)
class Squashfs:
    """A squashfs at an offset of a file; read by squashfs-tools, the engines' own."""

    image: Path
    offset: int
    environment: Mapping[str, str]
    files: dict[str, int] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    reader: Reader = field(default_factory=Reader)

    def list(self) -> bool:
        """List it; False where it cannot be. Lines are looked at while unsquashfs writes the next ones."""
        hidden: set[str] = set()
        rest, read = b"\n", 0

        def receive(data: bytes) -> None:
            nonlocal rest, read
            read += len(data)
            if read > LISTING_LIMIT:
                raise OverflowError
            # What is kept begins with the end of the line before it: every line is preceded by one.
            end = data.rfind(b"\n")
            if end < 0:
                rest += data
                return
            self._take(rest + data[: end + 1], hidden)
            rest = data[end:]

        whole = stream_output(
            self._words("-lln", str(self.image)), env=self._settings(), receive=receive, timeout=SECONDS
        )
        if not whole or read > LISTING_LIMIT:
            return False
        self._take(rest + b"\n", hidden)
        self.hidden = frozenset(hidden)
        return True

    def _take(self, lines: bytes, hidden: set[str]) -> None:
        for line in _likely(lines):
            row = row_of(line.decode("utf-8", errors="replace"))
            if row is None:
                continue
            path = row.path.lstrip("/")
            if row.kind == "c":
                if row.hides:
                    hidden.add(path)
            elif row.kind == "-" and row.size and len(self.files) < FILES and wanted(path, row.size):
                self.files[path] = row.size

    def read(self, paths: Sequence[str]) -> Mapping[str, Said]:
        """Read files in few calls: their contents come as one stream, which the sizes divide."""
        asked, found = few_enough(paths)
        batches = [list(batch) for batch in batches_of(asked, sizes=self.files)]
        calls = len(batches) + 64  # a listing can be deceived by a file name with a line break; not forever
        while batches and calls:
            batch, calls = batches.pop(), calls - 1
            total = sum(self.files[path] for path in batch)
            content = self._ask("-no-wildcards", "-cat", str(self.image), *batch, limit=total)
            if content is not None and len(content) == total:
                at = 0
                for path in batch:
                    end = at + self.files[path]
                    found[path] = self.reader.said_of(path, content if len(batch) == 1 else content[at:end])
                    at = end
            elif len(batch) > 1:
                half = len(batch) // 2
                batches += [batch[:half], batch[half:]]
        return found

    def _ask(self, *words: str, limit: int) -> bytearray | None:
        return read_output(self._words(*words), env=self._settings(), limit=limit, timeout=SECONDS)

    def _words(self, *words: str) -> Sequence[str]:
        return ("unsquashfs", "-o", str(self.offset), *words)

    def _settings(self) -> dict[str, str]:
        return {**self.environment, "LC_ALL": "C.UTF-8"}


# In every line of a wanted file there is one of these, and in few others; "c" is what hides a file of a layer below.
# A search for one word is ten times as fast as one for all of them.
_MARKS = (
    b".dist-info/METADATA\n", b".egg-info", b"/torch/version.py\n", b"/conda-meta/", b"/rpm/", b"/dpkg/status",
    b"/apk/db/installed\n", b"/os-release\n", b"/labels.json\n", b"/recipe.json\n", b"\nc",
)  # fmt: skip


def _likely(lines: bytes) -> Iterable[bytes]:
    """The lines that may be of wanted files, in their order; each is preceded and followed by a line break."""
    found: dict[int, int] = {}
    for mark in _MARKS:
        at = lines.find(mark)
        while at >= 0:
            start = lines.rfind(b"\n", 0, at + 1) + 1
            found[start] = lines.find(b"\n", start)
            at = lines.find(mark, found[start])
    return [lines[start:end] for start, end in sorted(found.items())]


def few_enough(paths: Sequence[str]) -> tuple[list[str], dict[str, Said]]:
    """The paths that are read, and what the names of the others say.

    unsquashfs reads a whole folder for each path that it looks up there: with tens of thousands of distributions in
    one folder that takes minutes. 2,800 in one are all read.
    """
    above = [path.rsplit("/", 2)[0] for path in paths]
    counts, taken = Counter(above), Counter[str]()
    asked, said = list[str](), dict[str, Said]()
    for path, folder in zip(paths, above, strict=True):
        if taken[folder] * counts[folder] < LOOKED_AT:
            asked.append(path)
        else:
            said[path] = said_of(path, b"")
        taken[folder] += 1
    return asked, said


def batches_of(paths: Sequence[str], *, sizes: Mapping[str, int] | None = None) -> Iterable[Sequence[str]]:
    """Paths in portions that a command line can hold, and the memory where their sizes in bytes are given."""
    start = length = size = 0
    for at, path in enumerate(paths):
        length += len(path.encode(errors="surrogateescape")) + 1
        size += sizes[path] if sizes else 0
        if (length > BATCH or size > AT_ONCE) and at > start:
            yield paths[start:at]
            start, length, size = at, 0, sizes[path] if sizes else 0
    if paths[start:]:
        yield paths[start:]


@dataclass(kw_only=True)
class Archive:
    """A layer of a docker-archive: a tar file inside a tar file, perhaps compressed."""

    files: dict[str, int] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    reader: Reader = field(default_factory=Reader)
    said: dict[str, Said] = field(default_factory=dict)

    def take(self, layer: Stream, *, room: int) -> None:
        """Read all that is wanted while passing by; raises ArchiveError and OSError."""
        hidden: set[str] = set()
        for member, content in members(layer):
            path = member.name.removeprefix("./").lstrip("/")
            folder, _, name = path.rpartition("/")
            if name == ".wh..wh..opq":
                hidden.add(f"{folder}/")
            elif name.startswith(".wh."):
                hidden.add(f"{folder}/{name[4:]}".lstrip("/"))
            elif member.regular and len(self.files) < FILES and wanted(path, member.size) and member.size <= room:
                self.said[path] = self.reader.said_of(path, content.read(member.size))
                self.files[path] = member.size
                room -= member.size
            if len(hidden) > HIDDEN:
                raise ArchiveError(f"it hides more than {HIDDEN} paths")
        self.hidden = frozenset(hidden)

    def read(self, paths: Sequence[str]) -> Mapping[str, Said]:
        """Give what was read."""
        return {path: self.said[path] for path in paths if path in self.said}


@dataclass(kw_only=True)
class Folder:
    """A folder that is a root file system, or a part of one; links are not followed."""

    root: Path
    files: dict[str, int] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    reader: Reader = field(default_factory=Reader)

    def list(self) -> bool:
        """List it."""
        for folder, _, names in os.walk(self.root):
            below = os.path.relpath(folder, self.root)
            for name in names:
                path = name if below == "." else f"{below}/{name}"
                full = Path(folder, name)
                if WANTED.fullmatch(path) and not full.is_symlink() and full.is_file():
                    size = full.stat().st_size
                    if len(self.files) < FILES and wanted(path, size):
                        self.files[path] = size
        return True

    def read(self, paths: Sequence[str]) -> Mapping[str, Said]:
        """Read files; what cannot be read is left out."""
        found = {}
        for path in paths:
            with suppress(OSError, BoundsError):
                limit = FILE_LIMIT if not RPM.fullmatch(path) else RPM_LIMIT
                found[path] = self.reader.said_of(path, read_file(Path(self.root, path), limit=limit))
        return found


def read_all(trees: Sequence[Tree]) -> Mapping[str, Said]:
    """What every wanted file says as the image shows it: the last layer wins."""
    owner: dict[str, Tree] = {}
    for tree in trees:
        for path in [path for path in owner if _is_hidden(path, tree.hidden)]:
            del owner[path]
        owner |= dict.fromkeys(tree.files, tree)
    found: dict[str, Said] = {}
    room = TOTAL_LIMIT
    for tree in trees:
        own = []
        for path in sorted(path for path, its in owner.items() if its is tree):
            if tree.files[path] <= room:
                room -= tree.files[path]
                own.append(path)
        found |= tree.read(own)
    return {path: found[path] if path in found else said_of(path, None) for path in sorted(owner)}


def _is_hidden(path: str, hidden: frozenset[str]) -> bool:
    if not hidden:
        return False
    parts = path.split("/")
    parents = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
    return path in hidden or any(parent in hidden or f"{parent}/" in hidden for parent in parents)


def no_unsquashfs() -> ToolError:
    """Make the error for a machine without squashfs-tools."""
    message = "'unsquashfs' is not on PATH, and the file system of the image is read with it"
    return ToolError(Finding(code="no-program", message=message, fix="install squashfs-tools"))
