"""SHA-256 of files. Anything but a regular file is an error: a pipe would block its reader."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

from .bounded import open_regular

BLOCK = 1 << 20


def hash_file(path: Path, *, changes: Sequence[tuple[int, bytes]] = ()) -> str:
    """SHA-256 of a file, or of what it will be after `changes` (offset, bytes); raises OSError."""
    with FileIO(open_regular(path)) as file:
        return hash_open_file(file, changes=changes)


def hash_file_part(path: Path, offset: int, size: int) -> str:
    """SHA-256 of a part of a file; raises OSError."""
    digest, block = hashlib.sha256(), memoryview(bytearray(BLOCK))
    with FileIO(open_regular(path)) as file:
        file.seek(offset)
        while size > 0 and (count := file.readinto(block[: min(size, BLOCK)])):
            digest.update(block[:count])
            size -= count
    return digest.hexdigest()


def hash_open_file(file: FileIO, *, changes: Sequence[tuple[int, bytes]] = ()) -> str:
    """The same of an open file from its current position; the first change may lengthen it."""
    digest, block, at = hashlib.sha256(), memoryview(bytearray(BLOCK)), 0
    while count := file.readinto(block):
        for offset, data in changes:
            start, end = max(offset, at), min(offset + len(data), at + count)
            if start < end:
                block[start - at : end - at] = data[start - offset : end - offset]
        digest.update(block[:count])
        at += count
    for offset, data in changes[:1]:
        digest.update(data[max(0, at - offset) :])
    return digest.hexdigest()
