"""Two file systems of images, file by file: names, kinds, modes, owners, times, links and contents.

Two SIF images: header, objects and the file systems in them. What a signature adds is not compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.inspect.filesystems import LISTING_LIMIT, SECONDS, batches_of, no_unsquashfs
from builder.inspect.sif_objects import (
    DATA_JSON,
    SIGNATURE,
    SQUASHFS,
    Object,
    Sif,
    SifError,
    part_of,
    read_header,
    read_sif,
    word_of,
)
from builder.sif.bounded import parse_json
from builder.sif.listing import Row, row_of
from builder.system.capture import read_output, stream_output
from builder.system.checksums import sha256_of_part
from builder.system.process import which

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


SMALL = 16 * 1024 * 1024  # bytes; what is larger is no metadata


def compare_images(first: Path, second: Path, *, environment: Mapping[str, str]) -> Iterator[str]:
    """A line for everything that differs; raises OSError, ToolError without unsquashfs."""
    try:
        one, two = read_sif(first), read_sif(second)
    except SifError as error:
        yield f"one of them cannot be read: {error}"
        return
    signed = any(item.kind == SIGNATURE for item in (*one.objects, *two.objects))
    heads = [read_header(path) for path in (first, second)]
    # What signing changes: free places, size of the data, the time of the last change.
    left_out = {"free", "data size", "modified"} if signed else set()
    for name, before in heads[0].items():
        if before != heads[1][name] and name not in left_out:
            yield f"header: {name} {before}, {heads[1][name]}"
    for name, pair in _pairs(one, two).items():
        if len(pair) < 2 or not all(pair):
            yield f"{name}: only in the {'first' if pair[0] else 'second'}"
            continue
        yield from _compare(name, (first, second), (pair[0], pair[1]), environment)


def _pairs(one: Sif, two: Sif) -> dict[str, list[Object | None]]:
    """Objects by what they are, with a number where there are several of a kind."""
    found: dict[str, list[Object | None]] = {}
    for side, sif in enumerate((one, two)):
        counts: dict[str, int] = {}
        for item in sif.objects:
            if item.kind == SIGNATURE:
                continue
            name = " ".join(word for word in (word_of(item), item.label) if word)
            counts[name] = counts.get(name, 0) + 1
            key = name if counts[name] == 1 else f"{name} {counts[name]}"
            found.setdefault(key, [None, None])[side] = item
    return found


def _compare(
    name: str, paths: tuple[Path, Path], items: tuple[Any, Any], environment: Mapping[str, str]
) -> Iterator[str]:
    one, two = items
    for word in ("number", "group", "link", "offset"):
        if getattr(one, word) != getattr(two, word):
            yield f"{name}: {word} {getattr(one, word)}, {getattr(two, word)}"
    same_size = one.size == two.size
    if (
        same_size
        and len({sha256_of_part(path, item.offset, item.size) for path, item in zip(paths, items, strict=True)}) == 1
    ):
        return
    if one.partition and two.partition and one.partition[0] == two.partition[0] == SQUASHFS:
        pair = [
            FileSystem(image=path, offset=item.offset, environment=environment)
            for path, item in zip(paths, items, strict=True)
        ]
        yield from (f"{name}: {line}" for line in differences(*pair))
        return
    if one.kind == DATA_JSON and max(one.size, two.size) <= SMALL:
        lines = list(_fields(*(part_of(path, item) for path, item in zip(paths, items, strict=True))))
        yield from (f"{name}: {line}" for line in lines or ["written otherwise, of the same content"])
        return
    yield f"{name}: content of {one.size} bytes, {two.size} bytes"


def _fields(before: bytes, after: bytes) -> Iterator[str]:
    """Every field that differs, by its path."""
    try:
        one, two = _flat(parse_json(before)), _flat(parse_json(after))
    except ValueError:
        yield "content, which is no JSON"
        return
    for key in sorted({*one, *two}):
        if one.get(key) != two.get(key):
            yield f"{key}: {_short(one.get(key))}, {_short(two.get(key))}"


def _flat(value: Any, at: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {path: leaf for key, inner in value.items() for path, leaf in _flat(inner, f"{at}.{key}").items()}
    if isinstance(value, list) and value:
        return {path: leaf for row, inner in enumerate(value) for path, leaf in _flat(inner, f"{at}[{row}]").items()}
    return {at.lstrip("."): value}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 80 else f"{text[:77]}..."
