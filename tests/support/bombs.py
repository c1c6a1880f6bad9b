"""Small files that ask for much memory or time: each is made in less than a second, and none is larger than 70 MB."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path

from builder.sif.sif import (
    ALIGNMENT,
    DATA_JSON,
    DESCRIPTOR,
    LAYERS,
    PARTITION,
    SQUASHFS,
    SYSTEM,
    Sif,
    add_object,
    write_header,
)

MIB = 1 << 20
SBOM = 0x4009


def member(name: str, *, size: int = 0, kind: bytes = tarfile.REGTYPE) -> bytes:
    """The header of a member, whatever follows it."""
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def archive(files: dict[str, bytes], mode: str = "w") -> bytes:
    """A sound archive."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return target.getvalue()


def docker(layers: dict[str, bytes], mode: str = "w") -> bytes:
    """What `docker save` writes of an image with these layers."""
    config = json.dumps({"architecture": "amd64", "config": {"Labels": {"a": "b"}}, "history": []}).encode()
    manifest = json.dumps([{"Config": "c.json", "Layers": list(layers)}]).encode()
    return archive({**layers, "c.json": config, "manifest.json": manifest}, mode)


def sif(path: Path, objects: list[tuple[int, str, bytes, int]], *, hole: int = 0) -> Path:
    """A SIF with objects (kind, name, content, size); what is longer than its content is a hole."""
    slots = len(objects) + 2
    image = Sif(
        launch=b"#!/usr/bin/env run-singularity\n", arch=b"02\0", total=slots, descriptors=ALIGNMENT,
        reserved=slots * DESCRIPTOR.size, data=ALIGNMENT + slots * DESCRIPTOR.size, data_size=0, free=slots,
        modified=0, objects=[],
    )  # fmt: skip
    with path.open("wb") as file:
        item = add_object(image, size=max(hole, 4096), extra=PARTITION.pack(SQUASHFS, SYSTEM, b"02\0"))
        file.truncate(item.offset + item.size)
        for kind, name, content, size in objects:
            item = add_object(image, size=max(size, len(content)), kind=kind, name=name)
            file.seek(item.offset)
            file.write(content)
            file.truncate(item.offset + item.size)
        write_header(file, image, time=1)
    return path


def squashfs(path: Path, files: dict[str, bytes], *words: str) -> Path:
    """A squashfs with these files."""
    tree = path.with_suffix(".tree")
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(content)
    subprocess.run(["mksquashfs", tree, path, "-no-progress", "-quiet", "-all-root", *words], check=True)
    shutil.rmtree(tree)
    return path


def _pax(path: Path) -> None:
    zeros = gzip.compress(bytes(64 * MIB), 1)
    path.write_bytes(gzip.compress(member("x", size=1536 * MIB, kind=tarfile.XHDTYPE)) + zeros * 24)


def _longname(path: Path) -> None:
    letters = gzip.compress(b"a" * (64 * MIB), 1)
    path.write_bytes(gzip.compress(member("x", size=1536 * MIB, kind=tarfile.GNUTYPE_LONGNAME)) + letters * 24)


def _members(path: Path) -> None:
    path.write_bytes(gzip.compress(member("usr/share/x") * 50_000, 6) * 30)


def _skip(path: Path) -> None:
    zeros = gzip.compress(bytes(64 * MIB), 6)
    path.write_bytes(gzip.compress(member("x", size=65536 * MIB)) + zeros * 1024)


def _skip_bz2(path: Path) -> None:
    path.write_bytes(bz2.compress(member("x", size=65536 * MIB)) + bz2.compress(bytes(64 * MIB)) * 1024)


def _skip_xz(path: Path) -> None:
    path.write_bytes(lzma.compress(member("x", size=65536 * MIB)) + lzma.compress(bytes(64 * MIB), preset=0) * 1024)


def _xz_memory(path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1536 * MIB}]
    compressor = lzma.LZMACompressor(format=lzma.FORMAT_XZ, filters=[{**filters[0], "dict_size": 4096}])
    sound = compressor.compress(archive({"a": b"b"})) + compressor.flush()
    # The dictionary's size is one byte of the block's header, whose CRC32 follows: 1.5 GiB where 4 KiB were.
    block = bytearray(sound[12:24])
    block[4] = 37
    block[8:12] = zlib.crc32(bytes(block[:8])).to_bytes(4, "little")
    path.write_bytes(sound[:12] + bytes(block) + sound[24:])


def _pax_chain(path: Path) -> None:
    one = member("x", size=512, kind=tarfile.XHDTYPE) + b"12 path=abc\n".ljust(512, b"\0")
    path.write_bytes(one * 20_000)


