"""Small files that are never made: they lie one after the other in a few larger ones until they are packed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from ..failure import LayeringError
from ..image.sif import copy_range
from ..tree import write


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One file: its path below a folder, and the part of another file that is its content."""

    path: str
    source: Path
    offset: int
    size: int


def below(folder: str, pieces: Sequence[Piece]) -> list[Piece]:
    """The same with their paths below a folder."""
    return [replace(piece, path=f"{folder.strip('/')}/{piece.path}") for piece in pieces]


def in_order(pieces: Iterable[Piece]) -> list[Piece]:
    """The same as they lie in their files: those that follow each other are copied in one go."""
    return sorted(pieces, key=lambda piece: (str(piece.source), piece.offset))


def join(pieces: Sequence[Piece], target: BinaryIO) -> None:
    """Write the contents of pieces one after the other; raises OSError and LayeringError."""
    target.flush()
    to, at = target.tell(), 0
    while at < len(pieces):
        first, size = pieces[at], 0
        while at < len(pieces) and (pieces[at].source, pieces[at].offset) == (first.source, first.offset + size):
            size += pieces[at].size
            at += 1
        with first.source.open("rb") as file:
            if copy_range(file, target, start=first.offset, size=size, to=to) < size:
                raise LayeringError(f"'{first.source}' became shorter while it was read")
        to += size
    target.seek(to)


def unfold(pieces: Sequence[Piece], folder: Path) -> None:
    """Make them files of a folder."""
    for piece in pieces:
        with piece.source.open("rb") as file:
            write(folder, piece.path, os.pread(file.fileno(), piece.size, piece.offset))
