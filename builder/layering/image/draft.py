"""The beginning of an image, copied while the last of its layers are still being made."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..digest import BLOCK
from ..failure import AlteredError
from ..squash.squashfs import SquashfsError, read_superblock
from ..store import Entry
from .sif import ALIGNMENT, SifError, copy_file, copy_range, read_sif


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

    def _check(self) -> None:
        if self._dropped:
            raise _DroppedError

    def at_rest(self) -> BinaryIO:
        """The file, when nothing is written to it any more."""
        self._pool.submit(lambda: None).result()
        return self.file

    def _copy(self, layers: Sequence[Layer]) -> None:
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