def _pax_records(path: Path) -> None:
    content = b"5 a=\n" * 200_000
    one = member("x", size=len(content), kind=tarfile.XHDTYPE) + content + bytes(-len(content) % 512)
    path.write_bytes(gzip.compress(one * 8) * 8)


def _layer_of_members(path: Path) -> None:
    layer = gzip.compress(member("x") * 100_000, 6)
    path.write_bytes(docker({f"{row}.tar": layer for row in range(20)}))


def _same_layer(path: Path) -> None:
    rows = docker({"a.tar": gzip.compress(member("x") * 300_000)})
    manifest = json.dumps([{"Config": "c.json", "Layers": ["a.tar"] * 500}]).encode()
    path.write_bytes(rows.rstrip(b"\0") + bytes(-len(rows.rstrip(b"\0")) % 512) + archive({"manifest.json": manifest}))


def _records(path: Path) -> None:
    record = b"[" + b"[]," * 333_000 + b"[]]"
    path.write_bytes(docker({"l.tar": archive({f"conda-meta/a{row}-1-0.json": record for row in range(20)}, "w:gz")}))


def _status(path: Path) -> None:
    content = b"Package: a\n\n" * (16 * MIB // 12)
    layer = archive({"var/lib/dpkg/status": content, "var/lib/dpkg/status.d/x": content}, "w:gz")
    path.write_bytes(docker({"l.tar": layer}))


def _sbom(path: Path) -> None:
    sif(path, [(SBOM, "bill", b"{}", 6144 * MIB)])


def _layers(path: Path) -> None:
    rows = [{"title": str(row), "offset": 0, "size": 200 * MIB} for row in range(12_000)]
    told = json.dumps({"partition": 1, "layers": rows}).encode()
    sif(path, [(DATA_JSON, LAYERS, told, 0)], hole=200 * MIB)
    provenance = path.with_name(path.name + ".provenance.json")
    provenance.write_text(json.dumps({"subject": [{"digest": {"sha256": "0" * 64}}]}))


def _overlap(path: Path) -> None:
    sif(path, [(0x4007, f"o{row}", b"x", 0) for row in range(2000)], hole=200 * MIB)
    with path.open("r+b") as file:
        for row in range(2001):
            file.seek(ALIGNMENT + row * DESCRIPTOR.size)
            fields = list(DESCRIPTOR.unpack(file.read(DESCRIPTOR.size)))
            fields[0], fields[5:7], fields[12] = 0x4004, [ALIGNMENT * 400, 150 * MIB], PARTITION.pack(1, 4, b"02\0")
            file.seek(ALIGNMENT + row * DESCRIPTOR.size)
            file.write(DESCRIPTOR.pack(*fields[:12], fields[12] if isinstance(fields[12], bytes) else b"", b""))


def _dpkg(path: Path) -> None:
    content = b"Package: a\n\n" * (16 * MIB // 12)
    squashfs(path, {"var/lib/dpkg/status": content, "var/lib/dpkg/status.d/x": content})


def _many_status(path: Path) -> None:
    content = b"".join(b"Package: a%d\n\n" % row for row in range(20_000))
    squashfs(path, {f"var/lib/dpkg/status.d/x{row}": content for row in range(200)})


# The seven of the review first; the name of the file says which command reads it.
ARCHIVES: dict[str, Callable[[Path], None]] = {
    "pax.tar": _pax, "longname.tar": _longname, "members.tar": _members, "skip64g.tar": _skip,
    "skip-bz2.tar": _skip_bz2, "skip-xz.tar": _skip_xz, "xz-memory.tar": _xz_memory, "pax-chain.tar": _pax_chain,
    "pax-records.tar": _pax_records, "layers-of-members.tar": _layer_of_members, "same-layer.tar": _same_layer,
    "records.tar": _records, "status.tar": _status,
}  # fmt: skip
IMAGES: dict[str, Callable[[Path], None]] = {
    "sbom.sif": _sbom, "layers.sif": _layers, "overlap.sif": _overlap, "dpkg.sqfs": _dpkg,
    "many-status.sqfs": _many_status,
}  # fmt: skip


def truncated(path: Path, *, keep: float) -> Path:
    """The first part of a file."""
    cut = path.with_name(f"cut-{path.name}")
    with path.open("rb") as source, cut.open("wb") as target:
        target.write(source.read(min(int(path.stat().st_size * keep), 80 * MIB)))
    return cut


def digest(text: str) -> str:
    """The sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def special(folder: Path, name: str) -> Path:
    """A pipe, a device or a folder in the place of a file."""
    path = folder / name
    if name.startswith("pipe"):
        os.mkfifo(path)
    elif name.startswith("zero"):
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    return path
