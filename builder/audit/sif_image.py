"""The ELF files of an image: a SIF with the layers over its root file system, or a squashfs file."""

from __future__ import annotations

import lzma
import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..sif.bounded import open_file
from ..sif.sif import SQUASHFS, SifError, parse_sif
from ..sif.squashfs import (
    DEVICE,
    FILE,
    FOLDER,
    FRAGMENT,
    GZIP,
    LINK,
    LONG,
    NO_FRAGMENT,
    XZ,
    ZSTD,
    FolderEntry,
    FolderInode,
    Squashfs,
    SquashfsError,
)  # fmt: skip
from .content import AuditError, Candidate, Content
from .distribution import Inventory
from .installed import TreeScan
from .zstd import unpack as unpack_zstd

PLAIN = 1 << 24  # in a block's length: it is not packed
BLOCK = 1 << 20  # bytes of the largest block
KEPT = 32 << 20  # bytes of unpacked blocks that are kept
ROOM, TIMES = 1 << 30, 60  # bytes that are unpacked: so many, and so often its size
NAMES = 2_000_000
DEPTH = 100
BLOCKS = 1 << 22  # of one file


class Item(NamedTuple):
    """A name in a file system: a file, a link, or one that hides what is below it."""

    path: str
    kind: int
    entry: FolderEntry


