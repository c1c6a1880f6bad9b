"""Code for GPUs in a file: CUDA's fat binaries, the bundles of clang (AMD, Intel) and the images of SYCL.

CUDA: there is no public specification. The fields were read from containers that fatbinary 13.5 wrote of known
images (2026-11-23), and agree with `cuobjdump -all -lelf -lptx` 13.5.37 and elfgpu 0.1.0a1: a head of the word
0xBA55ED50, u16 version, u16 size of the head, u64 size of what follows; then entries of a head of at least 64 bytes:
u16 kind, u16 version 0x101, u32 size of the head, u64 size of the payload, at 24 u16 minor and u16 major (of PTX its
version), at 28 u32 architecture, at 40 u64 flags. Payloads may be packed, heads are not. Kind 0x100 (13.5, `-concat`)
packs several images together: its head holds u32 count, u32 size and that many heads, with the place of the image
instead of the size of the head.

What is in __nv_relfatbin counts too: where no linked cubin fits, the driver links the parts again for its GPU, out
of their PTX or cubins ("CUDA Compiler Driver NVCC", "JIT Linking"). cuobjdump lists it with -all only.

Others: clang/docs/ClangOffloadBundler.rst, "Bundled Binary File Layout" and "Compressed Offload Bundle Format" (LLVM
21), read 2026-11-23: the word __CLANG_OFFLOAD_BUNDLE__, u64 count, then u64 offset, u64 size, u64 length and name of
each. Packed: CCOB, u16 version, u16 method (0 zlib, 1 zstd), then u32 size unpacked (version 1), u32 size and u32 size
unpacked (2), or both as u64 (3), and u64 hash. SYCL: sections that clang-offload-wrapper names
__CLANG_OFFLOAD_BUNDLE__sycl-TARGET (intel/llvm); spir64 is SPIR-V, spir64_gen is an `ar` archive of images whose names
end with the version of the device (ocloc of intel/compute-runtime).
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from .content import ZSTD_MAGIC, AuditError, Content, Window, unpack_zstd

Vendor = Literal["nvidia", "amd", "intel"]
Kind = Literal["cubin", "ptx", "hip", "sycl", "spirv"]
VENDOR: dict[Kind, Vendor] = {"cubin": "nvidia", "ptx": "nvidia", "hip": "amd", "sycl": "intel", "spirv": "intel"}


@dataclass(frozen=True, order=True, kw_only=True)
class Code:
    """Code for `target`: sm_90a (cubin), compute_90 (ptx), gfx90a:xnack- (hip), 12.60.7 (sycl), spir64 (spirv).

    `isa` is the version of PTX that the text is written in; a driver compiles it only where it knows that version.
    """

    kind: Kind
    target: str
    isa: str = ""

    @property
    def vendor(self) -> Vendor:
        """Whose GPUs it is for."""
        return VENDOR[self.kind]

    def __str__(self) -> str:
        return self.target


FATBIN = b"\x50\xed\x55\xba"
FATBIN_BEGIN = re.compile(re.escape(FATBIN))
HEAD = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQ8xHHI8xQ")  # kind, version, head, payload, minor, major, architecture, flags
ENTRY_SIZE = 64
PTX, CUBIN, SEVERAL = 1, 2, 0x100
ARCHITECTURE_SPECIFIC, FAMILY_SPECIFIC = 0x100000, 0x200000  # flags: sm_90a, sm_100f
LARGEST_HEAD = 1 << 16
CONTAINERS = 1_000_000  # of one file; a word that only looks like the beginning of one counts for ten
ENTRIES = 4_000_000  # of one file; a torch has some hundred thousand
TARGETS = 1000  # different ones of one fat binary or bundle
SMALLEST, NEWEST = 10, 999  # architectures: sm_10 was the first


def read_fatbins(content: Content, *, offset: int, size: int) -> set[Code]:
    """The device code in a part of a file; what is no container there is passed over. Raises AuditError, OSError."""
    window = Window(content, offset=offset, size=size)
    seen: set[tuple[int, int, int, int, int]] = set()
    place, entries, containers = 0, 0, 0
    while (place := window.find(FATBIN_BEGIN, place, length=len(FATBIN))) >= 0:
        if place + HEAD.size > window.size:
            break
        _, version, head, body = HEAD.unpack(window.get(place, HEAD.size))
        sound = version == 1 and HEAD.size <= head <= LARGEST_HEAD and body <= window.size - place - head
        containers += 1 if sound else 10
        if containers > CONTAINERS:
            raise AuditError("its containers of device code are too many")
        if not sound:
            place += len(FATBIN)
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


BUNDLE, PACKED = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB"
ROWS = 150  # of a bundle; those of a torch have some thirty
BUNDLES = 20_000  # of a file; a torch has some hundred
LOOKED, TIMES = 64 << 20, 32  # bytes that are looked at in a section: so many, and so often its size
BUNDLE_BEGIN = re.compile(re.escape(BUNDLE) + b"|" + PACKED)
NAME = 256  # bytes
FRONT = 16 << 10  # bytes that are unpacked of a bundle: its table has a hundred bytes a row
SLICE = 160 << 10  # packed bytes that are looked at for that: a block of zstd has at most 128 KiB
VERSIONS = {1: struct.Struct("<IQ"), 2: struct.Struct("<IIQ"), 3: struct.Struct("<QQQ")}
HIP = re.compile(r"(?:hip|hipv4|openmp)-amdgcn-amd-amdhsa-[^-]*-(gfx[0-9a-z-]+(?::[a-z]+[+-])*)")
ARCHIVE = b"!<arch>\n"
IMAGES, RATIO = 16 << 20, 60  # bytes unpacked of an archive of SYCL images, and times its size
FRAME, FRAMES = re.compile(re.escape(ZSTD_MAGIC)), 64
DEVICE = re.compile(r"64\.(\d+\.\d+\.\d+)/?")

# EF_AMDGPU_MACH in llvm/include/llvm/BinaryFormat/ELF.h (LLVM 21), read 2026-11-23: those of GFX9 and newer.
AMD_MACHINES = {
    0x2C: "gfx900", 0x2D: "gfx902", 0x2E: "gfx904", 0x2F: "gfx906", 0x30: "gfx908", 0x31: "gfx909", 0x32: "gfx90c",
    0x33: "gfx1010", 0x34: "gfx1011", 0x35: "gfx1012", 0x36: "gfx1030", 0x37: "gfx1031", 0x38: "gfx1032",
    0x39: "gfx1033", 0x3E: "gfx1034", 0x3D: "gfx1035", 0x3F: "gfx90a", 0x40: "gfx940", 0x41: "gfx1100", 0x42: "gfx1013",
    0x43: "gfx1150", 0x44: "gfx1103", 0x45: "gfx1036", 0x46: "gfx1101", 0x47: "gfx1102", 0x48: "gfx1200",
    0x49: "gfx1250", 0x4A: "gfx1151", 0x4B: "gfx941", 0x4C: "gfx942", 0x4E: "gfx1201", 0x4F: "gfx950",
    0x51: "gfx9-generic", 0x52: "gfx10-1-generic", 0x53: "gfx10-3-generic", 0x54: "gfx11-generic", 0x55: "gfx1152",
    0x58: "gfx1153", 0x59: "gfx12-generic", 0x5F: "gfx9-4-generic",
}  # fmt: skip


def read_bundles(content: Content, *, offset: int, size: int) -> set[Code]:
    """The targets of every bundle in a part of a file; raises AuditError and OSError."""
    window = Window(content, offset=offset, size=size)
    found: set[Code] = set()
    place, left = 0, LOOKED + TIMES * window.size
    for _ in range(BUNDLES):
        place = window.find(BUNDLE_BEGIN, place, length=len(BUNDLE))
        if place < 0:
            return found
        if window.get(place, 4) == PACKED:
            names, end, looked = _read_packed(window, place)
        else:
            names, end, looked = _read_plain(window, place)
        left -= looked
        if left < 0:
            raise AuditError("its bundles of device code overlap")
        found |= {code for name in names if (code := parse_code(name)) is not None}
        if len(found) > TARGETS:
            raise AuditError("its bundles of device code hold too much")
        place = max(end, place + 4)
    raise AuditError(f"it has more than {BUNDLES} bundles of device code")


def _read_packed(window: Window, place: int) -> tuple[list[str], int, int]:
    """The names in a bundle, where it ends, and how many bytes of it were looked at."""
    version, method = struct.unpack("<HH", window.get(place + 4, 4))
    layout = VERSIONS.get(version)
    if layout is None or method not in (0, 1):
        return [], place + 4, 4  # four letters of something else
    fields = layout.unpack(window.get(place + 8, layout.size))
    head = 8 + layout.size
    size = fields[0] if version > 1 else window.size - place
    if size < head:
        return [], place + 4, 4
    size = min(size, window.size - place)
    packed = window.get(place + head, min(size - head, SLICE))
    try:
        front = unpack_zstd(packed, limit=FRONT) if method else zlib.decompressobj().decompress(packed, FRONT)
    except zlib.error:
        raise AuditError("a bundle of device code is damaged") from None
    names = [name for name, _ in _parse_rows(front)]
    return names, place + (size if version > 1 else head), len(packed)


def _read_plain(window: Window, place: int) -> tuple[list[str], int, int]:
    front = window.get(place, min(FRONT, window.size - place))
    rows = list(_parse_rows(front))
    end = max((end for _, end in rows if end <= window.size), default=len(BUNDLE))
    return [name for name, _ in rows], place + end, len(front)


def _parse_rows(front: bytes) -> Iterator[tuple[str, int]]:
    """The names in a bundle's table, each with the place where its code ends; a row without code is left out."""
    if not front.startswith(BUNDLE) or len(front) < 32:
        return
    (count,) = struct.unpack_from("<Q", front, len(BUNDLE))
    at = len(BUNDLE) + 8
    for _ in range(min(count, ROWS)):
        if at + 24 > len(front):
            return
        offset, size, length = struct.unpack_from("<QQQ", front, at)
        if length > NAME or at + 24 + length > len(front):
            return
        if size:
            yield front[at + 24 : at + 24 + length].decode("ascii", errors="replace"), offset + size
        at += 24 + length


