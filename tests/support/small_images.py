"""Images and an archive of a few bytes, as far as commands read them before they start an engine."""

from __future__ import annotations

import io
import struct
import tarfile

from builder.sif.sif import PARTITION, SQUASHFS, SYSTEM, add_object, find_end, make_empty_sif, write_header

# A whole SIF without content: its header and a table with one free place.
_LAUNCH = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0")
_PLACE = struct.calcsize("<i?IIIqqqqqqq128s384s")
_HEADER = struct.Struct("<32s10s3s3s16s8q")
SIF = _HEADER.pack(
    _LAUNCH, b"SIF_MAGIC\0", b"01\0", b"02\0", bytes(16), 0, 0, 1, 1, _HEADER.size, _PLACE, 4096, 0
) + bytes(4096)


def made_base() -> bytes:
    """A SIF that can be a base image as far as it is read before a build: one partition of squashfs."""
    image, content = make_empty_sif("x86_64"), io.BytesIO()
    add_object(image, size=4, extra=PARTITION.pack(SQUASHFS, SYSTEM, image.arch))
    write_header(content, image, time=0)
    return content.getvalue().ljust(find_end(image), b"\0")


BASE = made_base()
ARM = SIF[:45] + b"04\0" + b"\0" * 200  # an image for another processor
TAR = b"".join(tarfile.TarInfo(name).tobuf() for name in ("manifest.json", "repositories")) + b"\0" * 1024
