"""The ELF files of a wheel or a conda package: read one by one, within bounds, and never run.

Layout: "Binary distribution format", packaging.python.org; APPNOTE 6.3.10 of zip, read 2026-11-23.

Layout: conda-package-handling, "conda file format" (version 2), read 2026-11-23.
"""

from __future__ import annotations

import errno
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from ..sif.archive import Bounds, FileStream, Stream, read_members
from ..sif.bounded import BoundsError, format_bound, open_file, parse_json
from .binary import Binary, read_binary
from .content import ELF, AuditError, ZstdReader, can_be_elf, unpack_member
from .distribution import Distribution, Inventory, Unread, make_inventory
from .variants import FILE as VARIANT_FILE
from .variants import SIZE as VARIANT_SIZE
from .variants import Features, parse_variants
from .wheel_names import drop_label, find_label

MEMBERS = 300_000
DIRECTORY = 96 << 20  # bytes of the list of members
ROOM, TIMES = 1 << 30, 60  # unpacked: so many bytes, and so often the size of the file; CUDA's libraries have three
TEXT = 1 << 20  # bytes of the file WHEEL or index.json
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
        variant, features = _read_variant(archive, label=find_label(path.name))
        binaries, unread = _read_binaries(archive)
    one = Distribution(
        kind="pip", name=name, version=version, binaries=tuple(binaries), tags=tags, variant=variant, features=features
    )
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
    parts = drop_label(path.name).removesuffix(".whl").split("-")
    if len(parts) >= 5:
        return parts[0].replace("_", "-"), parts[1], ("-".join(parts[-3:]),)
    raise AuditError("it is no wheel: there is no *.dist-info/WHEEL in it")


VARIANT = re.compile(rf"[^/]+\.dist-info/{re.escape(VARIANT_FILE)}")


def _read_variant(archive: zipfile.ZipFile, *, label: str) -> tuple[str, Features]:
    """The label and the properties of a variant wheel; raises AuditError where name and content do not agree."""
    for member in archive.infolist():
        if VARIANT.fullmatch(member.filename):
            with archive.open(member) as file:
                found = parse_variants(file.read(VARIANT_SIZE + 1))
            if len(found) != 1 or (label and label not in found):
                what = f"the variant '{label}' alone" if label else "one variant"
                raise AuditError(f"{VARIANT_FILE} of the wheel does not describe {what}")
            return next(iter(found.items()))
    if label:
        raise AuditError(f"its name says the variant '{label}', and there is no {VARIANT_FILE} in it")
    return "", {}


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


INDEX = "info/index.json"


def make_roomy_bounds() -> Bounds:
    """Bounds for libraries of CUDA, which are packed better than the files of a system."""
    return Bounds(room=ROOM, times=TIMES)


class _Zstd(Stream):
    """A packed member of a .conda."""

    def __init__(self, packed: BinaryIO, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.packed = ZstdReader(_CountingReader(packed, bounds))

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