@dataclass(frozen=True, kw_only=True)
class _File:
    """A file by its inode: where its blocks are, and its end in a fragment."""

    reader: SquashfsFiles
    size: int
    places: tuple[int, ...]
    lengths: tuple[int, ...]
    fragment: int
    offset: int

    def read(self, offset: int, size: int) -> bytes:
        """Some bytes of it, fewer at the end; raises AuditError and OSError."""
        block = self.reader.fs.head.block_size
        end, parts = min(self.size, offset + size), []
        while offset < end:
            number = offset // block
            begin = offset - number * block
            if number < len(self.lengths):
                room = min(block, self.size - number * block)
                data = self.reader.read_block(self.places[number], self.lengths[number], room)
            else:
                data = self.reader.read_fragment(self.fragment)[self.offset : self.offset + self.size - number * block]
            part = data[begin : begin + end - offset]
            if not part:
                raise AuditError("it is cut short")
            parts.append(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class SquashfsFiles:
    """The files of one squashfs; everything raises AuditError where it is damaged."""

    def __init__(self, fs: Squashfs) -> None:
        self.fs = fs
        if fs.head.block_size > BLOCK:
            raise AuditError("its blocks are too large")
        if fs.offset + fs.head.size > os.fstat(fs.file.fileno()).st_size:
            raise AuditError("it is cut short")
        self.unpack = _choose_unpacker(fs.head.compression)
        self.kept: OrderedDict[int, bytes] = OrderedDict()
        self.most = max(4, KEPT // fs.head.block_size)
        self.names = 0
        self.left = ROOM + TIMES * fs.head.size

    def list_items(self) -> Iterator[Item]:
        """Every name, a folder before what is in it."""
        try:
            yield from self._walk(self.fs.root, "", 0, set())
        except (SquashfsError, struct.error, KeyError) as error:
            raise AuditError(f"its file system is damaged: {error}") from None

    def _walk(self, node: FolderInode, path: str, depth: int, seen: set[tuple[int, int]]) -> Iterator[Item]:
        if depth > DEPTH:
            raise AuditError(f"its folders are deeper than {DEPTH}")
        for entry in self.fs.read_entries(node):
            self.names += 1
            if self.names > NAMES:
                raise AuditError(f"it holds more than {NAMES} names")
            name = entry.name.decode("utf-8", errors="replace")
            below = f"{path}/{name}" if path else name
            yield Item(below, entry.kind, entry)
            if entry.kind == FOLDER:
                if (entry.block, entry.offset) in seen:
                    raise AuditError("a folder of it is in two places")
                seen.add((entry.block, entry.offset))
                yield from self._walk(self.fs.read_folder(entry.block, entry.offset), below, depth + 1, seen)

    def open(self, entry: FolderEntry) -> Content:
        """A file."""
        try:
            return self._read_file(entry)
        except (SquashfsError, struct.error, KeyError) as error:
            raise AuditError(f"its file system is damaged: {error}") from None

    def read_size(self, entry: FolderEntry) -> int:
        """Bytes of a file; raises AuditError."""
        try:
            return self._read_inode(entry)[1]
        except (SquashfsError, struct.error, KeyError) as error:
            raise AuditError(f"its file system is damaged: {error}") from None

    def make_opener(self, entry: FolderEntry) -> Callable[[], nullcontext[Content]]:
        """What opens a file later."""
        return partial(self._open_later, entry)

    def _open_later(self, entry: FolderEntry) -> nullcontext[Content]:
        return nullcontext(self.open(entry))

    def _read_inode(self, entry: FolderEntry) -> tuple[int, int, int, int, int]:
        """Where the blocks begin, the size, fragment, place in it, and the length of the inode."""
        inodes = self.fs.inodes
        (kind,) = struct.unpack("<H", inodes.read(entry.block, entry.offset, 2))
        if kind == FILE:
            start, fragment, offset, size = struct.unpack("<4I", inodes.read(entry.block, entry.offset, 32)[16:])
            return start, size, fragment, offset, 32
        if kind == FILE + LONG:
            raw = inodes.read(entry.block, entry.offset, 56)[16:]
            start, size, _, _, fragment, offset, _ = struct.unpack("<3Q4I", raw)
            return start, size, fragment, offset, 56
        raise SquashfsError("a folder is listed where a file is expected")

    def _read_file(self, entry: FolderEntry) -> _File:
        start, size, fragment, offset, length = self._read_inode(entry)
        block = self.fs.head.block_size
        count = size // block if fragment != NO_FRAGMENT else -(-size // block)
        if count > BLOCKS:
            raise AuditError("it is too large")
        raw = self.fs.inodes.read(entry.block, entry.offset, length + 4 * count)[length:]
        lengths = struct.unpack(f"<{count}I", raw)
        places, at = [], start
        for word in lengths:
            places.append(at)
            at += word & ~PLAIN
        return _File(reader=self, size=size, places=tuple(places), lengths=lengths, fragment=fragment, offset=offset)

    def read_fragment(self, number: int) -> bytes:
        """The block that holds the ends of several files."""
        try:
            place, length, _ = FRAGMENT.unpack_from(self.fs.fragments, 16 * number)
        except (SquashfsError, struct.error) as error:
            raise AuditError(f"its file system is damaged: {error}") from None
        return self.read_block(place, length, self.fs.head.block_size)

    def read_block(self, place: int, length: int, room: int) -> bytes:
        """One block, unpacked; of length 0 it is zeros."""
        if not length:
            return bytes(room)
        found = self.kept.get(place)
        if found is None:
            size = length & ~PLAIN
            if size > self.fs.head.block_size:
                raise AuditError("a block of it is too long")
            try:
                packed = self.fs.read_bytes(place, place + size)
            except SquashfsError as error:
                raise AuditError(f"its file system is damaged: {error}") from None
            found = packed if length & PLAIN else self.unpack(packed, self.fs.head.block_size)
            self.left -= len(found)
            if self.left < 0:
                raise AuditError(f"its files unpack to more than {TIMES} times its size")
            self.kept[place] = found
            if len(self.kept) > self.most:
                self.kept.popitem(last=False)
        else:
            self.kept.move_to_end(place)
        return found


def _choose_unpacker(compression: int) -> Callable[[bytes, int], bytes]:
    """What unpacks a block of data of at most so many bytes; raises AuditError where nothing here can."""
    if compression == GZIP:
        return _unpack_gzip
    if compression == XZ:
        return _unpack_xz
    if compression == ZSTD:
        return _unpack_zstd
    raise AuditError(f"it is packed in a way that is not read here (number {compression} of squashfs)")


def _unpack_gzip(packed: bytes, most: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(packed, most)
    except zlib.error:
        raise AuditError("a block of it is damaged") from None


def _unpack_xz(packed: bytes, most: int) -> bytes:
    try:
        return lzma.LZMADecompressor(memlimit=1 << 27).decompress(packed, most)
    except lzma.LZMAError:
        raise AuditError("a block of it is damaged") from None


def _unpack_zstd(packed: bytes, most: int) -> bytes:
    return unpack_zstd(packed, limit=most)


MAGIC = b"hsqs"
LINKS = (LINK, LINK + LONG)


def read_image(*parts: Path) -> Inventory:
    """Every ELF file of an image in one file or several; raises AuditError where one cannot be read, and OSError."""
    tree = TreeScan()
    for path in parts:
        with open_file(path) as file:
            for item, files in merge_layers(file, path).values():
                if item.kind in LINKS:
                    tree.link(item.path)
                else:
                    size = files.read_size(item.entry)
                    tree.take(Candidate(path=item.path, size=size, open=files.make_opener(item.entry)))
    return tree.make_inventory("image", whole=True)


def merge_layers(file: BinaryIO, path: Path) -> dict[str, tuple[Item, SquashfsFiles]]:
    """Files and links by their paths, as the layers leave them: a later one wins, a device 0/0 takes away."""
    union: dict[str, tuple[Item, SquashfsFiles]] = {}
    for number, offset in enumerate(_list_offsets(file, path)):
        try:
            files = SquashfsFiles(Squashfs(file, offset=offset))
        except SquashfsError as error:
            raise AuditError(f"its file system cannot be read: {error}") from None
        for item in files.list_items():
            if item.kind in (FILE, FILE + LONG, *LINKS):
                union[item.path] = (item, files)
            elif number and item.kind in (DEVICE, DEVICE + LONG):
                below = item.path + "/"
                for name in [name for name in union if name == item.path or name.startswith(below)]:
                    del union[name]
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
