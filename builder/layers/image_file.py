"""Base image and layers become one SIF: copied in the background, checked, with no time and no random id in the header.

The layers become part of the base's own file system if all are packed alike, one file system over it if only the layers
are, and else one file system each (docs/packing.md, "Layers").
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..sif.bounded import BLOCK
from ..sif.errors import AlteredError, Meter, log_line
from ..sif.merge import MergedTables, check_packing, merge
from ..sif.sif import (
    ALIGNMENT,
    DATA_JSON,
    INSPECT,
    LAYERS,
    Object,
    Sif,
    SifError,
    add_layer,
    add_object,
    copy_file,
    copy_range,
    find_end,
    read_sif,
    write_header,
)
from ..sif.squashfs import SUPERBLOCK, Squashfs, SquashfsError, read_superblock
from .cache import CacheEntry


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer of an image; `fresh` where this build made it and has just seen all of it."""

    entry: CacheEntry
    fresh: bool = False


class _CancelledError(Exception):
    """The build has failed: the copy in the background stops."""


class Draft:
    """The beginning of an image, copied while the last of its layers are still being made: base and layers in one file.

    Each layer is copied once: `copy_layers` keeps those that are the same as before and in the same places. If a build
    fails, the copy stops.
    """

    def __init__(self, base: Path, target: Path) -> None:
        """Create an empty file that only the user can read; raises OSError."""
        target.unlink(missing_ok=True)
        self.base, self.target = base, target
        self.file: BinaryIO = os.fdopen(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")
        self._pool = ThreadPoolExecutor(1)
        self._begin: int | None = None  # of the first layer, once the base is copied
        self._offset = 0  # of the base's file system
        self._done: list[Layer] = []
        self._cancelled = False
        self._meter = Meter("writing the image")

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancelled = True
        self._pool.shutdown()
        self.file.close()

    def copy_in_background(self, layers: Sequence[Layer]) -> None:
        """Copy the base and these layers in the background; the next `copy_layers` raises what fails."""
        self._pool.submit(self._try_to_copy, tuple(layers))

    def _try_to_copy(self, layers: Sequence[Layer]) -> None:
        with suppress(AlteredError, SquashfsError, SifError, OSError, _CancelledError):
            if self._can_be_merged(layers):
                self._copy(layers)

    def _can_be_merged(self, layers: Sequence[Layer]) -> bool:
        """Whether these layers can be a part of the base's file system."""
        places = [(self.base, read_sif(self.base).system.offset), *[(layer.entry.path, 0) for layer in layers]]
        found = set()
        for path, offset in places:
            with path.open("rb") as file:
                head = read_superblock(file, offset=offset)
            found.add((head.compression, head.block_size))
        return len(found) == 1

    def copy_layers(self, layers: Sequence[Layer]) -> None:
        """Copy the base and these layers; raises AlteredError, SquashfsError, SifError and OSError."""
        self._pool.submit(self._copy, tuple(layers)).result()
        self._meter.set_done(self._meter.total)

    def _check(self) -> None:
        if self._cancelled:
            raise _CancelledError
        self._meter.set_done(os.fstat(self.file.fileno()).st_size)  # it is written from its beginning to its end

    def wait_for_file(self) -> BinaryIO:
        """Return the file as soon as no copy is running."""
        self._pool.submit(lambda: None).result()
        return self.file

    def _copy(self, layers: Sequence[Layer]) -> None:
        self._meter.total = self.base.stat().st_size + sum(layer.entry.size for layer in layers)
        if self._begin is None:
            system = read_sif(self.base).system
            with self.base.open("rb") as source:
                head = read_superblock(source, offset=system.offset)
                copy_file(source, self.file, check=self._check)
            self._offset, self._begin = system.offset, round_to_page(head.size)
            self.file.truncate(system.offset + system.size)
        same = 0
        while same < min(len(layers), len(self._done)) and _is_same(layers[same], self._done[same]):
            same += 1
        del self._done[same:]
        offsets = list_layer_offsets(layers, begin=self._begin)
        for layer, begin in list(zip(layers, offsets, strict=False))[same:]:
            append_layer(layer, self.file, offset=self._offset + begin, check=self._check)
            self._done.append(layer)
        self.file.truncate(self._offset + offsets[-1])


def _is_same(one: Layer, other: Layer) -> bool:
    return (one.entry.sha256, one.entry.size) == (other.entry.sha256, other.entry.size)


def list_layer_offsets(layers: Sequence[Layer], *, begin: int) -> list[int]:
    """Return the offset of each layer if they follow each other from `begin`, and the end of the last one."""
    offsets = [begin]
    for layer in layers:
        offsets.append(round_to_page(offsets[-1] + layer.entry.size))
    return offsets


def append_layer(layer: Layer, file: BinaryIO, *, offset: int, check: Callable[[], None] = lambda: None) -> None:
    """Write a layer to the end of a file, at `offset`; raises AlteredError and OSError.

    `check` is called before each part; it stops the copy by raising an error.
    """
    file.flush()
    file.truncate(offset)
    file.seek(offset)
    digest, left = hashlib.sha256(), layer.entry.size
    with layer.entry.path.open("rb") as source:
        if layer.fresh:
            if copy_range(source, file, start=0, size=left, to=offset, check=check) < left:
                raise AlteredError(str(layer.entry.path))
            return
        while block := source.read(BLOCK):
            check()
            digest.update(block)
            file.write(block)
            left -= len(block)
    if left or digest.hexdigest() != layer.entry.sha256:
        raise AlteredError(str(layer.entry.path))


def round_to_page(size: int) -> int:
    """Return a size, rounded up to whole pages."""
    return -(-size // ALIGNMENT) * ALIGNMENT


SIGNATURE, SBOM = 0x4005, 0x4009
SMALL = 64 * 1024 * 1024  # bytes of objects behind the root file system that are moved


@dataclass(frozen=True, kw_only=True)
class MergedLayers:
    """Layers as one file system, counted from its beginning."""

    offsets: Sequence[int]  # of each layer
    end: int  # of the layers: the tables begin here
    joined: MergedTables

    @property
    def size(self) -> int:
        """Bytes, rounded up to whole pages."""
        return round_to_page(self.end + len(self.joined.tables))


def write_image(base: Path, layers: Sequence[Layer], target: Path, *, time: int, metadata: bytes = b"") -> None:
    """Write an image at once; raises what `finish_image` raises."""
    with Draft(base, target) as draft:
        finish_image(draft, layers, time=time, metadata=metadata)


def finish_image(draft: Draft, layers: Sequence[Layer], *, time: int, metadata: bytes = b"") -> None:
    """Turn a draft into an image; `metadata` replaces what `inspect` reads.

    Raises AlteredError for a cached layer that was changed, SifError and OSError. Signatures and bills of materials of
    the base are left out: they are valid for the base alone.
    """
    sif = read_sif(draft.base)
    dropped = {INSPECT, LAYERS} if metadata else {LAYERS}
    sif.objects = [item for item in sif.objects if item.kind not in (SIGNATURE, SBOM) and item.label not in dropped]
    with draft.base.open("rb") as source:
        inside = _merge_into_base(source, draft, sif, layers, time=time)
        file = draft.wait_for_file()
        if not inside:
            copy_file(source, file)
            file.truncate(find_end(sif))
            _add_partitions(file, sif, layers, time=time)
        if metadata:
            _add_json(file, sif, INSPECT, metadata)
        file.truncate(round_to_page(find_end(sif)))
        write_header(file, sif, time=time)
        file.flush()


def _merge_into_base(source: BinaryIO, draft: Draft, sif: Sif, layers: Sequence[Layer], *, time: int) -> bool:
    """Make the layers a part of the base's file system; return False, with nothing changed, if that is impossible."""
    system, file = sif.system, draft.file
    behind = [item for item in sif.objects if item.offset > system.offset]
    if not layers or sif.overlays or sum(item.size for item in behind) > SMALL:
        return False
    try:
        first = Squashfs(source, offset=system.offset)
        if first.head.size > system.size:
            raise SquashfsError("it is cut short")
        merged = _merge_layers(
            first,
            layers,
            begin=round_to_page(first.head.size),
            time=time,
            copy_layers=lambda _: draft.copy_layers(layers),
        )
    except SquashfsError as error:
        log_line(f"the layers lie over the base image's file system, and not in it: {error}")
        return False
    contents = [(item, _read(source, item)) for item in sorted(behind, key=lambda item: item.offset)]
    superblock = first.read_bytes(0, SUPERBLOCK.size)
    _write_tables(file, merged, offset=system.offset)
    system.size, system.padded = merged.size, system.padded + merged.size - system.size
    end = system.offset + system.size
    for item, content in contents:
        item.offset = round_to_page(end) if item.partition else end
        item.padded = item.offset - end + item.size
        end = _write_at(file, item.offset, content)
    _add_json(file, sif, LAYERS, _make_layer_index(system, layers, merged, superblock=superblock))
    return True


def _add_partitions(file: BinaryIO, sif: Sif, layers: Sequence[Layer], *, time: int) -> None:
    """Add the layers as partitions over the base's: one merged partition if possible, else one each."""

    def copy(offsets: Sequence[int]) -> None:
        for layer, begin in zip(layers, offsets, strict=True):
            append_layer(layer, file, offset=round_to_page(find_end(sif)) + begin)

    try:
        if len(layers) > 1:
            merged = _merge_layers(None, layers, begin=ALIGNMENT, time=time, copy_layers=copy)
            item = add_layer(sif, size=merged.size)
            _write_tables(file, merged, offset=item.offset)
            _add_json(file, sif, LAYERS, _make_layer_index(item, layers, merged))
            return
    except SquashfsError as error:
        log_line(f"the layers lie over each other: {error}")
    for layer in layers:
        append_layer(layer, file, offset=add_layer(sif, size=layer.entry.size).offset)


def _merge_layers(
    first: Squashfs | None,
    layers: Sequence[Layer],
    *,
    begin: int,
    time: int,
    copy_layers: Callable[[Sequence[int]], None],
) -> MergedLayers:
    """Return the tables of layers that follow each other from `begin`, and call `copy_layers` with their offsets.

    The tables are made while the bytes are copied. Raises SquashfsError.
    """
    *offsets, begin = list_layer_offsets(layers, begin=begin)
    with ExitStack() as stack:
        files = [stack.enter_context(layer.entry.path.open("rb")) for layer in layers]
        more = [(Squashfs(file), place) for file, place in zip(files, offsets, strict=True)]
        check_packing(first, more)
        copied = stack.enter_context(ThreadPoolExecutor(1)).submit(copy_layers, offsets)
        joined = merge(first, more, end=begin, time=time)
        copied.result()
    return MergedLayers(offsets=offsets, end=begin, joined=joined)


def _write_tables(file: BinaryIO, merged: MergedLayers, *, offset: int) -> None:
    """Write the tables that turn the layers into one file system, which begins at `offset`."""
    file.truncate(offset + merged.end)
    _write_at(file, offset + merged.end, merged.joined.tables)
    _write_at(file, offset, merged.joined.superblock)
    file.flush()
    file.truncate(offset + merged.size)


def _write_at(file: BinaryIO, offset: int, content: bytes) -> int:
    file.seek(offset)
    file.write(content)
    return offset + len(content)


def _make_layer_index(item: Object, layers: Sequence[Layer], merged: MergedLayers, *, superblock: bytes = b"") -> bytes:
    """Return the place of each layer in a partition, and the base's superblock, which was replaced."""
    rows = [
        {"title": layer.entry.title, "sha256": layer.entry.sha256, "offset": begin, "size": layer.entry.size}
        for layer, begin in zip(layers, merged.offsets, strict=True)
    ]
    document = {"format": 1, "partition": item.number, "superblock": superblock.hex(), "layers": rows}
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _add_json(file: BinaryIO, sif: Sif, name: str, content: bytes) -> None:
    item = add_object(sif, size=len(content), kind=DATA_JSON, name=name)
    file.truncate(item.offset)
    _write_at(file, item.offset, content)
    file.flush()


def _read(source: BinaryIO, item: Object) -> bytes:
    source.seek(item.offset)
    return source.read(item.size)
