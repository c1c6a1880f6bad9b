"""Images and an archive of a few bytes, as far as commands read them before they start an engine."""

from __future__ import annotations

import io
import struct
import tarfile

from builder.sif.sif import PARTITION, SQUASHFS, SYSTEM, add_object, find_end, make_empty_sif, write_header
from builder.sif.squashfs import NONE, Superblock

# A whole SIF without content: its header and a table with one free place.
_LAUNCH = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0")
_PLACE = struct.calcsize("<i?IIIqqqqqqq128s384s")
_HEADER = struct.Struct("<32s10s3s3s16s8q")
SIF = _HEADER.pack(
    _LAUNCH, b"SIF_MAGIC\0", b"01\0", b"02\0", bytes(16), 0, 0, 1, 1, _HEADER.size, _PLACE, 4096, 0
) + bytes(4096)


def made_base() -> bytes:
    """A SIF that can be a base image as far as it is read before a build: a squashfs that only an engine unpacks."""
    system = Superblock(
        inodes=1, time=0, block_size=1 << 17, fragments=0, compression=99, log=17, flags=0, owners=1, root=0, size=96,
        owner_table=96, attribute_table=NONE, inode_table=96, folder_table=96, fragment_table=96,
    ).to_bytes()  # fmt: skip
    image, content = make_empty_sif("x86_64"), io.BytesIO()
    place = add_object(image, size=len(system), extra=PARTITION.pack(SQUASHFS, SYSTEM, image.arch))
    write_header(content, image, time=0)
    return content.getvalue().ljust(place.offset, b"\0") + system.ljust(find_end(image) - place.offset, b"\0")


BASE = made_base()
ARM = SIF[:45] + b"04\0" + b"\0" * 200  # an image for another processor
TAR = b"".join(tarfile.TarInfo(name).tobuf() for name in ("manifest.json", "repositories")) + b"\0" * 1024
