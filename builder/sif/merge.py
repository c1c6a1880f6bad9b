"""Merges several squashfs into one: data blocks stay as they are, only the tables are new.

A runtime mounts one file system instead of one for each layer, and needs to know nothing of layers. The tables of the
first squashfs stay, too, with the new ones appended: the work does not grow with its size.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .squashfs import (
    BLOCK,
    DEVICE,
    FILE,
    FOLDER,
    FRAGMENT,
    HEAD,
    LINK,
    LISTING,
    LONG,
    NAME,
    NO_FRAGMENT,
    NONE,
    OPTIONS,
    PLAIN,
    WHITEOUT,
    Extent,
    FolderEntry,
    FolderInode,
    MetadataTable,
    Squashfs,
    SquashfsError,
    Superblock,
    parse_extent,
)

NAMES = 256  # of one part of a listing
FOLDER_LIMIT = 0xFFFF  # bytes of a listing that a short inode can tell
SHORT = 1 << 32  # a file that begins further on takes a long inode
NO_ATTRIBUTES = 0xFFFFFFFF
SIZES = dict(zip(range(4, 8), (24, 24, 20, 20), strict=True))  # of inodes: devices, pipes, sockets


@dataclass(frozen=True, kw_only=True)
class MergedTables:
    """The superblock at the beginning of the merged squashfs, and the tables at its end."""

    superblock: bytes
    tables: bytes


class TableWriter:
    """A table that grows, in blocks that are not packed; it begins with that of the first squashfs."""

    def __init__(self, table: MetadataTable | None) -> None:
        self.before, self.new = b"", bytearray()
        if table and table.places:
            # The last block is not full, and only a table's last block may be so.
            last = table.places[-1]
            self.before, self.new = table.raw[:last], bytearray(table.read_block(last)[0])

    def get_place(self) -> tuple[int, int]:
        """The position of the next byte: its block, and the offset in it."""
        block, offset = divmod(len(self.new), BLOCK)
        return len(self.before) + block * (BLOCK + 2), offset

    def to_bytes(self) -> bytes:
        return self.before + make_blocks(bytes(self.new))


def make_blocks(content: bytes) -> bytes:
    """A table's content in blocks that are not packed."""
    parts = (content[at : at + BLOCK] for at in range(0, len(content), BLOCK))
    return b"".join(struct.pack("<H", len(part) | PLAIN) + part for part in parts)


@dataclass(frozen=True, kw_only=True)
class MergeSource:
    """One squashfs, and what is added to the positions in its inodes."""

    squashfs: Squashfs
    begin: int  # its position in the merged squashfs
    fragment: int
    owners: Sequence[int]
    known: dict[tuple[int, int], FolderEntry] = field(default_factory=dict)  # copied inodes: hard links stay hard links

    def is_whiteout(self, entry: FolderEntry) -> bool:
        """Whether it marks a name of a lower layer as deleted."""
        if entry.kind != DEVICE:
            return False
        return self.squashfs.inodes.read(entry.block, entry.offset + HEAD.size + 4, 4) == WHITEOUT


def merge(first: Squashfs | None, more: Sequence[tuple[Squashfs, int]], *, end: int, time: int) -> MergedTables:
    """The tables for `first` and `more`, each with its position in the merged squashfs, the lowest first.

    `first` is at the beginning and below all others. Without it the result is itself a layer, and its whiteouts stay.
    `end` is the position of the new tables. Raises SquashfsError where the parts cannot be merged.
    """
    head = check_packing(first, more)
    try:
        return _Merge(first, more, time=time).write_tables(end, head=head)
    except (struct.error, LookupError, ValueError, OverflowError, RecursionError) as error:
        raise SquashfsError(f"a table is damaged: {error}") from None


def check_packing(first: Squashfs | None, more: Sequence[tuple[Squashfs, int]]) -> Superblock:
    """The superblock whose packing all share; raises SquashfsError where they cannot be merged."""
    head = first.head if first else more[0][0].head
    for squashfs, _ in more:
        if (squashfs.head.compression, squashfs.head.block_size) != (head.compression, head.block_size):
            raise SquashfsError("they differ in compression or block size")
        if squashfs.head.attribute_table != NONE:
            raise SquashfsError("a layer has extended attributes")
    return head


