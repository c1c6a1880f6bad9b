"""The names, inodes and contents of a squashfs, read without mounting it and without another program.

A squashfs may be foreign: paths, their characters and the unpacked tables are bounded, no folder is entered twice, and
no name leads out of its folder. Everything here raises SquashfsError and OSError alone.
"""

from __future__ import annotations

import struct
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import accumulate
from typing import BinaryIO, NamedTuple

from .squashfs import (
    BLOCK_DEVICE,
    DEVICE,
    FILE,
    FOLDER,
    FRAGMENT,
    HEAD,
    LINK,
    LONG,
    NO_FRAGMENT,
    NONE,
    FolderEntry,
    MetadataTable,
    Squashfs,
    SquashfsError,
    make_unpacker,
    parse_extent,
)

PATHS = 1_000_000  # of one squashfs
CHARACTERS = 1 << 29  # of all its paths together
TARGET = 1 << 16  # bytes of a link's target; the kernel follows 4096
KEPT = 32  # blocks that are kept unpacked: small files of one folder share one
PLAIN = 1 << 24  # in the size of a block of a file: it is not packed
PREFIXES = {0: "user.", 1: "trusted.", 2: "security."}
ELSEWHERE = 0x100  # in the type of an attribute: its value is somewhere else
DAMAGED = (struct.error, LookupError, ValueError, OverflowError)


class File(NamedTuple):
    """A path of a squashfs with what its inode says; a folder, a link or a device is one, too."""

    path: str  # begins with a slash
    kind: int
    mode: int  # without the type
    owner: int
    group: int
    time: int  # seconds since 1970
    size: int  # bytes of a file's content or of a link's target
    number: int  # of the inode: paths that share one are one file
    place: int  # of the inode in its table
    links: int = 1
    target: str = ""
    device: tuple[int, int] | None = None

    @property
    def whiteout(self) -> bool:
        """Whether it marks a name of a lower layer as deleted."""
        return self.kind == DEVICE and self.device == (0, 0)


class Extents(NamedTuple):
    """Where the bytes of a file are: its blocks, and its end in a fragment."""

    path: str
    size: int
    words: bytes  # four for the length of each block, PLAIN added where it is not packed; 0 is a hole
    places: array[int]
    fragment: int
    offset: int  # in the fragment


