"""The SIF container format, version 1: read its header, append squashfs layers, write an image that is always the same.

Layout and constants: github.com/apptainer/sif/v2, pkg/sif (sif.go, descriptor.go), read 2026-11-20. What is written is
held against `apptainer sif add` by the tests. An engine's own command stores the time and a random id, which two
builds of the same image must not differ by.

`list_layers` gives the positions of an image's layers.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from .bounded import open_file, parse_json

HEADER = struct.Struct("<32s10s3s3s16s8q")
DESCRIPTOR = struct.Struct("<i?IIIqqqqqqq128s384s")
PARTITION = struct.Struct("<ii3s")
FIELDS = (
    "launch", "version", "architecture", "id", "created", "modified", "free", "places", "table", "table size", "data",
    "data size",
)  # fmt: skip
MAGIC = b"SIF_MAGIC\0"
DATA_JSON, DATA_PARTITION = 0x4006, 0x4004
SQUASHFS, SYSTEM, OVERLAY = 1, 2, 4
GROUP = 0xF0000001  # group 1, as the engines write it
ALIGNMENT = 4096
OBJECTS = 48  # that an image has room for
INSPECT = "inspect-metadata.json"  # what `apptainer inspect` reads, where it is there
LAYERS = "recipe-layers.json"  # positions of the layers in a merged partition
LARGEST = 16 * 1024 * 1024  # bytes of an object that is read whole; the bill of an image of 2000 packages has 2
COPIED = 1 << 28  # bytes of one call, a quarter of a second: sendfile(2) takes no more than 2 GiB
ARCHITECTURES = {b"02\0": "x86_64", b"04\0": "aarch64"}


class SifError(Exception):
    """A file that is not a SIF, or to which no layer can be added."""


@dataclass(kw_only=True)
class Object:
    """One object of an image."""

    kind: int
    number: int
    group: int
    link: int
    offset: int
    size: int
    padded: int
    name: bytes = b""
    extra: bytes = b""
    slot: int = 0  # its place in the table

    @property
    def label(self) -> str:
        """Its name."""
        return self.name.split(b"\0")[0].decode(errors="replace")

    @property
    def partition(self) -> tuple[int, int, bytes] | None:
        """File system, part and architecture, where it is a partition."""
        if self.kind != DATA_PARTITION:
            return None
        found: tuple[int, int, bytes] = PARTITION.unpack(self.extra[: PARTITION.size])
        return found


@dataclass(kw_only=True)
class Sif:
    """The header of an image and its objects."""

    launch: bytes
    arch: bytes
    total: int
    descriptors: int
    reserved: int
    data: int
    data_size: int
    free: int
    modified: int  # seconds since 1970
    objects: list[Object]

    @property
    def system(self) -> Object:
        """The root file system; raises SifError without one of squashfs."""
        for item in self.objects:
            if item.partition and item.partition[:2] == (SQUASHFS, SYSTEM):
                return item
        raise SifError("it has no root file system of squashfs")

    @property
    def overlays(self) -> list[Object]:
        """The layers over it, lowest first."""
        return [item for item in self.objects if item.partition and item.partition[1] == OVERLAY]

    @property
    def machine(self) -> str:
        """Its architecture as `uname -m` writes it."""
        return ARCHITECTURES.get(self.arch, "unknown")


def make_empty_sif(machine: str) -> Sif:
    """The header of an image that holds nothing yet, as the engines write it; raises SifError."""
    arch = next((code for code, name in ARCHITECTURES.items() if name == machine), None)
    if arch is None:
        raise SifError(f"the format has no number for {machine} here")
    launch = b"#!/usr/bin/env run-singularity\n"
    reserved = OBJECTS * DESCRIPTOR.size
    return Sif(
        launch=launch, arch=arch, total=OBJECTS, descriptors=ALIGNMENT, reserved=reserved, data=ALIGNMENT + reserved,
        data_size=0, free=OBJECTS, modified=0, objects=[],
    )  # fmt: skip


def read_header(path: Path) -> dict[str, str]:
    """Every field of the header by its name; raises OSError and SifError."""
    with path.open("rb") as file:
        head = file.read(HEADER.size)
    if len(head) < HEADER.size:
        raise SifError("it is not a SIF image")
    fields = HEADER.unpack(head)
    words = [field.rstrip(b"\0").decode("ascii", "replace").strip() for field in (fields[0], *fields[2:4])]
    return dict(zip(FIELDS, (*words, fields[4].hex(), *map(str, fields[5:])), strict=True))


def read_object(path: Path, item: Object) -> bytes:
    """The content of an object that is no partition; raises OSError, and SifError where it is too large for one."""
    if item.size > LARGEST:
        raise SifError(f"its object '{item.label}' has {item.size} bytes, {LARGEST} at most are read")
    with path.open("rb") as file:
        file.seek(item.offset)
        return file.read(item.size)


def read_sif(path: Path) -> Sif:
    """Read the header and the objects of an image; raises SifError and OSError."""
    with open_file(path) as file:
        return parse_sif(file, size=os.fstat(file.fileno()).st_size)


def parse_sif(file: BinaryIO, *, size: int) -> Sif:
    """The same of an open file of `size` bytes, which may hold anything."""
    file.seek(0)
    head = file.read(HEADER.size)
    if len(head) < HEADER.size or head[32:42] != MAGIC:
        raise SifError("it is not a SIF image")
    launch, _, version, arch, _, _, modified, free, total, start, reserved, data, data_size = HEADER.unpack(head)
    if version[:2] != b"01":
        raise SifError(f"it is a SIF image of version {version[:2]!r}, and this program knows 01")
    if not (0 < total <= 4096 and HEADER.size <= start and total * DESCRIPTOR.size <= reserved):
        raise SifError("its header is damaged")
    if start > size - total * DESCRIPTOR.size:
        raise SifError("it is cut short")
    file.seek(start)
    table = file.read(total * DESCRIPTOR.size)
    objects = [item for item in (_parse_object(table, row) for row in range(total)) if item]
    if any(item.offset < 0 or item.size < 0 or item.offset + item.size > size for item in objects):
        raise SifError("it is cut short")
    # Every object is read by itself: many that are the same bytes would be endless work.
    places = sorted((item.offset, item.offset + item.size) for item in objects if item.size)
    if any(end > begin for (_, end), (begin, _) in pairwise(places)):
        raise SifError("its objects overlap")
    return Sif(
        launch=launch,
        arch=arch,
        total=total,
        descriptors=start,
        reserved=reserved,
        data=data,
        data_size=data_size,
        free=free,
        modified=modified,
        objects=objects,
    )


def _parse_object(table: bytes, row: int) -> Object | None:
    kind, used, number, group, link, offset, size, padded, _, _, _, _, name, extra = DESCRIPTOR.unpack_from(
        table, row * DESCRIPTOR.size
    )
    if not used:
        return None
    return Object(
        kind=kind,
        number=number,
        group=group,
        link=link,
        offset=offset,
        size=size,
        padded=padded,
        name=name,
        extra=extra,
        slot=row,
    )


def find_end(sif: Sif) -> int:
    """Where the last object ends."""
    return max((item.offset + item.size for item in sif.objects), default=sif.data)


def add_object(
    sif: Sif, *, size: int, kind: int = DATA_PARTITION, extra: bytes = b"", name: str = "", align: int = ALIGNMENT
) -> Object:
    """Make room for one more object at the end; raises SifError when the image can take no more."""
    if len(sif.objects) >= sif.total:
        raise SifError(f"it holds {sif.total} objects and can take no more")
    end = find_end(sif)
    offset = -(-end // align) * align
    number = max((item.number for item in sif.objects), default=0) + 1
    item = Object(
        kind=kind,
        number=number,
        group=GROUP,
        link=0,
        offset=offset,
        size=size,
        padded=offset - end + size,
        name=name.encode()[:127],
        extra=extra,
    )
    sif.objects.append(item)
    return item


def add_layer(sif: Sif, *, size: int) -> Object:
    """Room for one more squashfs that the runtimes mount over the others."""
    system = sif.system.partition
    return add_object(sif, size=size, extra=PARTITION.pack(SQUASHFS, OVERLAY, system[2] if system else sif.arch))


def write_header(file: BinaryIO, sif: Sif, *, time: int) -> None:
    """Write header and objects with a nil id, one time and no owner: the same bytes for the same content."""
    size = find_end(sif) - sif.data
    free = sif.total - len(sif.objects)
    numbers = (time, time, free, sif.total, sif.descriptors, sif.reserved, sif.data, size)
    file.seek(0)
    file.write(HEADER.pack(sif.launch, MAGIC, b"01\0", sif.arch, bytes(16), *numbers))
    file.seek(sif.descriptors)
    for item in sif.objects:
        places = (item.offset, item.size, item.padded, time, time, 0, 0)
        file.write(DESCRIPTOR.pack(item.kind, True, item.number, item.group, item.link, *places, item.name, item.extra))
    file.write(bytes(DESCRIPTOR.size * free))


def copy_file(source: BinaryIO, target: BinaryIO, *, check: Callable[[], None] = lambda: None) -> int:
    """Copy an open file into another by what the file system does fastest; returns the bytes copied.

    `check` is called before each part, and ends it by raising something.
    """
    size = os.fstat(source.fileno()).st_size
    if not _clone_file(source, target) and copy_range(source, target, start=0, size=size, to=0, check=check) < size:
        raise SifError("the base image became shorter while it was read")
    return size


def copy_range(
    source: BinaryIO, target: BinaryIO, *, start: int, size: int, to: int, check: Callable[[], None] = lambda: None
) -> int:
    """Copy a part of a file to a place in another; returns the bytes copied, fewer where the file ends before."""
    done = 0
    while done < size:
        check()
        try:
            step = os.copy_file_range(
                source.fileno(), target.fileno(), min(size - done, COPIED), start + done, to + done
            )
        except OSError:
            break  # between two kinds of file systems the kernel does not (EXDEV), others cannot
        if step == 0:
            break
        done += step
    while done < size:
        check()
        target.seek(to + done)
        step = os.sendfile(target.fileno(), source.fileno(), start + done, min(size - done, COPIED))
        if step == 0:
            break
        done += step
    return done


def _clone_file(source: BinaryIO, target: BinaryIO) -> bool:
    """A reflink, where the file system has them (XFS, Btrfs): FICLONE of linux/fs.h."""
    from fcntl import ioctl

    try:
        ioctl(target.fileno(), 0x40049409, source.fileno())
    except OSError:
        return False
    return True


LAYERS_LIMIT = 1 << 20  # bytes of the list of layers
MOST = 500  # layers


@dataclass(frozen=True, kw_only=True)
class LayerEntry:
    """A layer in an image: all bytes of its squashfs from `offset` on."""

    title: str
    offset: int
    size: int


def list_layers(path: Path, sif: Sif) -> list[LayerEntry]:
    """The layers of an image, lowest first: parts of a partition, or partitions; raises OSError.

    The list in the image may be anything: a layer that is not in the partition or not behind the one before is left
    out.
    """
    for item in sif.objects:
        if item.label == LAYERS and item.kind == DATA_JSON and item.size <= LAYERS_LIMIT:
            with suppress(ValueError, KeyError, TypeError, AttributeError, StopIteration):
                document = parse_json(read_object(path, item))
                partition = next(one for one in sif.objects if one.partition and one.number == document["partition"])
                return list(_parse_layer_rows(document["layers"], partition))
            return []
    return [LayerEntry(title="", offset=item.offset, size=item.size) for item in sif.overlays]


def _parse_layer_rows(rows: Any, partition: Object) -> Iterator[LayerEntry]:
    end = 0
    for row in rows[:MOST]:
        title, begin, size = str(row["title"]), int(row["offset"]), int(row["size"])
        if end <= begin <= begin + size <= partition.size:
            end = begin + size
            yield LayerEntry(title=title, offset=partition.offset + begin, size=size)
