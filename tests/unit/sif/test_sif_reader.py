"""Squashfs files of strangers, written by hand: each is refused in words, before it costs memory or time."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from support.rows import rows

from builder.sif import reader as module
from builder.sif.merge import make_blocks
from builder.sif.reader import Reader
from builder.sif.squashfs import (
    BLOCK,
    FILE,
    FOLDER,
    GZIP,
    HEAD,
    LIMIT,
    LINK,
    LISTING,
    LONG,
    NAME,
    NO_FRAGMENT,
    NONE,
    SUPERBLOCK,
    MetadataTable,
    SquashfsError,
    Superblock,
    make_unpacker,
)

MODE = (0o755, 0, 0, 7)  # mode, owner, group, time


def folder(number: int, *, start: int = 0, size: int = 0) -> bytes:
    return HEAD.pack(FOLDER, *MODE, number) + struct.pack("<2I2HI", 0, 2, size + 3, start, 1)


def listing(*rows: tuple[bytes, int, int]) -> bytes:
    """Names with the offsets and types of their inodes."""
    names = b"".join(NAME.pack(offset, 0, kind, len(name) - 1) + name for name, offset, kind in rows)
    return LISTING.pack(len(rows) - 1, 0, 1) + names


def image(inodes: bytes, listings: bytes, *, compression: int = GZIP) -> io.BytesIO:
    """A squashfs of tables that are not packed; its root is the first inode."""
    tables = [make_blocks(inodes), make_blocks(listings), b""]
    places = [SUPERBLOCK.size]
    for table in tables:
        places.append(places[-1] + len(table))
    owners = make_blocks(bytes(4)) + struct.pack("<Q", places[2])
    size = places[2] + len(owners)
    head = Superblock(
        inodes=9, time=7, block_size=1 << 17, fragments=0, compression=compression, log=17, flags=0, owners=1, root=0,
        size=size, owner_table=size - 8, attribute_table=NONE, inode_table=places[0], folder_table=places[1],
        fragment_table=places[2],
    )  # fmt: skip
    return io.BytesIO(head.to_bytes() + tables[0] + tables[1] + owners)


def one(name: bytes, inode: bytes) -> io.BytesIO:
    """A root that holds one file."""
    root = folder(1)
    names = listing((name, len(root), struct.unpack_from("<H", inode)[0]))
    return image(folder(1, size=len(names)) + inode, names)


def file(size: int, *, sizes: bytes = b"", fragment: int = NO_FRAGMENT) -> bytes:
    return HEAD.pack(FILE + LONG, *MODE, 2) + struct.pack("<3Q4I", 96, size, 0, 1, fragment, 0, NO_FRAGMENT) + sizes


def refused(content: io.BytesIO) -> str:
    """Why it is refused."""
    with pytest.raises(SquashfsError) as caught:
        read_all(content)
    return str(caught.value)


def read_all(content: io.BytesIO) -> None:
    reader = Reader(content)
    for found in reader.list_files():
        reader.read_attributes(found)
        for _ in reader.read_blocks(found):
            pass


def test_a_sound_image_is_read() -> None:
    reader = Reader(one(b"hole", file(200_000, sizes=bytes(8))))
    rows = list(reader.list_files())
    assert [(row.path, row.kind, row.mode, row.time, row.size) for row in rows] == [
        ("/", FOLDER, 0o755, 7, 0), ("/hole", FILE, 0o755, 7, 200_000),
    ]  # fmt: skip
    assert reader.read(rows[1], limit=200_000) == bytes(200_000)
    assert (reader.find("/hole"), reader.find("hole/x"), reader.find("/x")) == (rows[1], None, None)
    assert (reader.list_names("/"), reader.list_names("/hole"), reader.list_names("/none")) == ({"hole"}, set(), set())
    with pytest.raises(SquashfsError, match="199999 at most"):
        reader.read(rows[1], limit=199_999)


def test_security_15_a_folder_in_itself_is_refused() -> None:
    names = listing((b"a", 0, FOLDER))
    assert refused(image(folder(1, size=len(names)), names)) == "a folder is in several places"


@rows("name", [b"..", b".", b"a/b", b"/etc/passwd", b"a\0b"])
def test_security_15_a_name_that_leads_elsewhere_is_refused(name: bytes) -> None:
    assert refused(one(name, file(0))) == "a name leads out of its folder"


@rows(
    ("inode", "reason"),
    [
        (file(1 << 60), "too few blocks"),
        (file(10, fragment=5), "damaged"),
        (file(10, sizes=struct.pack("<I", 1 << 24 | 0xFFFFFF)), "too long"),
        (file(10, sizes=struct.pack("<I", 1 << 24 | 5)), "too short"),
        (file(10, sizes=struct.pack("<I", 5)), "damaged"),
        (HEAD.pack(LINK, *MODE, 2) + struct.pack("<2I", 1, 1 << 31), "target of a link is too long"),
        (HEAD.pack(LINK, *MODE, 2) + struct.pack("<2I", 1, 9), "target of a link is too long"),
        (HEAD.pack(15, *MODE, 2), "type of an inode"),
        (HEAD.pack(FILE, 0o644, 3, 0, 7, 2) + bytes(16), "damaged"),
        (HEAD.pack(FILE, *MODE, 2), "damaged"),
    ],
    ids=range(10),
)
def test_security_15_a_hostile_inode_is_refused(inode: bytes, reason: str) -> None:
    assert reason in refused(one(b"x", inode))


def test_security_15_more_paths_than_any_image_has(monkeypatch: pytest.MonkeyPatch) -> None:
    content = one(b"x", file(0))
    monkeypatch.setattr(module, "PATHS", 0)
    assert "more than 0 paths" in refused(content)


def test_security_15_a_table_that_unpacks_to_more_is_refused() -> None:
    packed = zlib.compress(bytes(BLOCK))
    block = struct.pack("<H", len(packed)) + packed
    unpack = make_unpacker(GZIP)
    assert len(MetadataTable(raw=block * 3, unpack=unpack).whole[0]) == 3 * BLOCK
    with pytest.raises(SquashfsError, match="too long"):
        MetadataTable(raw=block * (LIMIT // BLOCK + 1), unpack=unpack)
    longer = zlib.compress(bytes(BLOCK + 1))
    with pytest.raises(SquashfsError, match="too long"):
        unpack(longer)


@rows(
    ("compression", "reason"),
    [(3, "lzo, and there is no liblzo2.so.2"), (5, "lz4, and there is no liblz4.so.1"), (6, "zstd, and there is no"),
     (7, "the number 7"), (0, "the number 0")],
)  # fmt: skip
def test_a_compression_that_cannot_be_read_is_named(
    compression: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr("builder.sif.squashfs.ctypes.CDLL", missing)
    assert reason in refused(image(folder(1), b"", compression=compression))


@rows("cut", range(0, 200, 7))
def test_an_image_that_was_cut_off_is_refused(cut: int) -> None:
    content = one(b"x", file(0)).getvalue()
    assert refused(io.BytesIO(content[:cut])) in ("it is cut short", "it is not a squashfs of version 4.0")
