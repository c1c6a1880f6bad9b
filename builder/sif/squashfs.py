"""The tables of a squashfs 4.0: read from a file, without mounting it and without another program.

Layout and constants: the Linux kernel's fs/squashfs/squashfs_fs.h and Documentation/filesystems/squashfs.rst, read
2026-11-22. Names, inodes and contents are read by reader.py on top of these tables.

Python unpacks gzip, xz and lzma itself; zstd, lz4 and lzo are unpacked by the libraries that mksquashfs is linked with.
"""

from __future__ import annotations

import ctypes
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import BinaryIO, NamedTuple

MAGIC = 0x73717368
SUPERBLOCK = struct.Struct("<5I6H8Q")
HEAD = struct.Struct("<4H2I")  # of every inode: type, mode, owner, group, time, number
LISTING = struct.Struct("<3I")  # of up to 256 names: their count less one, block of their inodes, number of an inode
NAME = struct.Struct("<HhHH")  # place in that block, number less that number, type, length less one
FRAGMENT = struct.Struct("<Q2I")
BLOCK = 8192  # bytes of a block of a table, unpacked
PLAIN = 0x8000  # in a block's length: it is not packed
LIMIT = 1 << 26  # bytes of a table, packed or not: of more than a million files
BLOCK_SIZES = range(1 << 12, (1 << 20) + 1)  # bytes of a block of a file, unpacked
NONE = 0xFFFFFFFFFFFFFFFF  # there is no such table
NO_FRAGMENT = 0xFFFFFFFF
EXPORTABLE, OPTIONS = 0x80, 0x400  # flags: there is a table for NFS; the packer's options follow the superblock
GZIP, LZMA, LZO, XZ, LZ4, ZSTD = range(1, 7)
COMPRESSIONS = {GZIP: "gzip", LZMA: "lzma", LZO: "lzo", XZ: "xz", LZ4: "lz4", ZSTD: "zstd"}
FOLDER, FILE, LINK, BLOCK_DEVICE, DEVICE, FIFO, SOCKET = range(1, 8)
LONG = 7  # added to a type whose inode has more fields
WHITEOUT = bytes(4)  # the number of a device 0/0, with which overlayfs marks a name of a lower layer as deleted


class SquashfsError(Exception):
    """A squashfs that is damaged, or packed in a way that is not known here."""


@dataclass(frozen=True, kw_only=True)
class Superblock:
    """The first 96 bytes; places are bytes from the beginning of the squashfs."""

    inodes: int
    time: int
    block_size: int
    fragments: int
    compression: int
    log: int
    flags: int
    owners: int
    root: int
    size: int
    owner_table: int
    attribute_table: int
    inode_table: int
    folder_table: int
    fragment_table: int

    def to_bytes(self) -> bytes:
        """The bytes; no table for NFS is named."""
        words = (self.compression, self.log, self.flags & ~EXPORTABLE, self.owners, 4, 0)
        tables = (self.owner_table, self.attribute_table, self.inode_table, self.folder_table, self.fragment_table)
        first = (MAGIC, self.inodes, self.time, self.block_size, self.fragments)
        return SUPERBLOCK.pack(*first, *words, self.root, self.size, *tables, NONE)


