"""Reads a foreign tar archive, compressed or not, one member after the other and within bounds.

Python's own reader takes what a header asks for: a name of 1.5 GiB, a million members in a list. Layout: POSIX.1-2017,
pax; GNU tar's manual, "Basic Tar Format", read 2026-11-22. Everything here raises ArchiveError and OSError alone.
"""

from __future__ import annotations

import bz2
import lzma
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from .bounded import BoundsError, format_bound, open_file, parse_json

BLOCK = 512
HEADER = struct.Struct("<100s24x12s12s8sc100x6s82x155s12x")
ZEROS = bytes(BLOCK)
CHUNK = 1 << 18  # bytes that are unpacked at once
MEMBERS = 1_000_000  # of all archives of an image together
SMALL, SMALL_ALL, SMALLEST = 1 << 20, 1 << 24, 256  # bytes of a file that describes an image, of all, of keeping one
DEEP = 2  # folders above such a file: blobs/sha256
NAMES = 1 << 20  # bytes of a member's extended header
RECORDS = 1000  # in such a header
DICTIONARY = 128 * 1024 * 1024  # bytes of xz's memory; its highest level takes 65 MiB
UNKNOWN = 1 << 80  # bytes of a stream whose length is not known
ROOM, TIMES = 96 * 1024 * 1024, 8  # unpacked: so many bytes, and so often what was read; images have two to five
PAX, LONG_NAME, SPARSE = (b"x", b"X"), b"L", b"S"
EXTENDED = (*PAX, LONG_NAME, b"g", b"K")  # these say something of what follows
REGULAR = (b"0", b"\0", b"7")
EMPTY = (b"1", b"2", b"3", b"4", b"5", b"6")  # links, devices and folders: no content follows, whatever the size


class ArchiveError(BoundsError):
    """An archive that is damaged, or more than it may be."""


@dataclass(kw_only=True)
class Bounds:
    """Counts what was read and unpacked of one image."""

    members: int = 0
    packed: int = 0
    unpacked: int = 0
    room: int = ROOM
    times: int = TIMES

    def count_member(self) -> None:
        self.members += 1
        if self.members > MEMBERS:
            raise ArchiveError(f"it holds more than {MEMBERS} members")

    def unpack(self, size: int) -> None:
        """Count unpacked bytes."""
        self.unpacked += size
        if self.unpacked > self.room + self.times * self.packed:
            raise ArchiveError(f"it unpacks to more than {format_bound(self.room)} and {self.times} times its size")


class Member(NamedTuple):
    """One entry of an archive; the time in seconds since 1970."""

    name: str
    kind: bytes
    size: int
    time: int

    @property
    def regular(self) -> bool:
        """Whether it is an ordinary file."""
        return self.kind in REGULAR


class Stream:
    """Bytes that come one after the other."""

    def __init__(self, bounds: Bounds, *, left: int = UNKNOWN) -> None:
        """`left` is the number of bytes to its end."""
        self.bounds, self.left = bounds, left
        self._ahead = b""

    def read_some(self, most: int) -> bytes:
        """One to `most` bytes; empty at the end."""
        raise NotImplementedError

    def peek(self, size: int) -> bytes:
        """The next bytes, without consuming them."""
        found = bytes(self.read(size))
        self.put_back(found)
        return found

    def put_back(self, found: bytes) -> None:
        """Put bytes back that were read."""
        self._ahead = found + self._ahead

    def read(self, size: int) -> bytes | bytearray:
        """Read this many bytes, fewer at the end."""
        found, self._ahead = self._ahead[:size], self._ahead[size:]
        if len(found) == size:
            return found
        found = found or self.read_some(size)
        if len(found) in (0, size):
            return found
        longer = bytearray(found)
        while len(longer) < size and (part := self.read_some(min(CHUNK, size - len(longer)))):
            longer += part
        return longer

    def skip(self, size: int) -> None:
        """Skip so many bytes; raises ArchiveError where there are fewer."""
        ahead = min(size, len(self._ahead))
        self._ahead, size = self._ahead[ahead:], size - ahead
        if size > self.left:
            raise ArchiveError("it is cut short")
        self.left -= size
        self._skip(size)

    def _skip(self, size: int) -> None:
        while size > 0:
            found = len(self.read(min(CHUNK, size)))
            if not found:
                raise ArchiveError("it is cut short")
            size -= found


