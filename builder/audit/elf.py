"""An ELF file as the loader sees it: what it needs, which glibc, and where its sections are.

Layout: System V ABI (gabi) chapters 4 and 5, and LSB 5.0 "Symbol Versioning"; read 2026-11-23. What is needed is read
through the program headers, as the loader does, so that a file without section headers is read too. Every count and
place is checked: a file may come from anybody. Raises AuditError and OSError alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .content import ELF, AuditError, Content

MACHINES = {3: "i686", 20: "ppc", 21: "ppc64le", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
CUDA, AMDGPU = 190, 224  # machines: an ELF file that is device code itself
INTEL_GPU = 205  # IntelGT
PROGRAMS, SECTIONS = 4096, 65_536  # of a file; the largest library has some hundred
DYNAMIC = 100_000  # entries
NEEDED = 4096
VERSIONS = 20_000  # steps along the chains of versions
NAMES = 16 << 20  # bytes of the sections' names
WORD = 1024  # bytes of a name
LOAD, DYNAMIC_SEGMENT = 1, 2
NOBITS = 8


class Layout(NamedTuple):
    """The structures of one class of files: header behind the identification, program, section, dynamic entry."""

    header: struct.Struct
    program: struct.Struct
    section: struct.Struct
    dynamic: struct.Struct


LAYOUTS = {
    1: Layout(*map(struct.Struct, ("<HHIIIIIHHHHHH", "<8I", "<10I", "<iI"))),
    2: Layout(*map(struct.Struct, ("<HHIQQQIHHHHHH", "<IIQQQQQQ", "<IIQQQQIIQQ", "<qQ"))),
}


class Section(NamedTuple):
    """One section; places are bytes of the file."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int


@dataclass(frozen=True, kw_only=True)
class Elf:
    """What an ELF file says of itself; `glibc` is the newest version that it needs, "" for none."""

    machine: int
    flags: int
    abi: int
    soname: str = ""
    needed: tuple[str, ...] = ()
    glibc: str = ""
    defines: str = ""  # the newest GLIBC_ version that it defines: that of libc.so.6
    sections: tuple[Section, ...] = ()
    loads: tuple[tuple[int, int], ...] = ()  # what of the file is loaded: offset and size


class _Reader:
    """One file while it is read."""

    def __init__(self, content: Content, layout: Layout) -> None:
        self.content, self.layout = content, layout
        self.loads: list[tuple[int, int, int]] = []  # address, offset, size in the file

    def read_exactly(self, offset: int, size: int) -> bytes:
        found = self.content.read(offset, size) if 0 <= offset <= self.content.size else b""
        if len(found) != size:
            raise AuditError("it is cut short")
        return found

    def find_place(self, address: int) -> int:
        """The place in the file of what is loaded to an address."""
        for begin, offset, size in self.loads:
            if begin <= address < begin + size:
                return offset + address - begin
        raise AuditError("an address of it is not loaded")

    def read_text(self, offset: int) -> str:
        found, end, _ = self.content.read(max(0, offset), WORD).partition(b"\0")
        if not end:
            raise AuditError("a name in it is too long")
        return found.decode("utf-8", errors="replace")


def read_elf(content: Content) -> Elf | None:
    """What an ELF file of either class says, None for any other file; of a file of big-endian order only that."""
    ident = content.read(0, 16)
    if len(ident) < 16 or ident[:4] != ELF or ident[4] not in LAYOUTS:
        return None
    if ident[5] != 1:
        return Elf(machine=0, flags=0, abi=ident[8])
    layout = LAYOUTS[ident[4]]
    reader = _Reader(content, layout)
    _, machine, _, _, programs, sections, flags, _, _, count, section_size, section_count, names = layout.header.unpack(
        reader.read_exactly(16, layout.header.size)
    )
    dynamic = _read_programs(reader, programs, count)
    soname, needed, glibc, defines = _read_dynamic(reader, *dynamic) if dynamic else ("", (), "", "")
    found: tuple[Section, ...] = ()
    if sections and section_size == layout.section.size:
        found = tuple(_read_sections(reader, sections, section_count, names))
    return Elf(
        machine=machine, flags=flags, abi=ident[8], soname=soname, needed=needed, glibc=glibc, defines=defines,
        sections=found, loads=tuple((offset, size) for _, offset, size in reader.loads),
    )  # fmt: skip


