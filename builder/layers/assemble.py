"""The beginning of an image, copied while the last of its layers are still being made.

Base image and layers become one SIF: copied, checked on the way, with a header that has no time and no random id.

The layers become part of the base's own file system where both are packed alike, one file system over it where only
they are, and one each where they are not (docs/packing.md, "Layers").
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

from ..sif.digest import BLOCK
from ..sif.errors import AlteredError, say
from ..sif.events import Meter
from ..sif.merge import Joined, alike, join
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
    end_of,
    read_sif,
    write_header,
)
from ..sif.squashfs import SUPERBLOCK, Squashfs, SquashfsError, read_superblock
from .cache import Entry


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer of an image; `fresh` where this build made it and has just seen all of it."""

    entry: Entry
    fresh: bool = False


class _DroppedError(Exception):
    """Nobody waits for what is being copied."""


class Draft:
    """Base and layers as they lie in an image in which they are one file system.

    What is there twice is copied once: `follow` keeps the layers that are the same as the last time and in the same
    places. A build that fails does not wait for gigabytes: what is being copied is dropped.
    """

    def __init__(self, base: Path, target: Path) -> None:
        """Begin with an empty file, the user's alone until it is whole; raises OSError."""
        target.unlink(missing_ok=True)
        self.base, self.target = base, target
        self.file: BinaryIO = os.fdopen(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")
        self._pool = ThreadPoolExecutor(1)
        self._begin: int | None = None  # of the first layer, once the base lies there
        self._offset = 0  # of the base's file system
        self._done: list[Layer] = []
        self._dropped = False
        self._meter = Meter("writing the image")

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, *_: object) -> None:
        self._dropped = True
        self._pool.shutdown()
        self.file.close()

    def prepare(self, layers: Sequence[Layer]) -> None:
        """Copy the base and these layers beside what follows; what goes wrong is told by the next `follow`."""
        self._pool.submit(self._prepare, tuple(layers))

    def _prepare(self, layers: Sequence[Layer]) -> None:
        with suppress(AlteredError, SquashfsError, SifError, OSError, _DroppedError):
            if self._alike(layers):
                self._copy(layers)

    def _alike(self, layers: Sequence[Layer]) -> bool:
        """Whether these layers can be a part of the base's file system."""
        places = [(self.base, read_sif(self.base).system.offset), *[(layer.entry.path, 0) for layer in layers]]
        found = set()
        for path, offset in places:
            with path.open("rb") as file:
                head = read_superblock(file, offset=offset)
            found.add((head.compression, head.block_size))
        return len(found) == 1

    def follow(self, layers: Sequence[Layer]) -> None:
        """Have the base and these layers lie there; raises AlteredError, SquashfsError, SifError and OSError."""
        self._pool.submit(self._copy, tuple(layers)).result()
        self._meter.to(self._meter.total)

    def _check(self) -> None:
        if self._dropped:
            raise _DroppedError
        self._meter.to(os.fstat(self.file.fileno()).st_size)  # it is written from its beginning to its end

    def at_rest(self) -> BinaryIO:
        """The file, when nothing is written to it any more."""
        self._pool.submit(lambda: None).result()
        return self.file

    def _copy(self, layers: Sequence[Layer]) -> None:
        self._meter.total = self.base.stat().st_size + sum(layer.entry.size for layer in layers)
        if self._begin is None:
            system = read_sif(self.base).system
            with self.base.open("rb") as source:
                head = read_superblock(source, offset=system.offset)
                copy_file(source, self.file, check=self._check)
            self._offset, self._begin = system.offset, page(head.size)
            self.file.truncate(system.offset + system.size)
        same = 0
        while same < min(len(layers), len(self._done)) and _same(layers[same], self._done[same]):
            same += 1
        del self._done[same:]
        begins = begins_of(layers, begin=self._begin)
        for layer, begin in list(zip(layers, begins, strict=False))[same:]:
            append(layer, self.file, offset=self._offset + begin, check=self._check)
            self._done.append(layer)
        self.file.truncate(self._offset + begins[-1])


def _same(one: Layer, other: Layer) -> bool:
    return (one.entry.sha256, one.entry.size) == (other.entry.sha256, other.entry.size)


def begins_of(layers: Sequence[Layer], *, begin: int) -> list[int]:
    """Where each of the layers begins that lie one after the other from `begin` on, and where the next one would."""
    begins = [begin]
    for layer in layers:
        begins.append(page(begins[-1] + layer.entry.size))
    return begins