class Reader:
    """A squashfs in a file that stays open."""

    def __init__(self, file: BinaryIO, *, offset: int = 0) -> None:
        self.squashfs = Squashfs(file, offset=offset)
        self.unpacked = 0  # bytes of contents until now
        self._kept: OrderedDict[int, bytes] = OrderedDict()  # blocks by their place

    @cached_property
    def _unpack(self) -> Callable[[bytes], bytes]:
        return make_unpacker(self.squashfs.head.compression, limit=self.squashfs.head.block_size)

    # --- names ---------------------------------------------------------------------------------------------------

    def list_files(self) -> Iterator[File]:
        """Everything in it, a folder before what it holds."""
        try:
            yield from self._walk()
        except DAMAGED as error:
            raise SquashfsError(f"a table is damaged: {error}") from None

    def find(self, path: str) -> File | None:
        """The file of this path, links not followed; None where there is none."""
        try:
            if (found := self._find_entry(path)) is None:
                return None
            return self._read_inode(f"/{'/'.join(_split_path(path))}", found.block, found.offset)
        except DAMAGED as error:
            raise SquashfsError(f"a table is damaged: {error}") from None

    def list_names(self, path: str) -> set[str]:
        """What a folder holds; nothing where there is no folder, as behind a link."""
        squashfs = self.squashfs
        try:
            found = self._find_entry(path)
            if found is None or found.kind != FOLDER:
                return set()
            return {
                _decode_name(entry) for entry in squashfs.read_entries(squashfs.read_folder(found.block, found.offset))
            }
        except DAMAGED as error:
            raise SquashfsError(f"a table is damaged: {error}") from None

    def _find_entry(self, path: str) -> FolderEntry | None:
        squashfs, root = self.squashfs, self.squashfs.head.root
        found = FolderEntry(name=b"", kind=FOLDER, block=root >> 16, offset=root & 0xFFFF, number=0)
        for part in _split_path(path):
            if found.kind != FOLDER:
                return None
            name = part.encode("utf-8", "surrogateescape")
            entries = squashfs.read_entries(squashfs.read_folder(found.block, found.offset))
            below = next((entry for entry in entries if entry.name == name), None)
            if below is None:
                return None
            found = below
        return found

    def _walk(self) -> Iterator[File]:
        squashfs, root = self.squashfs, self.squashfs.head.root
        top = self._read_inode("/", root >> 16, root & 0xFFFF)
        yield top
        todo, entered = [("", root >> 16, root & 0xFFFF)], {top.place}
        paths = characters = 0
        while todo:
            above, block, offset = todo.pop()
            below: list[tuple[str, int, int]] = []
            for entry in squashfs.read_entries(squashfs.read_folder(block, offset)):
                found = self._read_inode(f"{above}/{_decode_name(entry)}", entry.block, entry.offset)
                paths, characters = paths + 1, characters + len(found.path)
                if paths > PATHS or characters > CHARACTERS:
                    raise SquashfsError(f"it holds more than {PATHS} paths, or longer ones than any image")
                if found.kind == FOLDER:
                    if found.place in entered:
                        raise SquashfsError("a folder is in several places")
                    entered.add(found.place)
                    below.append((found.path, entry.block, entry.offset))
                yield found
            todo += reversed(below)

    def _read_inode(self, path: str, block: int, offset: int) -> File:
        """What an inode says; raises struct.error and LookupError."""
        data, begins = self.squashfs.inodes.whole
        place = begins[block] + offset
        kind, mode, owner, group, time, number = HEAD.unpack_from(data, place)
        owners, at = self.squashfs.owners, place + HEAD.size
        basic = kind - LONG if kind > LONG else kind
        size, links, target, device = 0, 1, "", None
        if basic == FILE:
            extent = parse_extent(kind, data, at)
            size, links = extent.size, extent.links
        elif basic == LINK:
            links, size = struct.unpack_from("<2I", data, at)
            if size > TARGET or at + 8 + size > len(data):
                raise SquashfsError("the target of a link is too long")
            target = data[at + 8 : at + 8 + size].decode("utf-8", "surrogateescape")
        elif basic in (BLOCK_DEVICE, DEVICE):
            links, word = struct.unpack_from("<2I", data, at)
            device = (word >> 8 & 0xFFF, word & 0xFF | word >> 12 & 0xFFF00)
        elif not FOLDER <= basic <= LONG:
            raise SquashfsError("the type of an inode is not known")
        return File(
            path, basic, mode & 0o7777, owners[owner], owners[group], time, size, number, place, links, target, device
        )

    # --- contents ------------------------------------------------------------------------------------------------

    def read(self, file: File, *, limit: int) -> bytes:
        """The content of a file of at most `limit` bytes."""
        if file.size > limit:
            raise SquashfsError(f"'{file.path}' has {file.size} bytes, {limit} at most are read")
        return b"".join(self.read_blocks(file))

    def read_blocks(self, file: File) -> Iterator[bytes]:
        """The content of a file, one block after the other; of what is no file nothing."""
        if file.kind != FILE:
            return
        try:
            yield from self._read_blocks(file)
        except DAMAGED as error:
            raise SquashfsError(f"the content of '{file.path}' is damaged: {error}") from None

    def _read_blocks(self, file: File) -> Iterator[bytes]:
        content = self._locate(file)
        for row in range(-(-content.size // self.squashfs.head.block_size)):
            yield self._read_row(content, row)

    def locate(self, file: File) -> Extents:
        """Where the content of a file is, for `read_part`."""
        try:
            return self._locate(file)
        except DAMAGED as error:
            raise SquashfsError(f"the content of '{file.path}' is damaged: {error}") from None

    def read_part(self, content: Extents, offset: int, size: int) -> bytes:
        """Some bytes of a file from a place in it on, fewer at its end."""
        block, end, parts = self.squashfs.head.block_size, min(content.size, offset + size), []
        while 0 <= offset < end:
            row, begin = divmod(offset, block)
            try:
                parts.append(self._read_row(content, row, keep=True)[begin : begin + end - offset])
            except DAMAGED as error:
                raise SquashfsError(f"the content of '{content.path}' is damaged: {error}") from None
            offset += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _locate(self, file: File) -> Extents:
        data, _ = self.squashfs.inodes.whole
        (kind,) = struct.unpack_from("<H", data, file.place)
        extent, block = parse_extent(kind, data, file.place + HEAD.size), self.squashfs.head.block_size
        whole, tail = divmod(extent.size, block)
        count = whole if extent.fragment != NO_FRAGMENT or not tail else whole + 1
        if extent.sizes + 4 * count > len(data):
            raise SquashfsError(f"the content of '{file.path}' is damaged: it has too few blocks")
        words = data[extent.sizes : extent.sizes + 4 * count]
        lengths = (word & (PLAIN - 1) for (word,) in struct.iter_unpack("<I", words))
        places = array("Q", accumulate(lengths, initial=extent.start))
        return Extents(file.path, extent.size, words, places, extent.fragment, extent.offset)

    def _read_row(self, content: Extents, row: int, *, keep: bool = False) -> bytes:
        """One block of a file, or the end of it that is in a fragment."""
        block = self.squashfs.head.block_size
        size = min(block, content.size - row * block)
        (word,) = struct.unpack_from("<I", content.words, 4 * row) if 4 * row < len(content.words) else (None,)
        if word is None:
            start, word, _ = FRAGMENT.unpack_from(self.squashfs.fragments, content.fragment * FRAGMENT.size)
            found = self._read_block(start, word, keep=True)[content.offset : content.offset + size]
        elif word:
            found = self._read_block(content.places[row], word, keep=keep)
        else:
            found = bytes(size)  # a hole
        if len(found) != size:
            raise SquashfsError(f"the content of '{content.path}' is damaged: a block of it is too short")
        return found

    def _read_block(self, start: int, word: int, *, keep: bool) -> bytes:
        if start in self._kept:
            self._kept.move_to_end(start)
            return self._kept[start]
        size = word & (PLAIN - 1)
        if word > 2 * PLAIN or size > self.squashfs.head.block_size:
            raise SquashfsError("it is damaged: a block of it is too long")
        self.unpacked += self.squashfs.head.block_size
        found = self.squashfs.read_bytes(start, start + size)
        found = found if word & PLAIN else self._unpack(found)
        if keep:
            self._kept[start] = found
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found

    # --- extended attributes -------------------------------------------------------------------------------------

    def read_attributes(self, file: File) -> Mapping[str, bytes]:
        try:
            return dict(self._read_attribute_set(self._read_attribute_number(file)))
        except DAMAGED as error:
            raise SquashfsError(f"the extended attributes are damaged: {error}") from None

    def _read_attribute_number(self, file: File) -> int:
        data, _ = self.squashfs.inodes.whole
        (kind,) = struct.unpack_from("<H", data, file.place)
        if kind <= LONG:
            return NO_FRAGMENT
        before = {FOLDER: 20, FILE: 36, LINK: 8 + file.size, BLOCK_DEVICE: 8, DEVICE: 8}.get(file.kind, 4)
        number: int = struct.unpack_from("<I", data, file.place + HEAD.size + before)[0]
        return number

    @cached_property
    def _attribute_table(self) -> tuple[MetadataTable, bytes]:
        """The attributes, and for each set of them where it is: 16 bytes."""
        squashfs = self.squashfs
        table = squashfs.head.attribute_table
        start, count, _ = struct.unpack("<Q2I", squashfs.read_bytes(table, table + 16))
        sets = squashfs.read_table(table + 16, 16 * count)
        end = min(squashfs.read_index(table + 16, 16 * count), default=table)
        return MetadataTable(raw=squashfs.read_bytes(start, end), unpack=squashfs.unpack), sets

    def _read_attribute_set(self, number: int) -> Iterator[tuple[str, bytes]]:
        if number == NO_FRAGMENT or self.squashfs.head.attribute_table == NONE:
            return
        table, sets = self._attribute_table
        place, count, _ = struct.unpack_from("<Q2I", sets, 16 * number)
        data, begins = table.whole
        at = begins[place >> 16] + (place & 0xFFFF)
        for _ in range(count):
            kind, length = struct.unpack_from("<2H", data, at)
            name, at = data[at + 4 : at + 4 + length], at + 4 + length
            (size,) = struct.unpack_from("<I", data, at)
            value, at = data[at + 4 : at + 4 + size], at + 4 + size
            if kind & ELSEWHERE:
                (other,) = struct.unpack("<Q", value)
                there = begins[other >> 16] + (other & 0xFFFF)
                (size,) = struct.unpack_from("<I", data, there)
                value = data[there + 4 : there + 4 + size]
            if len(value) != size:
                raise SquashfsError("the extended attributes are damaged")
            yield PREFIXES.get(kind & 0xFF, "unknown.") + name.decode("utf-8", "surrogateescape"), value


def drop_surrogates(path: str) -> str:
    """A path without half characters, which no JSON can hold."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _split_path(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _decode_name(entry: FolderEntry) -> str:
    """A name; raises SquashfsError where it leads out of its folder."""
    if b"/" in entry.name or entry.name in (b".", b"..") or b"\0" in entry.name:
        raise SquashfsError("a name leads out of its folder")
    return entry.name.decode("utf-8", "surrogateescape")