class _Merge:
    def __init__(self, first: Squashfs | None, more: Sequence[tuple[Squashfs, int]], *, time: int) -> None:
        self.time = time
        self.inodes, self.folders = (
            TableWriter(first.inodes if first else None),
            TableWriter(first.folders if first else None),
        )
        self.count = first.head.inodes if first else 0
        self.owners = list(first.owners) if first else []
        self.fragments = bytearray(first.fragments if first else b"")
        self.first = MergeSource(squashfs=first, begin=0, fragment=0, owners=range(len(self.owners))) if first else None
        self.sources = [self.first] if self.first else []
        self.sources += [self._add_source(squashfs, begin) for squashfs, begin in more]

    def _add_source(self, squashfs: Squashfs, begin: int) -> MergeSource:
        fragment = len(self.fragments) // FRAGMENT.size
        for start, size, unused in FRAGMENT.iter_unpack(squashfs.fragments):
            self.fragments += FRAGMENT.pack(start + begin, size, unused)
        for owner in squashfs.owners:
            if owner not in self.owners:
                self.owners.append(owner)
        owners = [self.owners.index(owner) for owner in squashfs.owners]
        return MergeSource(squashfs=squashfs, begin=begin, fragment=fragment, owners=owners)

    # --- the tree ----------------------------------------------------------------------------------------------------

    def write_folder(self, parts: Sequence[tuple[MergeSource, FolderInode]], *, parent: int | None) -> FolderEntry:
        """One folder of several above each other; mode, owner and time are those of the uppermost."""
        lowest, node = parts[0]
        number = node.number if lowest is self.first else self.take_number()
        rows = [
            self._write_entry(name, stack, parent=number) for name, stack in sorted(self._merge_names(parts).items())
        ]
        top, like = parts[-1]
        begin, size, index = self._write_listing(rows)
        # The parent of the root: a number that no file has.
        above = self.count + 1 if parent is None else parent
        words = (like.mode, top.owners[like.owner], top.owners[like.group], like.time, number)
        links = 2 + sum(row.kind == FOLDER for row in rows)
        place = self.inodes.get_place()
        if size + 3 <= FOLDER_LIMIT and not index:
            self.inodes.new += HEAD.pack(FOLDER, *words)
            self.inodes.new += struct.pack("<2I2HI", begin[0], links, size + 3, begin[1], above)
        else:
            self.inodes.new += HEAD.pack(FOLDER + LONG, *words)
            last = (len(index), begin[1], NO_ATTRIBUTES)
            self.inodes.new += struct.pack("<4I2HI", links, size + 3, begin[0], above, *last) + b"".join(index)
        return FolderEntry(name=b"", kind=FOLDER, block=place[0], offset=place[1], number=number)

    def take_number(self) -> int:
        """A number that no inode has."""
        self.count += 1
        return self.count

    def _merge_names(
        self, parts: Sequence[tuple[MergeSource, FolderInode]]
    ) -> Mapping[bytes, list[tuple[MergeSource, FolderEntry]]]:
        """The names in the folder, each with its entries from the lowest visible one up."""
        found: dict[bytes, list[tuple[MergeSource, FolderEntry]]] = {}
        for source, node in parts:
            for entry in source.squashfs.read_entries(node):
                below = found.get(entry.name)
                if source.is_whiteout(entry):
                    found.pop(entry.name, None)
                    if self.first:
                        continue
                elif below and entry.kind == FOLDER:
                    if below[-1][1].kind == FOLDER:
                        below.append((source, entry))
                        continue
                    if below[-1][0].is_whiteout(below[-1][1]):
                        raise SquashfsError("a folder is above a whiteout of its name")
                found[entry.name] = [(source, entry)]
        return found

    def _write_entry(
        self, name: bytes, stack: Sequence[tuple[MergeSource, FolderEntry]], *, parent: int
    ) -> FolderEntry:
        source, entry = stack[-1]
        if entry.kind == FOLDER and source is not self.first:
            parts = [(one, one.squashfs.read_folder(row.block, row.offset)) for one, row in stack]
            return self.write_folder(parts, parent=parent)._replace(name=name)
        return entry if source is self.first else self._copy_inode(source, entry)

    def _write_listing(self, rows: Sequence[FolderEntry]) -> tuple[tuple[int, int], int, list[bytes]]:
        """Write the names of a folder; where they begin, their bytes, and what finds a name in a long listing."""
        begin, start = self.folders.get_place(), len(self.folders.new)
        index: list[bytes] = []
        block, at = begin[0], 0
        while at < len(rows):
            head = rows[at]
            part = at
            while part < min(at + NAMES, len(rows)) and _can_follow(rows[part], head):
                part += 1
            here = self.folders.get_place()[0]
            if here != block:
                block = here
                index.append(struct.pack("<3I", len(self.folders.new) - start, here, len(head.name) - 1) + head.name)
            self.folders.new += LISTING.pack(part - at - 1, head.block, head.number)
            for row in rows[at:part]:
                self.folders.new += NAME.pack(row.offset, row.number - head.number, row.kind, len(row.name) - 1)
                self.folders.new += row.name
            at = part
        return begin, len(self.folders.new) - start, index

    def _copy_inode(self, source: MergeSource, entry: FolderEntry) -> FolderEntry:
        """Copy an inode that is not a folder's."""
        copied = source.known.get((entry.block, entry.offset))
        if copied is None:
            block, offset = self.inodes.get_place()
            number = self.take_number()
            self.inodes.new += _move_inode(source, entry, number=number)
            copied = FolderEntry(entry.name, entry.kind, block, offset, number)
            source.known[entry.block, entry.offset] = copied
            return copied
        return copied._replace(name=entry.name)

    # --- the whole ---------------------------------------------------------------------------------------------------

    def write_tables(self, end: int, *, head: Superblock) -> MergedTables:
        """Everything, one table behind the other without a gap: the kernel holds them to that."""
        root = self.write_folder([(source, source.squashfs.root) for source in self.sources], parent=None)
        tables = bytearray(self.inodes.to_bytes())
        folder_table = end + len(tables)
        tables += self.folders.to_bytes()
        fragment_table = _append_list(tables, bytes(self.fragments), end=end)
        owner_table = _append_list(tables, struct.pack(f"<{len(self.owners)}I", *self.owners), end=end)
        attribute_table = _append_attributes(tables, self.first.squashfs, end=end) if self.first else NONE
        superblock = Superblock(
            inodes=self.count, time=self.time, block_size=head.block_size,
            fragments=len(self.fragments) // FRAGMENT.size, compression=head.compression, log=head.log,
            flags=head.flags if self.first else head.flags & ~OPTIONS, owners=len(self.owners),
            root=root.block << 16 | root.offset, size=end + len(tables),
            owner_table=owner_table, attribute_table=attribute_table, inode_table=end, folder_table=folder_table,
            fragment_table=fragment_table,
        )  # fmt: skip
        return MergedTables(superblock=superblock.to_bytes(), tables=bytes(tables))