class FileStream(Stream):
    """A file."""

    def __init__(self, file: BinaryIO, bounds: Bounds) -> None:
        super().__init__(bounds, left=os.fstat(file.fileno()).st_size)
        self.file = file
        file.seek(0)

    def read_some(self, most: int) -> bytes:
        """Read."""
        found = self.file.read(min(most, CHUNK))
        self.left -= len(found)
        self.bounds.packed += len(found)
        return found

    def _skip(self, size: int) -> None:
        self.file.seek(size, os.SEEK_CUR)


class StreamPart(Stream):
    """The next `size` bytes of another stream."""

    def __init__(self, whole: Stream, size: int) -> None:
        super().__init__(whole.bounds, left=size)
        self.whole = whole

    def read_some(self, most: int) -> bytes:
        """Read, to the end of the part."""
        found = bytes(self.whole.read(min(most, self.left, CHUNK)))
        self.left -= len(found)
        return found

    def _skip(self, size: int) -> None:
        self.whole.skip(size)


class _Gzip:
    """zlib in the manner of bz2 and lzma."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data


UNPACKERS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": _Gzip,
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\0": lambda: lzma.LZMADecompressor(memlimit=DICTIONARY),
}
ZSTD = b"\x28\xb5\x2f\xfd"


class DecompressedStream(Stream):
    """What a compressed stream holds; streams that follow each other are one."""

    def __init__(self, packed: Stream, make: Callable[[], Any]) -> None:
        super().__init__(packed.bounds)
        self.packed, self._make, self._inner = packed, make, make()

    def read_some(self, most: int) -> bytes:
        """Unpack."""
        while True:
            if self._inner.eof and not self._start_next():
                return b""
            data = bytes(self.packed.read(CHUNK)) if self._inner.needs_input else b""
            try:
                found: bytes = self._inner.decompress(data, min(most, CHUNK))
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, MemoryError) as error:
                raise ArchiveError(f"it is damaged: {error}") from None
            if found:
                self.bounds.unpack(len(found))
                return found
            if not data and self._inner.needs_input and not self._inner.eof:
                raise ArchiveError("it is cut short")

    def _start_next(self) -> bool:
        """Whether another stream begins where one has ended; zeros fill what is left of a tape's block."""
        rest = self._inner.unused_data.lstrip(b"\0") or bytes(self.packed.read(CHUNK)).lstrip(b"\0")
        if not any(rest.startswith(magic) for magic, make in UNPACKERS.items() if make is self._make):
            return False
        self.packed.put_back(rest)
        self._inner = self._make()
        return True


def unpack_stream(stream: Stream) -> Stream:
    """The stream, decompressed if necessary; raises ArchiveError."""
    head = stream.peek(6)
    if head.startswith(ZSTD):
        raise ArchiveError("it is compressed with zstd, which is not read here")
    make = next((make for magic, make in UNPACKERS.items() if head.startswith(magic)), None)
    return stream if make is None else DecompressedStream(stream, make)


def is_archive(path: Path) -> bool:
    """Whether a file begins as an archive; raises OSError."""
    try:
        with open_file(path) as file:
            return next(read_members(FileStream(file, Bounds())), None) is not None
    except ArchiveError:
        return False


def read_small_files(archive: Stream) -> dict[str, bytes]:
    """The small files at the top of an archive, which describe the image: the manifest names one of them."""
    found: dict[str, bytes] = {}
    room = SMALL_ALL
    for member, content in read_members(archive):
        if member.regular and member.size <= min(SMALL, room) and member.name.count("/") <= DEEP:
            found[member.name] = bytes(content.read(member.size))
            room -= member.size + SMALLEST
    return found


