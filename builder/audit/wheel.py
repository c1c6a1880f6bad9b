"""The ELF files of a wheel, unpacked one by one and never run; within bounds, since anybody may have made it.

Layout: "Binary distribution format", packaging.python.org; APPNOTE 6.3.10 of zip, read 2026-11-23.
"""

from __future__ import annotations

import errno
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..sif.bounded import BoundsError, format_bound, open_file
from .binary import Binary, read_binary
from .content import ELF, AuditError, can_be_elf, unpack_member
from .distribution import Distribution, Inventory, Unread, make_inventory

MEMBERS = 300_000
DIRECTORY = 96 << 20  # bytes of the list of members
ROOM, TIMES = 1 << 30, 60  # unpacked: so many bytes, and so often the size of the file; CUDA's libraries have three
TEXT = 1 << 20  # bytes of the file WHEEL
TAGS = 100
INFO = re.compile(r"(?P<name>[^/]+?)-(?P<version>[^/-]+)\.dist-info/WHEEL")
DAMAGED = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error, ValueError, LookupError,
    OverflowError,
)  # fmt: skip
ENCRYPTED = 1


def read_wheel(path: Path) -> Inventory:
    """Every ELF file of a wheel; raises OSError, and AuditError for any other file."""
    with open_zip(path) as archive:
        name, version, tags = _read_papers(archive, path)
        binaries, unread = _read_binaries(archive)
    one = Distribution(kind="pip", name=name, version=version, binaries=tuple(binaries), tags=tags)
    return make_inventory("wheel", [one], unread=tuple(unread))


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """A zip archive whose list of members is within bounds; raises AuditError for whatever is wrong in it, OSError."""
    with open_file(path) as file:
        try:
            _check_directory(file)
            with zipfile.ZipFile(file) as archive:
                _check_sizes(archive, packed=file.seek(0, 2))
                yield archive
        except BoundsError:
            raise
        except (*DAMAGED, OSError) as error:
            raise translate_error(error) from None


def translate_error(error: Exception) -> Exception:
    """What a damaged archive makes Python's reader raise, as an AuditError; a true error of the system stays."""
    if isinstance(error, OSError) and error.errno != errno.EINVAL:  # a place before the beginning, or far too late
        return error
    return AuditError(f"it is no sound zip archive: {str(error)[:200]}")


def _check_directory(file: BinaryIO) -> None:
    """Refuse a list of members that would fill the memory, before it is read."""
    size = file.seek(0, 2)
    begin = max(0, size - (1 << 16) - 22)
    file.seek(begin)
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < 22:
        raise AuditError("it is no zip archive")
    count, length = struct.unpack_from("<HI", tail, at + 10)
    if (count == 0xFFFF or length == 0xFFFFFFFF) and tail[max(0, at - 20) : at].startswith(b"PK\6\7"):
        (place,) = struct.unpack_from("<Q", tail, at - 12)
        file.seek(min(place, size))
        head = file.read(56)
        if not head.startswith(b"PK\6\6") or len(head) < 56:
            raise AuditError("the list of its members is damaged")
        count, length = struct.unpack_from("<QQ", head, 32)
    if count > MEMBERS or length > DIRECTORY:
        raise AuditError(f"it holds more than {MEMBERS} members")


def _check_sizes(archive: zipfile.ZipFile, *, packed: int) -> None:
    total = sum(member.file_size for member in archive.infolist())
    if total > ROOM + TIMES * packed:
        raise AuditError(f"it unpacks to more than {format_bound(ROOM)} and {TIMES} times its size")


def _read_papers(archive: zipfile.ZipFile, path: Path) -> tuple[str, str, tuple[str, ...]]:
    """Name, version and tags: those of its own metadata, or of its file name."""
    for member in archive.infolist():
        match = INFO.fullmatch(member.filename)
        if match is not None:
            with archive.open(member) as file:
                text = file.read(TEXT).decode("utf-8", errors="replace")
            tags = [line[4:].strip() for line in text.splitlines() if line.startswith("Tag:")]
            return match["name"].replace("_", "-"), match["version"], tuple(tags[:TAGS])
    parts = path.name.removesuffix(".whl").split("-")
    if len(parts) >= 5:
        return parts[0].replace("_", "-"), parts[1], ("-".join(parts[-3:]),)
    raise AuditError("it is no wheel: there is no *.dist-info/WHEEL in it")


def _read_binaries(archive: zipfile.ZipFile) -> tuple[list[Binary], list[Unread]]:
    found: list[Binary] = []
    unread: list[Unread] = []
    for member in archive.infolist():
        if member.filename.endswith("/") or not can_be_elf(member.filename, member.file_size):
            continue
        try:
            if (binary := _read_binary(archive, member)) is not None:
                found.append(binary)
        except (*DAMAGED, OSError) as error:  # AuditError is a ValueError
            if isinstance(error, OSError) and error.errno != errno.EINVAL:
                raise
            unread.append(Unread(path=member.filename, reason=str(error)[:200] or "it is damaged"))
    return found, unread


def _read_binary(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Binary | None:
    if member.flag_bits & ENCRYPTED:
        raise AuditError("it is encrypted")
    with archive.open(member) as stream:
        head = stream.read(4)
        if head != ELF:
            return None
        with unpack_member(stream, size=member.file_size, head=head) as content:
            return read_binary(member.filename, content)