def parse_code(name: str) -> Code | None:
    """The code that an entry of a bundle names, None for the host's and for what is not for a GPU known here."""
    if match := HIP.fullmatch(name):
        return Code(kind="hip", target=match[1])
    return None


def read_code_object(*, flags: int) -> Code | None:
    """The target of an AMD code object by itself: an ELF file of machine 224, from its flags."""
    name = AMD_MACHINES.get(flags & 0xFF)
    if name is None:
        return None
    for feature, shift in (("sramecc", 10), ("xnack", 8)):
        state = flags >> shift & 3  # 0 not supported, 1 any, 2 off, 3 on
        name += f":{feature}{'+' if state == 3 else '-'}" if state > 1 else ""
    return Code(kind="hip", target=name)


def read_sycl(name: str, content: Content, *, offset: int, size: int) -> set[Code]:
    """The images in a section of SYCL's by its name: SPIR-V, or code for named devices; raises AuditError, OSError."""
    target = name.removeprefix(BUNDLE.decode()).removeprefix("sycl-")
    if target.startswith("spir64_gen"):
        packed = content.read(offset, min(size, IMAGES))
        devices = {device for archive in _list_images(packed) for device in _list_devices(archive)}
        return {Code(kind="sycl", target=device) for device in devices or {"intel_gpu"}}
    return {Code(kind="spirv", target="spir64")} if target in ("spir64", "spir64-unknown-unknown") else set()


def _list_images(section: bytes) -> Iterator[bytes]:
    """The images in a section, one behind the other; packed ones are recognised by their first word."""
    begins = [match.start() for match in FRAME.finditer(section)][:FRAMES]
    if not begins or begins[0]:
        yield section
    limit = min(IMAGES, FRONT + RATIO * len(section)) // max(1, len(begins))
    for begin in begins:
        with suppress(AuditError):  # the word may be there by chance
            yield unpack_zstd(section[begin:], limit=limit)


def _list_devices(archive: bytes) -> Iterator[str]:
    """The devices that the members of an archive are for: heads of 60 bytes, contents to a border of two."""
    at = len(ARCHIVE) if archive.startswith(ARCHIVE) else len(archive)
    for _ in range(ROWS):
        head = archive[at : at + 60]
        size = head[48:58].strip()
        if len(head) < 60 or not size.isdigit():
            return
        if match := DEVICE.match(head[:16].decode("ascii", errors="replace").strip()):
            yield match[1]
        at += 60 + int(size) + int(size) % 2
