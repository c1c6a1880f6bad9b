"""Compares two SIF images: header, objects, and their file systems file by file; what a signature adds is left out.

Of a file these are compared: kind, mode, owner, time, link, device, extended attributes and content.
"""

from __future__ import annotations

import hashlib
import json
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from builder.inspect.sif_objects import SIGNATURE, describe_object
from builder.sif.bounded import hash_file_part, parse_json
from builder.sif.reader import File, Reader
from builder.sif.sif import DATA_JSON, SQUASHFS, Object, Sif, SifError, read_header, read_object, read_sif
from builder.sif.squashfs import BLOCK_DEVICE, DEVICE, FIFO, FILE, FOLDER, LINK, SOCKET, SquashfsError

KINDS = {
    FOLDER: "folder", FILE: "file", LINK: "link", BLOCK_DEVICE: "device", DEVICE: "device", FIFO: "pipe",
    SOCKET: "socket",
}  # fmt: skip
SECONDS = 4 * 3600.0  # the longest that the contents of two file systems are read


def compare_file_systems(first: Reader, second: Reader) -> Iterator[str]:
    """A line for each path that differs."""
    deadline = time.monotonic() + SECONDS
    try:
        one, two = ({file.path: file for file in reader.list_files()} for reader in (first, second))
    except SquashfsError as error:
        yield f"its files cannot be listed: {error}"
        return
    count = 0
    for path in sorted({*one, *two}):
        if path not in two or path not in one:
            line = f"{path}: only in the {'first' if path in one else 'second'}"
        else:
            words = [
                *_compare_attributes(one[path], two[path]),
                *_compare_contents(first, one[path], second, two[path], deadline=deadline),
            ]
            line = f"{path}: {', '.join(words)}" if words else ""
        if line:
            count += 1
            yield line
    times = first.squashfs.head.time, second.squashfs.head.time
    if times[0] != times[1]:
        count += 1
        yield f"time of packing: {times[0]}, {times[1]}"
    if not count:
        yield "the same files, packed otherwise: their order or compression"


def _hash_content(reader: Reader, file: File, *, deadline: float) -> str:
    digest = hashlib.sha256()
    for part in reader.read_blocks(file):
        digest.update(part)
        if time.monotonic() > deadline:
            raise SquashfsError("its contents take hours to read")
    return digest.hexdigest()


def _compare_contents(first: Reader, one: File, second: Reader, two: File, *, deadline: float) -> Iterator[str]:
    """Extended attributes, and the contents of files of one size."""
    if one.kind != two.kind:
        return
    try:
        if first.read_attributes(one) != second.read_attributes(two):
            yield "extended attributes"
        pairs = ((first, one), (second, two)) if one.kind == FILE and one.size == two.size else ()
        if len({_hash_content(reader, file, deadline=deadline) for reader, file in pairs}) > 1:
            yield f"content of {one.size} bytes"
    except SquashfsError:
        yield "its content could not be read"


def _compare_attributes(one: File, two: File) -> Iterator[str]:
    if one.kind != two.kind:
        yield f"{KINDS[one.kind]}, {KINDS[two.kind]}"
        return
    if one.kind == FILE and one.size != two.size:
        yield f"size {one.size}, {two.size}"
    for name, before, after in (
        ("mode", _format_mode(one.mode), _format_mode(two.mode)),
        ("owner", f"{one.owner}/{one.group}", f"{two.owner}/{two.group}"),
        ("time", _format_date(one.time), _format_date(two.time)),
        ("target", one.target, two.target),
        ("device", one.device, two.device),
    ):
        if before != after:
            yield f"{name} {before}, {after}"


def _format_mode(mode: int) -> str:
    """rwxr-xr-x."""
    return stat.filemode(stat.S_IFREG | mode)[1:]


def _format_date(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


SMALL = 16 * 1024 * 1024  # bytes; what is larger is no metadata


def compare_images(first: Path, second: Path) -> Iterator[str]:
    """A line for everything that differs; raises OSError."""
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
    for name, pair in _pair_objects(one, two).items():
        if len(pair) < 2 or not all(pair):
            yield f"{name}: only in the {'first' if pair[0] else 'second'}"
            continue
        yield from _compare(name, (first, second), (pair[0], pair[1]))


def _pair_objects(one: Sif, two: Sif) -> dict[str, list[Object | None]]:
    """Objects by what they are, with a number where there are several of a kind."""
    found: dict[str, list[Object | None]] = {}
    for side, sif in enumerate((one, two)):
        counts: dict[str, int] = {}
        for item in sif.objects:
            if item.kind == SIGNATURE:
                continue
            name = " ".join(word for word in (describe_object(item), item.label) if word)
            counts[name] = counts.get(name, 0) + 1
            key = name if counts[name] == 1 else f"{name} {counts[name]}"
            found.setdefault(key, [None, None])[side] = item
    return found


def _compare(name: str, paths: tuple[Path, Path], items: tuple[Any, Any]) -> Iterator[str]:
    one, two = items
    for word in ("number", "group", "link", "offset"):
        if getattr(one, word) != getattr(two, word):
            yield f"{name}: {word} {getattr(one, word)}, {getattr(two, word)}"
    same_size = one.size == two.size
    if (
        same_size
        and len({hash_file_part(path, item.offset, item.size) for path, item in zip(paths, items, strict=True)}) == 1
    ):
        return
    if one.partition and two.partition and one.partition[0] == two.partition[0] == SQUASHFS:
        yield from (f"{name}: {line}" for line in _compare_partitions(paths, items))
        return
    if one.kind == DATA_JSON and max(one.size, two.size) <= SMALL:
        lines = list(_compare_fields(*(read_object(path, item) for path, item in zip(paths, items, strict=True))))
        yield from (f"{name}: {line}" for line in lines or ["written otherwise, of the same content"])
        return
    yield f"{name}: content of {one.size} bytes, {two.size} bytes"


def _compare_partitions(paths: tuple[Path, Path], items: tuple[Any, Any]) -> Iterator[str]:
    with paths[0].open("rb") as one, paths[1].open("rb") as two:
        try:
            pair = [Reader(file, offset=item.offset) for file, item in zip((one, two), items, strict=True)]
        except SquashfsError as error:
            yield f"its files cannot be listed: {error}"
            return
        yield from compare_file_systems(*pair)


def _compare_fields(before: bytes, after: bytes) -> Iterator[str]:
    """Every field that differs, by its path."""
    try:
        one, two = _flatten(parse_json(before)), _flatten(parse_json(after))
    except ValueError:
        yield "content, which is no JSON"
        return
    for key in sorted({*one, *two}):
        if one.get(key) != two.get(key):
            yield f"{key}: {_shorten(one.get(key))}, {_shorten(two.get(key))}"


def _flatten(value: Any, at: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {path: leaf for key, inner in value.items() for path, leaf in _flatten(inner, f"{at}.{key}").items()}
    if isinstance(value, list) and value:
        return {path: leaf for row, inner in enumerate(value) for path, leaf in _flatten(inner, f"{at}[{row}]").items()}
    return {at.lstrip("."): value}


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 80 else f"{text[:77]}..."