def append(layer: Layer, file: BinaryIO, *, offset: int, check: Callable[[], None] = lambda: None) -> None:
    """Write a layer to the end of a file, which begins at `offset`; raises AlteredError and OSError.

    `check` is called before each part, and ends it by raising something.
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


def page(size: int) -> int:
    """A size with its last page whole."""
    return -(-size // ALIGNMENT) * ALIGNMENT


SIGNATURE = 0x4005
SMALL = 64 * 1024 * 1024  # bytes of objects behind the root file system that are moved


@dataclass(frozen=True, kw_only=True)
class Whole:
    """Layers that are one file system, from its beginning on."""

    begins: Sequence[int]  # of the layers
    end: int  # of the layers, where the tables begin
    joined: Joined

    @property
    def size(self) -> int:
        """Bytes, with the last page whole."""
        return page(self.end + len(self.joined.tables))


def assemble(base: Path, layers: Sequence[Layer], target: Path, *, time: int, metadata: bytes = b"") -> None:
    """Write an image at once; raises what `complete` raises."""
    with Draft(base, target) as draft:
        complete(draft, layers, time=time, metadata=metadata)


def complete(draft: Draft, layers: Sequence[Layer], *, time: int, metadata: bytes = b"") -> None:
    """Make an image of a draft; `metadata` takes the place of what `inspect` reads.

    Raises AlteredError for a cached layer that is not what it was, SifError and OSError.
    Signatures of the base hold for the base alone and stay behind: what they signed is still there, byte for byte.
    """
    sif = read_sif(draft.base)
    dropped = {INSPECT, LAYERS} if metadata else {LAYERS}
    sif.objects = [item for item in sif.objects if item.kind != SIGNATURE and item.label not in dropped]
    with draft.base.open("rb") as source:
        inside = _inside(source, draft, sif, layers, time=time)
        file = draft.at_rest()
        if not inside:
            copy_file(source, file)
            file.truncate(end_of(sif))
            _over(file, sif, layers, time=time)
        if metadata:
            _add_json(file, sif, INSPECT, metadata)
        file.truncate(page(end_of(sif)))
        write_header(file, sif, time=time)
        file.flush()


def _inside(source: BinaryIO, draft: Draft, sif: Sif, layers: Sequence[Layer], *, time: int) -> bool:
    """The layers as a part of the base's file system; false where they cannot be, and then nothing is changed."""
    system, file = sif.system, draft.file
    behind = [item for item in sif.objects if item.offset > system.offset]
    if not layers or sif.overlays or sum(item.size for item in behind) > SMALL:
        return False
    try:
        first = Squashfs(source, offset=system.offset)
        if first.head.size > system.size:
            raise SquashfsError("it is cut short")
        whole = _whole(first, layers, begin=page(first.head.size), time=time, beside=lambda _: draft.follow(layers))
    except SquashfsError as error:
        say(f"the layers lie over the base image's file system, and not in it: {error}")
        return False
    contents = [(item, _read(source, item)) for item in sorted(behind, key=lambda item: item.offset)]
    superblock = first.bytes_between(0, SUPERBLOCK.size)
    _write_tables(file, whole, offset=system.offset)
    system.size, system.padded = whole.size, system.padded + whole.size - system.size
    end = system.offset + system.size
    for item, content in contents:
        item.offset = page(end) if item.partition else end
        item.padded = item.offset - end + item.size
        end = _write_at(file, item.offset, content)
    _add_json(file, sif, LAYERS, _told(system, layers, whole, superblock=superblock))
    return True


def _over(file: BinaryIO, sif: Sif, layers: Sequence[Layer], *, time: int) -> None:
    """The layers as partitions over the base's: one that is made of all of them, or one each."""

    def copy(begins: Sequence[int]) -> None:
        for layer, begin in zip(layers, begins, strict=True):
            append(layer, file, offset=page(end_of(sif)) + begin)

    try:
        if len(layers) > 1:
            whole = _whole(None, layers, begin=ALIGNMENT, time=time, beside=copy)
            item = add_layer(sif, size=whole.size)
            _write_tables(file, whole, offset=item.offset)
            _add_json(file, sif, LAYERS, _told(item, layers, whole))
            return
    except SquashfsError as error:
        say(f"the layers lie over each other: {error}")
    for layer in layers:
        append(layer, file, offset=add_layer(sif, size=layer.entry.size).offset)


def _whole(
    first: Squashfs | None,
    layers: Sequence[Layer],
    *,
    begin: int,
    time: int,
    beside: Callable[[Sequence[int]], None],
) -> Whole:
    """The tables of layers that lie one after the other from `begin` on, and `beside` done with where they lie.

    While the bytes are copied the tables are made. Raises SquashfsError.
    """
    *begins, begin = begins_of(layers, begin=begin)
    with ExitStack() as stack:
        files = [stack.enter_context(layer.entry.path.open("rb")) for layer in layers]
        more = [(Squashfs(file), place) for file, place in zip(files, begins, strict=True)]
        alike(first, more)
        copied = stack.enter_context(ThreadPoolExecutor(1)).submit(beside, begins)
        joined = join(first, more, end=begin, time=time)
        copied.result()
    return Whole(begins=begins, end=begin, joined=joined)


def _write_tables(file: BinaryIO, whole: Whole, *, offset: int) -> None:
    """What makes one file system of the layers that begins at `offset`."""
    file.truncate(offset + whole.end)
    _write_at(file, offset + whole.end, whole.joined.tables)
    _write_at(file, offset, whole.joined.superblock)
    file.flush()
    file.truncate(offset + whole.size)


def _write_at(file: BinaryIO, offset: int, content: bytes) -> int:
    file.seek(offset)
    file.write(content)
    return offset + len(content)


def _told(item: Object, layers: Sequence[Layer], whole: Whole, *, superblock: bytes = b"") -> bytes:
    """Where in a partition each layer lies, every byte of it, and the base's superblock, which was replaced."""
    rows = [
        {"title": layer.entry.title, "sha256": layer.entry.sha256, "offset": begin, "size": layer.entry.size}
        for layer, begin in zip(layers, whole.begins, strict=True)
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
