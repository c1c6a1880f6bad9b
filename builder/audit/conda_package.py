"""The ELF files of a conda package: a .conda (zip of tar.zst) or a .tar.bz2, read as a stream and never unpacked.

Layout: conda-package-handling, "conda file format" (version 2), read 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ..sif.archive import Bounds, FileStream, Stream, read_members
from ..sif.bounded import BoundsError, open_file, parse_json
from . import zstd
from .binary import Binary, read_binary
from .content import ELF, AuditError, can_be_elf, unpack_member
from .distribution import Distribution, Inventory, Unread, make_inventory
from .wheel import DAMAGED, ROOM, TIMES, open_zip, translate_error

INDEX = "info/index.json"
TEXT = 1 << 20


def make_roomy_bounds() -> Bounds:
    """Bounds for libraries of CUDA, which are packed better than the files of a system."""
    return Bounds(room=ROOM, times=TIMES)


class _Zstd(Stream):
    """A packed member of a .conda."""

    def __init__(self, packed: BinaryIO, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.packed = zstd.ZstdReader(_CountingReader(packed, bounds))

    def read_some(self, most: int) -> bytes:
        found = self.packed.read(most)
        self.bounds.unpack(len(found))
        return found


@dataclass
class _CountingReader:
    """What is read of the packed bytes, counted."""

    file: BinaryIO
    bounds: Bounds

    def read(self, size: int, /) -> bytes:
        found = self.file.read(size)
        self.bounds.packed += len(found)
        return found


def read_conda(path: Path) -> Inventory:
    """Every ELF file of a conda package; raises OSError, and AuditError for any other file."""
    about: dict[str, object] = {}
    binaries: list[Binary] = []
    unread: list[Unread] = []
    try:
        for stream in _open_streams(path):
            _read(stream, about, binaries, unread)
    except BoundsError as error:
        raise AuditError(str(error)) from None
    except (*DAMAGED, OSError) as error:
        raise translate_error(error) from None
    if not about:
        raise AuditError(f"it is no conda package: there is no {INDEX} in it")
    one = Distribution(
        kind="conda", name=str(about.get("name", ""))[:200], version=str(about.get("version", ""))[:200],
        binaries=tuple(binaries),
    )  # fmt: skip
    return make_inventory("conda", [one], unread=tuple(unread))


def _open_streams(path: Path) -> Iterator[Stream]:
    """The tar archives of a package."""
    bounds = make_roomy_bounds()
    if path.name.endswith(".conda"):
        with open_zip(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".tar.zst"):
                    with archive.open(member) as file:
                        yield _Zstd(cast(BinaryIO, file), bounds)
    else:
        with open_file(path) as file:
            yield FileStream(file, bounds)


def _read(stream: Stream, about: dict[str, object], binaries: list[Binary], unread: list[Unread]) -> None:
    for member, content in read_members(stream):
        if not member.regular:
            continue
        if member.name == INDEX and member.size <= TEXT:
            found = parse_json(bytes(content.read(member.size)))
            about.update(found if isinstance(found, dict) else {})
        elif can_be_elf(member.name, member.size):
            head = bytes(content.read(4))
            if head != ELF:
                continue
            try:
                with unpack_member(content, size=member.size, head=head) as whole:
                    if (binary := read_binary(member.name, whole)) is not None:
                        binaries.append(binary)
            except AuditError as error:
                unread.append(Unread(path=member.name, reason=str(error)))
