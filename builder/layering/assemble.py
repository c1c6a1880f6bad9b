"""Base image and layers become one SIF: copied, checked on the way, with a header that has no time and no random id."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from .digest import BLOCK
from .failure import AlteredError
from .sif import (
    ALIGNMENT,
    DATA_JSON,
    INSPECT,
    add_layer,
    add_object,
    copy_file,
    copy_range,
    end_of,
    read_sif,
    write_header,
)
from .store import Entry

SIGNATURE = 0x4005


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer of an image; `fresh` where this build made it and has just seen all of it."""

    entry: Entry
    fresh: bool = False


def assemble(base: Path, layers: Sequence[Layer], target: Path, *, time: int, metadata: bytes = b"") -> None:
    """Write an image; `metadata` takes the place of what `inspect` reads.

    Raises AlteredError for a cached layer that is not what it was, SifError and OSError.
    Signatures of the base hold for the base alone and stay behind: what they signed is still there, byte for byte.
    """
    sif = read_sif(base)
    sif.objects = [item for item in sif.objects if item.kind != SIGNATURE and not (metadata and item.label == INSPECT)]
    with target.open("w+b") as file:
        copy_file(base, file)
        file.truncate(end_of(sif))
        for layer in layers:
            item = add_layer(sif, size=layer.entry.size)
            _append(layer, file, offset=item.offset)
        if metadata:
            item = add_object(sif, size=len(metadata), kind=DATA_JSON, name=INSPECT)
            file.truncate(item.offset)
            file.seek(item.offset)
            file.write(metadata)
        file.truncate(-(-end_of(sif) // ALIGNMENT) * ALIGNMENT)
        write_header(file, sif, time=time)
        file.flush()
    target.chmod(0o755 & ~_umask())


def _append(layer: Layer, file: BinaryIO, *, offset: int) -> None:
    file.truncate(offset)
    file.seek(offset)
    digest, left = hashlib.sha256(), layer.entry.size
    with layer.entry.path.open("rb") as source:
        if layer.fresh:
            if copy_range(source, file, start=0, size=left, to=offset) < left:
                raise AlteredError(str(layer.entry.path))
            return
        while block := source.read(BLOCK):
            digest.update(block)
            file.write(block)
            left -= len(block)
    if left or digest.hexdigest() != layer.entry.sha256:
        raise AlteredError(str(layer.entry.path))


def _umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found
