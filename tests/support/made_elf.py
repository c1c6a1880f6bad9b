"""Stand-ins for compiled files: an ELF file with just what the audit reads, and containers of device code in it."""

from __future__ import annotations

import ctypes
import struct
import types
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
X86, ARM, CUDA, AMDGPU = 62, 183, 190, 224


def elf(
    *, needed: Sequence[str] = (), soname: str = "", glibc: Sequence[str] = (), machine: int = X86,
    sections: Mapping[str, bytes] = types.MappingProxyType({}), flags: int = 0, abi: int = 0, headers: bool = True,
) -> bytes:  # fmt: skip
    """A 64-bit file: one loaded segment, which is the whole file at address 0, and a dynamic section."""
    strings = bytearray(b"\0")

    def name(word: str) -> int:
        strings.extend(word.encode() + b"\0")
        return len(strings) - 1 - len(word.encode())

    places = {word: name(word) for word in (*needed, soname, "libc.so.6", *glibc)}
    body = bytearray(64 + 2 * 56)
    dynamic = [(1, places[word]) for word in needed] + ([(14, places[soname])] if soname else [])
    versions = b""
    if glibc:
        rows_of = (
            struct.pack("<IHHII", 0, 0, 2 + row, places[word], 16 if row + 1 < len(glibc) else 0)
            for row, word in enumerate(glibc)
        )
        versions = struct.pack("<HHIII", 1, len(glibc), places["libc.so.6"], 16, 0) + b"".join(rows_of)
        dynamic += [(0x6FFFFFFE, len(body)), (0x6FFFFFFF, 1)]
    body += versions
    dynamic += [(5, len(body)), (10, len(strings)), (0, 0)]
    body += strings
    begin = len(body)
    body += b"".join(struct.pack("<qQ", *entry) for entry in dynamic)
    end = len(body)
    rows, names = [bytes(64)], bytearray(b"\0")
    for word, content in sections.items():
        body += bytes(-len(body) % 16)
        rows.append(struct.pack("<IIQQQQIIQQ", len(names), 1, 2, len(body), len(body), len(content), 0, 0, 16, 0))
        names += word.encode() + b"\0"
        body += content
    rows.append(struct.pack("<IIQQQQIIQQ", len(names), 3, 0, 0, len(body), len(names) + 10, 0, 0, 1, 0))
    body += names + b".shstrtab\0"
    body += bytes(-len(body) % 8)
    table = len(body)
    body += b"".join(rows) if headers else b""
    body[:16] = b"\x7fELF\2\1\1\0" + bytes([abi]) + bytes(7)
    count = len(rows) if headers else 0
    struct.pack_into(
        "<HHIQQQIHHHHHH", body, 16, 3, machine, 1, 0, 64, table if headers else 0, flags, 64, 56, 2,
        64 if headers else 0, count, max(0, count - 1),
    )  # fmt: skip
    struct.pack_into("<IIQQQQQQ", body, 64, 1, 5, 0, 0, 0, len(body), len(body), 4096)
    struct.pack_into("<IIQQQQQQ", body, 64 + 56, 2, 6, begin, begin, begin, end - begin, end - begin, 8)
    return bytes(body)


def fatbin(*images: tuple[str, int, str, str]) -> bytes:
    """A container of NVIDIA's: kind (cubin, ptx), number, suffix (a, f) and version of PTX of each image."""
    body = b""
    for kind, number, suffix, isa in images:
        major, _, minor = (isa or "1.8").partition(".")
        flags = 0x11 | {"": 0, "a": 0x100000, "f": 0x200000}[suffix]
        body += struct.pack("<HHIQQ", 1 if kind == "ptx" else 2, 0x101, 64, 32, 0)
        body += struct.pack("<HHIQQQQ", int(minor), int(major), number, 0, flags, 0, 0) + bytes(32)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def bundle(*targets: str) -> bytes:
    """A bundle of clang's for these gfx targets, with an empty entry for the host."""
    names = ["host-x86_64-unknown-linux-gnu-", *(f"hipv4-amdgcn-amd-amdhsa--{target}" for target in targets)]
    size = 32 + sum(24 + len(name) for name in names)
    rows, code = b"", b""
    for number, name in enumerate(names):
        own = bytes([number]) * 40 if number else b""
        rows += struct.pack("<QQQ", size + len(code), len(own), len(name)) + name.encode()
        code += own
    return BUNDLE + struct.pack("<Q", len(names)) + rows + code


def packed(content: bytes, *, version: int, zstd: bool) -> bytes:
    """A bundle as clang packs it."""
    body = compressed(content) if zstd else zlib.compress(content)
    head = b"CCOB" + struct.pack("<HH", version, int(zstd))
    if version == 1:
        return head + struct.pack("<IQ", len(content), 0) + body
    form = "<IIQ" if version == 2 else "<QQQ"
    return head + struct.pack(form, 8 + struct.calcsize(form) + len(body), len(content), 0) + body


def compressed(content: bytes) -> bytes:
    """What zstd makes of it."""
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compress.restype = ctypes.c_size_t
    library.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    room = ctypes.create_string_buffer(len(content) + (len(content) >> 6) + 1024)
    size = library.ZSTD_compress(room, len(room), content, len(content), 3)
    return room.raw[:size]


def wheel(path: Path, files: Mapping[str, bytes], *, tag: str = "cp312-cp312-manylinux_2_28_x86_64") -> Path:
    """A wheel of these files; its name and version are those of the path."""
    name, version = path.name.split("-")[:2]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for inside, content in files.items():
            archive.writestr(inside, content)
        archive.writestr(f"{name}-{version}.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
    return path


def installed(site: Path, name: str, files: Mapping[str, bytes], *, version: str = "1.0") -> None:
    """A package in a site-packages folder, with its RECORD."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    for inside, content in files.items():
        (site / inside).parent.mkdir(parents=True, exist_ok=True)
        (site / inside).write_bytes(content)
    (info / "RECORD").write_text("".join(f"{inside},sha256=x,{len(content)}\n" for inside, content in files.items()))
