"""Reads foreign files: within bounds of size, count and depth, JSON with plain numbers only, and SHA-256 of files.

Whatever is wrong is a ValueError in words, or an OSError of the system; nothing else is raised here.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

LIMIT = 16 * 1024 * 1024  # bytes of a JSON file; the results of a thousand ranks have two million
VALUES = 1_000_000  # of a JSON text: 150 MB of memory at most
DEPTH = 100  # levels of lists and tables; what we write has ten
DIGITS = 40  # of a whole number; those of 64 bits have 20
_MARKS = (b"[", b"{", b",", b":")
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # half a character, which no file and no terminal can take


class BoundsError(ValueError):
    """A file, an archive or a text that is larger, deeper or otherwise more than it may be."""


class SpecialError(OSError):
    """A pipe, a device or a folder where a file should be."""


def open_file(path: Path) -> BinaryIO:
    """A regular file, open to be read; raises OSError for anything else, at once also for a pipe."""
    return os.fdopen(open_regular(path), "rb")


def open_regular(path: Path) -> int:
    """The same as a descriptor."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SpecialError(errno.EINVAL, "it is not a regular file", str(path))
    return descriptor


def read_file(path: Path, *, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; raises BoundsError and OSError, and waits for no pipe."""
    with open_file(path) as file:
        found = file.read(limit + 1)
    if len(found) > limit:
        raise BoundsError(f"it is larger than {format_bound(limit)}")
    return found


def format_bound(size: int) -> str:
    """A bound in bytes as a person reads it."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def read_json(path: Path, *, limit: int = LIMIT, finite: bool = True) -> Any:
    """The content of a JSON file; raises ValueError and OSError."""
    return parse_json(read_file(path, limit=limit), limit=limit, finite=finite)


def parse_json(content: bytes | str, *, limit: int = LIMIT, finite: bool = True) -> Any:
    """A JSON text in UTF-8 as plain data with whole characters; raises ValueError.

    `finite` False takes numbers of any kind: a loss that became none is judged, not hidden.
    """
    raw = content.encode("utf-8", errors="surrogatepass") if isinstance(content, str) else content
    if len(raw) > limit:
        raise BoundsError(f"it is larger than {format_bound(limit)}")
    # Before anything is made of it: a list of two bytes needs seventy-two.
    if sum(raw.count(mark) for mark in _MARKS) > VALUES:
        raise BoundsError(f"it holds more than {VALUES} values")
    try:
        found = json.loads(raw.decode("utf-8"), **(_FINITE if finite else {}))
    except RecursionError:
        raise BoundsError(_DEEP) from None
    _check_depth(found)
    if _HALF.search(raw):
        _check_characters(found)
    return found


_DEEP = f"it is nested too deep, more than {DEPTH} levels"


def _parse_integer(digits: str) -> int:
    if len(digits) > DIGITS:
        raise BoundsError("it holds a number of more digits than anything has")
    return int(digits)


def _parse_float(digits: str) -> float:
    found = float(digits)
    if not math.isfinite(found):
        raise BoundsError("it holds a number that is not finite")
    return found


def _refuse_constant(word: str) -> float:
    raise BoundsError(f"it holds the number {word}, which JSON does not have")


_FINITE: dict[str, Any] = {"parse_int": _parse_integer, "parse_float": _parse_float, "parse_constant": _refuse_constant}


def _check_depth(found: object) -> None:
    level, depth = [found], 0
    while level:
        if depth >= DEPTH:
            raise BoundsError(_DEEP)
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = [item for item in below if isinstance(item, (dict, list))]
        depth += 1


def _check_characters(found: object) -> None:
    try:
        json.dumps(found, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise BoundsError("it holds half a character") from None


BLOCK = 1 << 20


def hash_text(text: str) -> str:
    """SHA-256 of a text, by Python's own module: hashlib loads OpenSSL's, in milliseconds; `random` does the same."""
    for name in ("_sha2", "_sha256", "hashlib"):  # from Python 3.12 on; before; elsewhere
        with suppress(ImportError):
            return str(import_module(name).sha256(text.encode()).hexdigest())
    raise AssertionError("Python has no SHA-256")


def hash_file(path: Path, *, changes: Sequence[tuple[int, bytes]] = ()) -> str:
    """SHA-256 of a file, or of what it will be after `changes` (offset, bytes); raises OSError."""
    with FileIO(open_regular(path)) as file:
        return hash_open_file(file, changes=changes)


def hash_file_part(path: Path, offset: int, size: int) -> str:
    """SHA-256 of a part of a file; raises OSError."""
    import hashlib  # few short commands need it

    digest, block = hashlib.sha256(), memoryview(bytearray(BLOCK))
    with FileIO(open_regular(path)) as file:
        file.seek(offset)
        while size > 0 and (count := file.readinto(block[: min(size, BLOCK)])):
            digest.update(block[:count])
            size -= count
    return digest.hexdigest()


def hash_open_file(file: FileIO, *, changes: Sequence[tuple[int, bytes]] = ()) -> str:
    """The same of an open file from its current position; the first change may lengthen it."""
    import hashlib

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
