"""Conda channels made of tiny packages with real metadata, as `.conda` and `.tar.bz2`, indexed by py-rattler."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

EPOCH = 1_700_000_000
LONG = "/tmp/build_env" + "_placehold" * 20
BLOCK = 128 * 1024  # bytes: what one block of zstd may hold


@dataclass(frozen=True, kw_only=True)
class Tiny:
    """One package; `files` are by their path in the prefix, /PLACEHOLDER in them is the prefix; `links` are symbolic.

    In bytes the prefix is LONG, as conda-build makes it: what replaces it is padded with NULs.
    """

    name: str
    version: str = "1.0"
    build: str = "0"
    number: int = 0
    subdir: str = "linux-64"
    depends: tuple[str, ...] = ()
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    entry_points: tuple[str, ...] = ()  # of a pure package
    old_format: bool = False  # .tar.bz2

    @property
    def stem(self) -> str:
        """The file's name without its suffix."""
        return f"{self.name}-{self.version}-{self.build}"


# What tests solve: a Python for two architectures, a pure package, one with builds by glibc and by CUDA.
PACKAGES: tuple[Tiny, ...] = (
    *(
        Tiny(
            name="python", version=version, build="h0_cpython", subdir=subdir, depends=("__glibc >=2.17", "tinyc"),
            files={"bin/python": f"#!/bin/sh\necho Python {version}\n"},
        )
        for version in ("3.11.9", "3.12.4")
        for subdir in ("linux-64", "linux-aarch64")
    ),
    *(Tiny(name="tinyc", version="1.2", build="h1", subdir=subdir) for subdir in ("linux-64", "linux-aarch64")),
    Tiny(name="pip", version="24.0", build="pyhd8ed1ab_0", subdir="noarch", depends=("python >=3.8",)),
    Tiny(name="numpy", version="1.26.4", build="py312h_0", depends=("python >=3.12,<3.13.0a0", "__glibc >=2.17")),
    Tiny(
        name="numpy", version="1.26.4", build="py312ha_0", subdir="linux-aarch64", depends=("python >=3.12,<3.13.0a0",)
    ),
    Tiny(name="purepy", version="2.0", build="pyh_0", subdir="noarch", depends=("python >=3.8",), old_format=True),
    Tiny(name="mathlib", build="old_0", depends=("__glibc >=2.17",)),
    Tiny(name="mathlib", build="new_1", number=1, depends=("__glibc >=2.37",)),
    Tiny(name="gpulib", build="cpu_0", depends=()),
    Tiny(name="gpulib", build="cuda_1", number=1, depends=("__cuda >=12",)),
)  # fmt: skip


def zstd(data: bytes) -> bytes:
    """A zstd frame that holds its data as it is (RFC 8878, raw blocks): no library is needed to write one."""
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)] or [b""]
    out = bytearray(struct.pack("<IB", 0xFD2FB528, 0xE0) + struct.pack("<Q", len(data)))
    for number, block in enumerate(blocks, start=1):
        out += ((len(block) << 3) | (number == len(blocks))).to_bytes(3, "little") + block
    return bytes(out)


def _tar(files: Mapping[str, bytes], *, links: Mapping[str, str] | None = None, mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mtime, entry.mode = (
                len(data),
                EPOCH,
                0o755 if path.startswith(("bin/", "python-scripts/")) else 0o644,
            )
            archive.addfile(entry, io.BytesIO(data))
        for path, target in (links or {}).items():
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname, entry.mtime = tarfile.SYMTYPE, target, EPOCH
            archive.addfile(entry)
    return buffer.getvalue()


def _prefix_of(data: bytes) -> dict[str, str]:
    """What paths.json says of a file with the prefix in it."""
    if LONG.encode() in data:
        return {"prefix_placeholder": LONG, "file_mode": "binary"}
    return {"prefix_placeholder": "/PLACEHOLDER", "file_mode": "text"} if b"/PLACEHOLDER" in data else {}


def write_package(channel: Path, package: Tiny) -> Path:
    """Write one package into its subdir of a channel and return its path."""
    index = {
        "name": package.name, "version": package.version, "build": package.build, "build_number": package.number,
        "depends": list(package.depends), "subdir": package.subdir, "license": "MIT", "timestamp": EPOCH * 1000,
    }  # fmt: skip
    if package.subdir == "noarch":
        index["noarch"] = "python"
    content = {path: text if isinstance(text, bytes) else text.encode() for path, text in package.files.items()}
    paths = [
        {
            "_path": path, "path_type": "hardlink", "size_in_bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(), **_prefix_of(data),
        }
        for path, data in content.items()
    ]  # fmt: skip
    paths += [{"_path": path, "path_type": "softlink"} for path in package.links]
    info = {
        "info/index.json": json.dumps(index).encode(),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}).encode(),
        "info/files": "".join(f"{path}\n" for path in (*content, *package.links)).encode(),
    }
    if package.subdir == "noarch":
        noarch = {"type": "python", "entry_points": list(package.entry_points)}
        info["info/link.json"] = json.dumps({"noarch": noarch, "package_metadata_version": 1}).encode()
    folder = channel / package.subdir
    folder.mkdir(parents=True, exist_ok=True)
    if package.old_format:
        path = folder / f"{package.stem}.tar.bz2"
        path.write_bytes(_tar({**info, **content}, links=package.links, mode="w:bz2"))
        return path
    path = folder / f"{package.stem}.conda"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in (
            ("metadata.json", json.dumps({"conda_pkg_format_version": 2}).encode()),
            (f"pkg-{package.stem}.tar.zst", zstd(_tar(content, links=package.links))),
            (f"info-{package.stem}.tar.zst", zstd(_tar(info))),
        ):
            archive.writestr(zipfile.ZipInfo(name), data)
    return path


def write_channel(folder: Path, packages: Iterable[Tiny] = PACKAGES) -> Path:
    """Write a channel with its repodata and return its folder."""
    from rattler.index import index_fs

    for package in packages:
        write_package(folder, package)
    (folder / "noarch").mkdir(exist_ok=True)
    asyncio.run(index_fs(str(folder), write_zst=True, write_shards=False))
    return folder
