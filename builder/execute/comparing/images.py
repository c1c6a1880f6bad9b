"""Two SIF images: header, objects and the file systems in them. What a signature adds is not compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from builder.execute.comparing.squashfs import FileSystem, differences
from builder.execute.contents.sif import (
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
from builder.execute.digest import sha256_of_part
from builder.layering.bounded import parse_json

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
