"""The ELF files of an image: a SIF with the layers over its root file system, or a squashfs file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ..sif.bounded import open_file
from ..sif.reader import Extents, File, Reader, drop_surrogates
from ..sif.sif import SQUASHFS, SifError, parse_sif
from ..sif.squashfs import FILE, LINK, SquashfsError
from .content import AuditError, Candidate
from .distribution import Inventory
from .installed import TreeScan

MAGIC = b"hsqs"
ROOM, TIMES = 1 << 30, 60  # bytes that are unpacked: so many, and so often its size


@contextmanager
def _translate_error() -> Iterator[None]:
    try:
        yield
    except SquashfsError as error:
        raise AuditError(f"its file system is damaged: {error}") from None


@dataclass(frozen=True, kw_only=True)
class _ImageFile:
    """A file of a squashfs, read from any place of it."""

    reader: Reader
    content: Extents

    @property
    def size(self) -> int:
        return self.content.size

    def read(self, offset: int, size: int) -> bytes:
        """Some bytes of it, fewer at the end; raises AuditError and OSError."""
        if self.reader.unpacked > ROOM + TIMES * self.reader.squashfs.head.size:
            raise AuditError(f"its files unpack to more than {TIMES} times its size")
        with _translate_error():
            return self.reader.read_part(self.content, offset, size)


def open_member(reader: Reader, file: File) -> nullcontext[_ImageFile]:
    """A file of an image; raises AuditError where the file system is damaged."""
    with _translate_error():
        return nullcontext(_ImageFile(reader=reader, content=reader.locate(file)))


def read_image(*parts: Path) -> Inventory:
    """Every ELF file of an image in one file or several; raises AuditError where one cannot be read, and OSError."""
    tree = TreeScan()
    for path in parts:
        with open_file(path) as image:
            for name, (file, reader) in merge_layers(image, path).items():
                if file.kind == LINK:
                    tree.link(name)
                else:
                    tree.take(Candidate(path=name, size=file.size, open=partial(open_member, reader, file)))
    return tree.make_inventory("image", whole=True)


def merge_layers(image: BinaryIO, path: Path) -> dict[str, tuple[File, Reader]]:
    """Files and links by their paths, as the layers leave them: a later one wins, a device 0/0 takes away."""
    union: dict[str, tuple[File, Reader]] = {}
    for number, offset in enumerate(_list_offsets(image, path)):
        with _translate_error():
            reader = Reader(image, offset=offset)
            if offset + reader.squashfs.head.size > os.fstat(image.fileno()).st_size:
                raise AuditError("it is cut short")
            for file in reader.list_files():
                name = drop_surrogates(file.path[1:])
                if file.kind in (FILE, LINK):
                    union[name] = (file, reader)
                elif number and file.whiteout:
                    for hidden in [one for one in union if one == name or one.startswith(f"{name}/")]:
                        del union[hidden]
    return union


def _list_offsets(file: BinaryIO, path: Path) -> list[int]:
    """Where in the file each file system begins, the root first."""
    file.seek(0)
    if file.read(4) == MAGIC:
        return [0]
    try:
        sif = parse_sif(file, size=os.fstat(file.fileno()).st_size)
        overlays = [item.offset for item in sif.overlays if item.partition and item.partition[0] == SQUASHFS]
        return [sif.system.offset, *overlays]
    except SifError as error:
        raise AuditError(f"'{path.name}' cannot be read as an image: {error}") from None
