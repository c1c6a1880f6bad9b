"""Where in an image its layers lie."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .sif import DATA_JSON, LAYERS, Sif, part_of

TOLD = 1 << 20  # bytes of what an image says of its layers


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A layer in an image: a squashfs that lies there whole, from `offset` on."""

    title: str
    offset: int
    size: int


def layers_of(path: Path, sif: Sif) -> list[Placed]:
    """The layers of an image, lowest first: parts of a partition, or partitions; raises OSError.

    What the image says of itself may be anything: what lies in no partition is left out.
    """
    for item in sif.objects:
        if item.label == LAYERS and item.kind == DATA_JSON and item.size <= TOLD:
            with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
                document = json.loads(part_of(path, item))
                partition = next(one for one in sif.objects if one.partition and one.number == document["partition"])
                rows = [(str(row["title"]), int(row["offset"]), int(row["size"])) for row in document["layers"]]
                return [
                    Placed(title=title, offset=partition.offset + begin, size=size)
                    for title, begin, size in rows
                    if min(begin, size) >= 0 and begin + size <= partition.size
                ]
            return []
    return [Placed(title="", offset=item.offset, size=item.size) for item in sif.overlays]