def read_superblock(file: BinaryIO, *, offset: int) -> Superblock:
    """Read where a squashfs begins in a file; raises SquashfsError and OSError."""
    file.seek(offset)
    head = file.read(SUPERBLOCK.size)
    if len(head) < SUPERBLOCK.size:
        raise SquashfsError("it is cut short")
    magic, inodes, time, block, fragments, kind, log, flags, owners, major, minor, root, size, *tables = (
        SUPERBLOCK.unpack(head)
    )
    if magic != MAGIC or (major, minor) != (4, 0):
        raise SquashfsError("it is not a squashfs of version 4.0")
    sound = SUPERBLOCK.size <= tables[2] <= tables[3] <= tables[4] <= tables[0] <= size
    if block not in BLOCK_SIZES or block != 1 << log or not sound:
        raise SquashfsError("its superblock is damaged")
    return Superblock(
        inodes=inodes, time=time, block_size=block, fragments=fragments, compression=kind, log=log, flags=flags,
        owners=owners, root=root, size=size, owner_table=tables[0], attribute_table=tables[1], inode_table=tables[2],
        folder_table=tables[3], fragment_table=tables[4],
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MetadataTable:
    """Blocks of a table, one after the other: packed as they are in the file, unpacked when they are read."""

    raw: bytes
    unpack: Callable[[bytes], bytes]
    places: list[int] = field(default_factory=list)  # where each block begins in `raw`
    known: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        at = 0
        while at < len(self.raw):
            if at + 2 > len(self.raw):
                raise SquashfsError("a table is cut short")
            self.places.append(at)
            at += 2 + (struct.unpack_from("<H", self.raw, at)[0] & ~PLAIN or BLOCK)
        if at != len(self.raw):
            raise SquashfsError("a table is cut short")
        if len(self.places) * BLOCK > LIMIT:
            raise SquashfsError("a table is too long")

    def read_block(self, place: int) -> tuple[bytes, int]:
        """The block that begins there, unpacked, and where the next one begins."""
        (word,) = struct.unpack_from("<H", self.raw, place)
        end = place + 2 + (word & ~PLAIN or BLOCK)
        found = self.known.get(place)
        if found is None:
            found = self.known[place] = self._unpack_block(place, end, word)
        return found, end

    def _unpack_block(self, place: int, end: int, word: int) -> bytes:
        packed = self.raw[place + 2 : end]
        return packed if word & PLAIN else self.unpack(packed)

    def read(self, place: int, offset: int, size: int) -> bytes:
        """Bytes from a place in a block on, over the ends of blocks."""
        block, place = self.read_block(place)
        if offset + size <= len(block):
            return block[offset : offset + size]
        found = bytearray()
        while True:
            found += block[offset : offset + size - len(found)]
            if len(found) == size:
                return bytes(found)
            if place >= len(self.raw):
                raise SquashfsError("a table ends too early")
            offset = max(0, offset - len(block))
            block, place = self.read_block(place)

    @cached_property
    def whole(self) -> tuple[bytes, dict[int, int]]:
        """All of it, unpacked, and where in it each block begins."""
        found, begins = bytearray(), {}
        for place, end in zip(self.places, [*self.places[1:], len(self.raw)], strict=True):
            (word,) = struct.unpack_from("<H", self.raw, place)
            begins[place] = len(found)
            found += self.known.get(place) or self._unpack_block(place, end, word)
        return bytes(found), begins


class FolderEntry(NamedTuple):
    """A name in a folder: its type, the position of its inode, and the inode's number; made by the ten thousands."""

    name: bytes
    kind: int
    block: int
    offset: int
    number: int


class Extent(NamedTuple):
    """Where the content of a file is: its blocks, whose sizes begin at `sizes`, and the fragment that holds its end."""

    start: int
    size: int
    sparse: int
    links: int
    fragment: int
    offset: int
    sizes: int


@dataclass(frozen=True, kw_only=True)
class FolderInode:
    """The inode of a folder."""

    mode: int
    owner: int
    group: int
    time: int
    number: int
    parent: int
    size: int
    block: int
    offset: int


class Squashfs:
    """The tables of one squashfs in a file that stays open; everything raises SquashfsError where it is damaged."""

    def __init__(self, file: BinaryIO, *, offset: int = 0) -> None:
        self.file = file
        self.offset = offset
        self.head = read_superblock(file, offset=offset)
        self.unpack = make_unpacker(self.head.compression)

    def read_bytes(self, start: int, end: int) -> bytes:
        if not 0 <= start <= end <= self.head.size:
            raise SquashfsError("a table is outside of it")
        if end - start > LIMIT:
            raise SquashfsError("a table is too long")
        self.file.seek(self.offset + start)
        found = self.file.read(end - start)
        if len(found) < end - start:
            raise SquashfsError("it is cut short")
        return found

    @cached_property
    def inodes(self) -> MetadataTable:
        head = self.head
        return MetadataTable(raw=self.read_bytes(head.inode_table, head.folder_table), unpack=self.unpack)

    @cached_property
    def folders(self) -> MetadataTable:
        fragments = self.read_index(self.head.fragment_table, 16 * self.head.fragments)
        end = fragments[0] if fragments else self.head.fragment_table
        return MetadataTable(raw=self.read_bytes(self.head.folder_table, end), unpack=self.unpack)

    @cached_property
    def fragments(self) -> bytes:
        """What is known of each fragment, unpacked: 16 bytes."""
        return self.read_table(self.head.fragment_table, 16 * self.head.fragments)

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """Users and groups; inodes name them by their place here."""
        found = self.read_table(self.head.owner_table, 4 * self.head.owners)
        return struct.unpack(f"<{self.head.owners}I", found)

    def read_index(self, place: int, size: int) -> tuple[int, ...]:
        """Where the blocks begin that hold `size` bytes."""
        count = -(-size // BLOCK)
        return struct.unpack(f"<{count}Q", self.read_bytes(place, place + 8 * count))

    def read_table(self, place: int, size: int) -> bytes:
        """A table of `size` bytes whose blocks are listed at a place."""
        parts = []
        for begin in self.read_index(place, size):
            (word,) = struct.unpack("<H", self.read_bytes(begin, begin + 2))
            packed = self.read_bytes(begin + 2, begin + 2 + (word & ~PLAIN or BLOCK))
            parts.append(packed if word & PLAIN else self.unpack(packed))
        found = b"".join(parts)
        if len(found) != size:
            raise SquashfsError("a table is not as long as it should be")
        return found

    def read_folder(self, block: int, offset: int) -> FolderInode:
        kind, mode, owner, group, time, number = HEAD.unpack(self.inodes.read(block, offset, HEAD.size))
        if kind == FOLDER:
            rest = struct.unpack("<2I2HI", self.inodes.read(block, offset + HEAD.size, 16))
            start, _, size, place, parent = rest
        elif kind == FOLDER + LONG:
            rest = struct.unpack("<4I2H", self.inodes.read(block, offset + HEAD.size, 20))
            _, size, start, parent, _, place = rest
        else:
            raise SquashfsError("an inode is not a folder's")
        return FolderInode(
            mode=mode, owner=owner, group=group, time=time, number=number, parent=parent, size=size - 3, block=start,
            offset=place,
        )  # fmt: skip

    @property
    def root(self) -> FolderInode:
        """Its root folder."""
        return self.read_folder(self.head.root >> 16, self.head.root & 0xFFFF)

    def read_entries(self, node: FolderInode) -> Iterator[FolderEntry]:
        """What is in a folder, by name."""
        if node.size <= 0:
            return
        listing, at = self.folders.read(node.block, node.offset, node.size), 0
        while at < len(listing):
            count, block, number = LISTING.unpack_from(listing, at)
            at += LISTING.size
            for _ in range(count + 1):
                offset, delta, kind, length = NAME.unpack_from(listing, at)
                at += NAME.size + length + 1
                yield FolderEntry(
                    name=listing[at - length - 1 : at], kind=kind, block=block, offset=offset, number=number + delta
                )


def parse_extent(kind: int, data: bytes, at: int) -> Extent:
    """The fields of a file's inode that follow its head; raises struct.error."""
    if kind == FILE:
        start, fragment, offset, size = struct.unpack_from("<4I", data, at)
        return Extent(start, size, 0, 1, fragment, offset, at + 16)
    start, size, sparse, links, fragment, offset, _ = struct.unpack_from("<3Q4I", data, at)
    return Extent(start, size, sparse, links, fragment, offset, at + 40)


def make_unpacker(compression: int, *, limit: int = BLOCK) -> Callable[[bytes], bytes]:
    """What unpacks a block to at most `limit` bytes; raises SquashfsError where nothing here can."""
    if compression == GZIP:
        return _limit_unpacker(
            lambda packed: zlib.decompressobj().decompress(packed, limit + 1), zlib.error, limit=limit
        )
    if compression in (XZ, LZMA):
        form = lzma.FORMAT_XZ if compression == XZ else lzma.FORMAT_ALONE
        return _limit_unpacker(
            lambda packed: _make_xz_decompressor(form).decompress(packed, limit + 1), lzma.LZMAError, limit=limit
        )
    if compression == ZSTD:
        return _make_zstd_unpacker(limit)
    if compression == LZ4:
        return _make_lz4_unpacker(limit)
    if compression == LZO:
        return _make_lzo_unpacker(limit)
    raise SquashfsError(f"its compression has the number {compression}, which is not known here")


def _limit_unpacker(
    unpack: Callable[[bytes], bytes], error: type[Exception], *, limit: int
) -> Callable[[bytes], bytes]:
    def checked(packed: bytes) -> bytes:
        try:
            found = unpack(packed)
        except (error, EOFError, MemoryError) as reason:
            raise SquashfsError(f"it is damaged: {reason}") from None
        if len(found) > limit:
            raise SquashfsError("it is damaged: a block of it is too long")
        return found

    return checked


def _make_xz_decompressor(form: int) -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(form, memlimit=LIMIT)


def _make_zstd_unpacker(limit: int) -> Callable[[bytes], bytes]:
    """Source: zstd.h of zstd 1.5; Python has its own only from 3.14."""
    library = _load_library("libzstd.so.1", "zstd")
    unpack, failed = library.ZSTD_decompress, library.ZSTD_isError
    unpack.restype, unpack.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t] * 2
    failed.restype, failed.argtypes = ctypes.c_uint, [ctypes.c_size_t]
    room = ctypes.create_string_buffer(limit)

    def block(packed: bytes) -> bytes:
        size = unpack(room, limit, packed, len(packed))
        if failed(size):
            raise SquashfsError("it is damaged: zstd cannot unpack it")
        return ctypes.string_at(room, size)

    return block


def _make_lz4_unpacker(limit: int) -> Callable[[bytes], bytes]:
    """Source: lz4.h of LZ4 1.9."""
    unpack = _load_library("liblz4.so.1", "lz4").LZ4_decompress_safe
    unpack.restype, unpack.argtypes = ctypes.c_int, [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    room = ctypes.create_string_buffer(limit)

    def block(packed: bytes) -> bytes:
        size = unpack(packed, room, len(packed), limit)
        if size < 0:
            raise SquashfsError("it is damaged: lz4 cannot unpack it")
        return ctypes.string_at(room, size)

    return block


def _make_lzo_unpacker(limit: int) -> Callable[[bytes], bytes]:
    """Source: lzo1x.h of LZO 2.10."""
    unpack = _load_library("liblzo2.so.2", "lzo").lzo1x_decompress_safe
    number = ctypes.POINTER(ctypes.c_size_t)
    unpack.restype = ctypes.c_int
    unpack.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, number, ctypes.c_void_p]
    room = ctypes.create_string_buffer(limit)

    def block(packed: bytes) -> bytes:
        size = ctypes.c_size_t(limit)
        if unpack(packed, len(packed), room, ctypes.byref(size), None):
            raise SquashfsError("it is damaged: lzo cannot unpack it")
        return ctypes.string_at(room, size.value)

    return block


def _load_library(name: str, compression: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError:
        raise SquashfsError(f"it is packed with {compression}, and there is no {name} on this machine") from None
