"""Two file systems of images, file by file: names, kinds, modes, owners, times, links and contents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from builder.execute.asking import read_output, stream_output, which
from builder.execute.contents.trees import LISTING_LIMIT, SECONDS, batches_of, no_unsquashfs
from builder.layering.squash.listing import Row, row_of

KINDS = {"-": "file", "d": "folder", "l": "link", "c": "device", "b": "device", "p": "pipe", "s": "socket"}
HOURS = 4.0  # the longest that one call may read


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """A squashfs at an offset of a file."""

    image: Path
    offset: int
    environment: Mapping[str, str]

    def rows(self) -> dict[str, Row]:
        """Everything in it by its path; empty where it cannot be listed."""
        output = read_output(self._words("-lln"), env=self._clean, limit=LISTING_LIMIT, timeout=SECONDS) or b""
        lines = output.decode("utf-8", errors="surrogateescape").split("\n")
        return {row.path: row for line in lines if (row := row_of(line))}

    def digests(self, rows: Sequence[Row]) -> dict[str, str]:
        """The digest of every file; of one that cannot be read there is none."""
        found: dict[str, str] = {}
        sizes = {row.path.lstrip("/"): row.size for row in rows}
        for batch in batches_of(sorted(sizes)):
            splitter = _Splitter(sizes=[sizes[path] for path in batch])
            words = [*self._words("-no-wildcards", "-cat"), *batch]
            if stream_output(words, env=self._clean, receive=splitter.take, timeout=HOURS * 3600) and splitter.whole:
                found |= {f"/{path}": digest for path, digest in zip(batch, splitter.digests, strict=True)}
        return found

    def made(self) -> int:
        """When it was packed, in seconds since 1970; raises OSError."""
        with self.image.open("rb") as file:
            file.seek(self.offset + 8)
            return int.from_bytes(file.read(4), "little")

    @property
    def _clean(self) -> dict[str, str]:
        return {**self.environment, "LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def _words(self, *options: str) -> list[str]:
        return ["unsquashfs", "-o", str(self.offset), *options, str(self.image)]


@dataclass(kw_only=True)
class _Splitter:
    """One stream of files of known sizes, as the digest of each."""

    sizes: Sequence[int]
    digests: list[str] = field(default_factory=list)
    _left: int = -1
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    _over: bool = False

    def __post_init__(self) -> None:
        self._left = self.sizes[0] if self.sizes else -1
        self._close()

    @property
    def whole(self) -> bool:
        """Whether the stream was as long as all files together."""
        return not self._over and len(self.digests) == len(self.sizes)

    def take(self, data: bytes) -> None:
        """The next part of the stream."""
        view = memoryview(data)
        while view and not self._over:
            if len(self.digests) == len(self.sizes):
                self._over = True
                return
            part = view[: self._left]
            self._digest.update(part)
            self._left -= len(part)
            view = view[len(part) :]
            self._close()

    def _close(self) -> None:
        while self._left == 0:
            self.digests.append(self._digest.hexdigest())
            self._digest = hashlib.sha256()
            self._left = self.sizes[len(self.digests)] if len(self.digests) < len(self.sizes) else -1


def differences(first: FileSystem, second: FileSystem) -> Iterator[str]:
    """A line for each path that differs; raises ToolError without unsquashfs."""
    if which("unsquashfs", env=first.environment) is None:
        raise no_unsquashfs()
    one, two = first.rows(), second.rows()
    if not one or not two:
        yield "its files could not be listed"
        return
    same = [path for path in one if path in two and _readable(one[path]) and _equal_size(one[path], two[path])]
    old, new = first.digests([one[path] for path in same]), second.digests([two[path] for path in same])
    count = 0
    for path in sorted({*one, *two}):
        if path not in two or path not in one:
            line = f"{path}: only in the {'first' if path in one else 'second'}"
        else:
            words = [*_attributes(one[path], two[path])]
            if path in same and (path not in old or path not in new):
                words.append("its content could not be read")
            elif path in same and old[path] != new[path]:
                words.append(f"content of {one[path].size} bytes")
            line = f"{path}: {', '.join(words)}" if words else ""
        if line:
            count += 1
            yield line
    if first.made() != second.made():
        count += 1
        yield f"time of packing: {first.made()}, {second.made()}"
    if not count:
        yield "the same files, packed otherwise: times in seconds, extended attributes, order or compression"


def _readable(row: Row) -> bool:
    # A name with a line break cannot be told from two.
    return row.kind == "-" and row.size > 0


def _equal_size(one: Row, two: Row) -> bool:
    return (one.kind, one.size) == (two.kind, two.size)


def _attributes(one: Row, two: Row) -> Iterator[str]:
    if one.kind != two.kind:
        yield f"{KINDS[one.kind]}, {KINDS[two.kind]}"
        return
    if one.kind == "-" and one.size != two.size:
        yield f"size {one.size}, {two.size}"
    for name, before, after in (
        ("mode", one.mode, two.mode),
        ("owner", one.owner, two.owner),
        ("time", one.time, two.time),
        ("target", one.target, two.target),
        ("device", one.device, two.device),
    ):
        if before != after:
            yield f"{name} {before}, {after}"
