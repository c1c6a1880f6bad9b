"""Where in an image its layers lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bounded import parse_json
from .sif import DATA_JSON, LAYERS, Object, Sif, part_of

TOLD = 1 << 20  # bytes of what an image says of its layers
MOST = 500  # layers


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A layer in an image: a squashfs that lies there whole, from `offset` on."""

    title: str
    offset: int
    size: int


def layers_of(path: Path, sif: Sif) -> list[Placed]:
    """The layers of an image, lowest first: parts of a partition, or partitions; raises OSError.

    What the image says of itself may be anything: a layer that does not lie in the partition behind the one before
    it is left out.
    """
    for item in sif.objects:
        if item.label == LAYERS and item.kind == DATA_JSON and item.size <= TOLD:
            with suppress(ValueError, KeyError, TypeError, AttributeError, StopIteration):
                document = parse_json(part_of(path, item))
                partition = next(one for one in sif.objects if one.partition and one.number == document["partition"])
                return list(_rows(document["layers"], partition))
            return []
    return [Placed(title="", offset=item.offset, size=item.size) for item in sif.overlays]


def _rows(rows: Any, partition: Object) -> Iterator[Placed]:
    end = 0
    for row in rows[:MOST]:
        title, begin, size = str(row["title"]), int(row["offset"]), int(row["size"])
        if end <= begin <= begin + size <= partition.size:
            end = begin + size
            yield Placed(title=title, offset=partition.offset + begin, size=size)