def read_image_config(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first image of what `docker save` wrote, and its configuration; raises ValueError, LookupError, OSError."""
    with open_file(path) as file:
        found = read_small_files(FileStream(file, Bounds()))
    first = parse_json(found["manifest.json"])[0]
    config = parse_json(found[str(first["Config"])])
    if not isinstance(first, dict) or not isinstance(config, dict):
        raise ArchiveError("its manifest is not valid")
    return first, config


def read_members(stream: Stream) -> Iterator[tuple[Member, Stream]]:
    """The members of an archive, each with its content, which can be read until the next one is requested."""
    stream, more = unpack_stream(stream), _ExtendedHeader()
    while len(head := stream.read(BLOCK)) == BLOCK and head != ZEROS:
        stream.bounds.count_member()
        member = _parse_header(bytes(head))
        if member.kind in EXTENDED:
            more.take(member.kind, _read_header_content(stream, member.size))
            continue
        if member.kind == SPARSE:
            _skip_map(stream, head)
        if more.said:
            member, more = more.apply_to(member), _ExtendedHeader()
        part = StreamPart(stream, member.size)
        yield member, part
        if member.size:
            stream.skip(part.left + -member.size % BLOCK)
    if 0 < len(head) < BLOCK:
        raise ArchiveError("it is cut short")


@dataclass(kw_only=True)
class _ExtendedHeader:
    """What the extended headers say of the member that follows."""

    name: str = ""
    size: int | None = None
    time: int | None = None
    sparse: bool = False
    said: bool = False

    def take(self, kind: bytes, content: bytes) -> None:
        self.said = True
        if kind == LONG_NAME:
            self.name = _decode_name(content)
        elif kind in PAX:
            found = _parse_records(content)
            self.name = _decode_name(found.get(b"path", b"")) or self.name
            self.size = _parse_decimal(found[b"size"]) if b"size" in found else self.size
            self.time = _parse_decimal(found[b"mtime"]) if b"mtime" in found else self.time
            self.sparse = self.sparse or any(key.startswith(b"GNU.sparse.") for key in found)

    def apply_to(self, member: Member) -> Member:
        size = member.size if self.size is None or member.kind in EMPTY else self.size
        kind = SPARSE if self.sparse else member.kind
        time = member.time if self.time is None else self.time
        return Member(name=self.name or member.name, kind=kind, size=size, time=time)


def _read_header_content(stream: Stream, size: int) -> bytes:
    """What an extended header holds."""
    if size > NAMES:
        raise ArchiveError(f"the name of a member has more than {format_bound(NAMES)}")
    found = bytes(stream.read(size))
    if len(found) < size:
        raise ArchiveError("it is cut short")
    stream.skip(-size % BLOCK)
    return found


def _skip_map(stream: Stream, head: bytes | bytearray) -> None:
    """The blocks in which GNU tar says where the holes of a file are."""
    more = head[482:483]
    while more not in (b"", b"\0"):
        stream.bounds.count_member()
        more = stream.read(BLOCK)[504:505]


def _parse_header(head: bytes) -> Member:
    name, size, time, said, kind, magic, prefix = HEADER.unpack(head)
    # Adler-32's lower half is one more than the sum of all bytes, of which those of the sum itself count as blanks.
    if ((zlib.adler32(head[:148] + b"        " + head[156:]) & 0xFFFF) - 1 - _parse_number(said)) % 65521:
        raise ArchiveError("it is damaged: the sum of a header is wrong")
    name = name.split(b"\0", 1)[0]
    if magic == b"ustar\0" and prefix[0]:
        name = prefix.split(b"\0", 1)[0] + b"/" + name
    if kind == b"\0" and name.endswith(b"/"):
        kind = b"5"
    return Member(_decode_name(name), kind, 0 if kind in EMPTY else _parse_number(size), _parse_number(time))


def _parse_number(field: bytes) -> int:
    """A number of a header: octal digits, or bytes where the first says so; a negative one counts as zero."""
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big") if field[0] == 0x80 else 0
    try:
        return int(field.split(b"\0", 1)[0].strip() or b"0", 8)
    except ValueError:
        raise ArchiveError("it is damaged: a header holds no number where one belongs") from None


def _parse_decimal(digits: bytes) -> int:
    """A number of an extended header; of a time the seconds."""
    whole = digits.partition(b".")[0].removeprefix(b"-")
    if not whole.isdigit() or len(whole) > 20:
        raise ArchiveError("it is damaged: an extended header holds no number where one belongs")
    return 0 if digits.startswith(b"-") else int(whole)


def _parse_records(content: bytes) -> dict[bytes, bytes]:
    """The records of an extended header: their length, a blank, a key, an equals sign, a value and a line break."""
    found: dict[bytes, bytes] = {}
    at, count = 0, 0
    while at < len(content) and content[at]:
        end = content.find(b" ", at, at + 9)
        length = int(content[at:end]) if end > at and content[at:end].isdigit() else 0
        count += 1
        if length <= end - at or at + length > len(content) or count > RECORDS:
            raise ArchiveError("it is damaged: an extended header is not valid")
        key, _, value = content[end + 1 : at + length - 1].partition(b"=")
        found[key] = value
        at += length
    return found


def _decode_name(name: bytes) -> str:
    return name.split(b"\0", 1)[0].decode("utf-8", errors="surrogateescape")