def _read_programs(reader: _Reader, offset: int, count: int) -> tuple[int, int] | None:
    """Note what is loaded where; the place and size of the dynamic section, None where there is none."""
    layout, dynamic = reader.layout.program, None
    if count > PROGRAMS:
        raise AuditError(f"it has more than {PROGRAMS} program headers")
    table = reader.read_exactly(offset, count * layout.size) if count else b""
    for row in layout.iter_unpack(table):
        if layout.size == 32:
            kind, place, address, _, size = row[:5]
        else:
            kind, _, place, address, _, size = row[:6]
        if kind == LOAD and place <= reader.content.size:
            reader.loads.append((address, place, min(size, reader.content.size - place)))
        elif kind == DYNAMIC_SEGMENT:
            dynamic = (place, size)
    return dynamic


def _read_dynamic(reader: _Reader, offset: int, size: int) -> tuple[str, tuple[str, ...], str, str]:
    """SONAME, what is needed, the newest glibc that is needed and the one that is defined."""
    layout = reader.layout.dynamic
    if size // layout.size > DYNAMIC:
        raise AuditError(f"its dynamic section has more than {DYNAMIC} entries")
    values: dict[int, int] = {}
    needed: list[int] = []
    raw = reader.content.read(offset, size)
    for tag, value in layout.iter_unpack(raw[: len(raw) - len(raw) % layout.size]):
        if tag == 0:
            break
        if tag == 1:
            needed.append(value)
        values.setdefault(tag, value)
    if len(needed) > NEEDED:
        raise AuditError(f"it needs more than {NEEDED} libraries")
    if 5 not in values:
        return "", (), "", ""
    strings = reader.find_place(values[5])
    names = tuple(reader.read_text(strings + value) for value in needed)
    soname = reader.read_text(strings + values[14]) if 14 in values else ""
    needs, defines = "", ""
    if 0x6FFFFFFE in values:
        words = _read_needed_versions(reader, reader.find_place(values[0x6FFFFFFE]), strings)
        needs = find_newest(words)
    if soname == "libc.so.6" and 0x6FFFFFFC in values:
        defines = find_newest(_read_defined_versions(reader, reader.find_place(values[0x6FFFFFFC]), strings))
    return soname, names, needs, defines


def _read_needed_versions(reader: _Reader, place: int, strings: int) -> Iterator[str]:
    """The names of all versions that are needed, of every library."""
    steps = 0
    while steps < VERSIONS:
        _, count, _, first, following = struct.unpack("<HHIII", reader.read_exactly(place, 16))
        at = place + first
        for _ in range(count):
            steps += 1
            if steps > VERSIONS:
                raise AuditError("its versions do not end")
            _, _, _, name, step = struct.unpack("<IHHII", reader.read_exactly(at, 16))
            yield reader.read_text(strings + name)
            if not step:
                break
            at += step
        steps += 1
        if not following:
            return
        place += following
    raise AuditError("its versions do not end")


def _read_defined_versions(reader: _Reader, place: int, strings: int) -> Iterator[str]:
    for _ in range(VERSIONS):
        _, _, _, _, _, first, following = struct.unpack("<HHHHIII", reader.read_exactly(place, 20))
        name, _ = struct.unpack("<II", reader.read_exactly(place + first, 8))
        yield reader.read_text(strings + name)
        if not following:
            return
        place += following
    raise AuditError("its versions do not end")


def find_newest(words: Iterator[str]) -> str:
    """The newest of GLIBC_2.x, "" where there is none."""
    found = [word[6:] for word in words if word.startswith("GLIBC_2.") and word[8:].replace(".", "").isdigit()]
    return max(found, key=parse_version, default="")


def parse_version(version: str) -> tuple[int, ...]:
    """A version in a form that can be compared."""
    return tuple(int(part[:9]) for part in version.split(".") if part.isdecimal() and part.isascii())


def _read_sections(reader: _Reader, offset: int, count: int, names: int) -> Iterator[Section]:
    layout = reader.layout.section
    first = layout.unpack(reader.read_exactly(offset, layout.size))
    count, names = count or first[5], names if names != 0xFFFF else first[6]
    if count > SECTIONS:
        raise AuditError(f"it has more than {SECTIONS} sections")
    rows = list(layout.iter_unpack(reader.read_exactly(offset, count * layout.size)))
    words = b""
    if 0 < names < count and rows[names][1] != NOBITS:
        if rows[names][5] > NAMES:
            raise AuditError("the names of its sections are too long")
        words = reader.content.read(min(rows[names][4], reader.content.size), rows[names][5])
    for name, kind, flags, _, place, size, *_ in rows:
        end = words.find(b"\0", name, name + WORD) if name < len(words) else -1
        text = words[name:end].decode("utf-8", errors="replace") if end >= 0 else ""
        if kind != NOBITS:
            place = min(place, reader.content.size)
            size = min(size, reader.content.size - place)
        yield Section(text, kind, flags, place, size)
