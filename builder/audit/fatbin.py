"""NVIDIA's containers of device code: cubins and PTX for several architectures, in .nv_fatbin and __nv_relfatbin.

There is no public specification. The fields were read from containers that fatbinary 13.5 wrote of known
images (2026-11-23), and agree with `cuobjdump -all -lelf -lptx` 13.5.37 and elfgpu 0.1.0a1: a head of the word
0xBA55ED50, u16 version, u16 size of the head, u64 size of what follows; then entries of a head of at least 64 bytes:
u16 kind, u16 version 0x101, u32 size of the head, u64 size of the payload, at 24 u16 minor and u16 major (of PTX its
version), at 28 u32 architecture, at 40 u64 flags. Payloads may be packed, heads are not. Kind 0x100 (13.5, `-concat`)
packs several images together: its head holds u32 count, u32 size and that many heads, with the place of the image
instead of the size of the head.

What is in __nv_relfatbin counts too: where no linked cubin fits, the driver links the parts again for its GPU, out
of their PTX or cubins ("CUDA Compiler Driver NVCC", "JIT Linking"). cuobjdump lists it with -all only.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from .content import AuditError, Content, Window
from .device_code import Code

MAGIC = b"\x50\xed\x55\xba"
BEGIN = re.compile(re.escape(MAGIC))
HEAD = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQ8xHHI8xQ")  # kind, version, head, payload, minor, major, architecture, flags
ENTRY_SIZE = 64
PTX, CUBIN, SEVERAL = 1, 2, 0x100
ARCHITECTURE_SPECIFIC, FAMILY_SPECIFIC = 0x100000, 0x200000  # flags: sm_90a, sm_100f
LARGEST_HEAD = 1 << 16
CONTAINERS = 1_000_000  # of one file; a word that only looks like the beginning of one counts for ten
ENTRIES = 4_000_000  # of one file; a torch has some hundred thousand
TARGETS = 1000  # different ones of one file
SMALLEST, NEWEST = 10, 999  # architectures: sm_10 was the first


def read_fatbins(content: Content, *, offset: int, size: int) -> set[Code]:
    """The device code in a part of a file; what is no container there is passed over. Raises AuditError, OSError."""
    window = Window(content, offset=offset, size=size)
    seen: set[tuple[int, int, int, int, int]] = set()
    place, entries, containers = 0, 0, 0
    while (place := window.find(BEGIN, place, length=len(MAGIC))) >= 0:
        if place + HEAD.size > window.size:
            break
        _, version, head, body = HEAD.unpack(window.get(place, HEAD.size))
        sound = version == 1 and HEAD.size <= head <= LARGEST_HEAD and body <= window.size - place - head
        containers += 1 if sound else 10
        if containers > CONTAINERS:
            raise AuditError("its containers of device code are too many")
        if not sound:
            place += len(MAGIC)
            continue
        end = place + head + body
        for found in _read_entries(window, place + head, end):
            entries += 1
            if entries > ENTRIES or len(seen) > TARGETS:
                raise AuditError("its containers of device code hold too much")
            seen.add(found)
        place = end
    return {code for one in seen if (code := _make_code(*one)) is not None}


def _read_entries(window: Window, place: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Kind, minor, major, architecture and flags of each image."""
    while place + ENTRY_SIZE <= end:
        kind, _, head, payload, *rest = ENTRY.unpack_from(window.get(place, ENTRY_SIZE))
        if not ENTRY_SIZE <= head <= LARGEST_HEAD or payload > end - place - head:
            return
        if kind == SEVERAL and head > ENTRY_SIZE + 8:
            yield from _read_heads(window.get(place + ENTRY_SIZE, head - ENTRY_SIZE))
        else:
            yield (kind, *_sort_marks(*rest))
        place += head + payload


def _read_heads(table: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """The heads in a table: each has 64 bytes, and more where it says so, to a border of eight."""
    place = 8
    while place + ENTRY_SIZE <= len(table):
        kind, version, _, _, *rest = ENTRY.unpack_from(table, place)
        if kind in (PTX, CUBIN) and version == 0x101:
            yield (kind, *_sort_marks(*rest))
            place += ENTRY_SIZE
        else:
            place += 8


def _sort_marks(minor: int, major: int, number: int, flags: int) -> tuple[int, int, int, int]:
    return minor, major, number, flags & (ARCHITECTURE_SPECIFIC | FAMILY_SPECIFIC)


def _make_code(kind: int, minor: int, major: int, number: int, flags: int) -> Code | None:
    if kind not in (PTX, CUBIN) or not SMALLEST <= number <= NEWEST:
        return None
    name = f"{number}{'a' if flags & ARCHITECTURE_SPECIFIC else 'f' if flags & FAMILY_SPECIFIC else ''}"
    if kind == PTX:
        return Code(kind="ptx", target=f"compute_{name}", isa=f"{major}.{minor}")
    return Code(kind="cubin", target=f"sm_{name}")


def read_cubin(*, flags: int, abi: int) -> Code | None:
    """The architecture of a cubin by itself: an ELF file of machine 190.

    Source: EF_CUDA_SM, EF_CUDA_SM_MASK, EF_CUDA_ACCELERATORS_V1 in llvm/include/llvm/BinaryFormat/ELF.h (LLVM 21): the
    low byte, from ABI version 8 on the second one. From there on `a` and `f` are not in the header (cubins of ptxas
    13.5 for sm_100, sm_100a and sm_100f have the same flags, 2026-11-23).
    """
    number = flags >> 8 & 0xFF if abi >= 8 else flags & 0xFF
    suffix = "a" if abi < 8 and flags & 0x800 else ""
    return Code(kind="cubin", target=f"sm_{number}{suffix}") if number >= SMALLEST else None