def _can_follow(row: FolderEntry, head: FolderEntry) -> bool:
    return row.block == head.block and -0x8000 <= row.number - head.number <= 0x7FFF


def _move_inode(source: MergeSource, entry: FolderEntry, *, number: int) -> bytes:
    data, begins = source.squashfs.inodes.whole
    at = begins[entry.block] + entry.offset
    kind, mode, owner, group, time, _ = HEAD.unpack_from(data, at)
    words = (mode, source.owners[owner], source.owners[group], time, number)
    at += HEAD.size
    if kind in (FILE, FILE + LONG):
        return _pack_file(source, words, parse_extent(kind, data, at), data=data)
    if kind in (LINK, LINK + LONG):
        size = 8 + struct.unpack_from("<2I", data, at)[1]
        return HEAD.pack(LINK, *words) + data[at : at + size]
    short = kind - LONG if kind > LONG else kind
    return HEAD.pack(short, *words) + data[at : at + SIZES[short] - HEAD.size]


def _pack_file(source: MergeSource, words: Sequence[int], extent: Extent, *, data: bytes) -> bytes:
    start, size, sparse, links, fragment, offset, at = extent
    block = source.squashfs.head.block_size
    count = -(-size // block) if fragment == NO_FRAGMENT else size // block
    start += source.begin if count else 0
    if fragment != NO_FRAGMENT:
        fragment += source.fragment
    sizes = data[at : at + 4 * count]
    if start < SHORT and size < SHORT and links == 1 and not sparse:
        return HEAD.pack(FILE, *words) + struct.pack("<4I", start, fragment, offset, size) + sizes
    fixed = struct.pack("<3Q4I", start, size, sparse, links, fragment, offset, NO_ATTRIBUTES)
    return HEAD.pack(FILE + LONG, *words) + fixed + sizes


def _append_list(tables: bytearray, content: bytes, *, end: int) -> int:
    """Append blocks and the list of their positions; returns the position of the list."""
    begin = end + len(tables)
    tables += make_blocks(content)
    place = end + len(tables)
    for row in range(-(-len(content) // BLOCK)):
        tables += struct.pack("<Q", begin + row * (BLOCK + 2))
    return place


def _append_attributes(tables: bytearray, first: Squashfs, *, end: int) -> int:
    """Append the extended attributes of the first squashfs; returns their position, NONE without any."""
    table = first.head.attribute_table
    if table == NONE:
        return NONE
    start: int
    count: int
    start, count, unused = struct.unpack("<Q2I", first.read_bytes(table, table + 16))
    places = first.read_index(table + 16, 16 * count)
    if not start <= table:
        raise SquashfsError("its extended attributes are damaged")
    move = end + len(tables) - start
    tables += first.read_bytes(start, table)
    tables += struct.pack("<Q2I", start + move, count, unused)
    tables += struct.pack(f"<{len(places)}Q", *(place + move for place in places))
    return table + move
