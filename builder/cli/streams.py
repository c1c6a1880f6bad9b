"""The program's own streams: how wide they are, text wrapped to it, and writes that never fail.

What was lost of stdout is known at the end.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TextIO

NARROW = 10  # columns: a terminal that says less is taken for one of so many
USUAL = 80  # columns of a terminal that does not say how many it has
_CODES = re.compile(r"\x1b\[[0-9;]*m")
# Where the following lines of a long one begin: below the text of `fix:`, below the last column, else two columns in.
_LABEL = re.compile(r"\s*(?:at|fix|next):\s+")
_COLUMN = re.compile(r".*\S\s{2,}(?=\S)")
# What is not broken: a word, and a command in backquotes with what touches it.
_PIECES = re.compile(r" *(?:[^ `]*`[^`]*`)+[^ ]*| *[^ ]+")
_WORDS = re.compile(r" *[^ ]+")


def get_screen_width(*, err: bool = False) -> int | None:
    """The columns of the stream's terminal, None if it is not one; COLUMNS overrules what the terminal says."""
    stream = sys.stderr if err else sys.stdout
    if not stream.isatty():
        return None
    named = os.environ.get("COLUMNS", "")
    columns = int(named) if named.isascii() and named.isdecimal() else 0
    if not columns:
        with suppress(OSError, ValueError):
            columns = os.get_terminal_size(stream.fileno()).columns
    return max(columns or USUAL, NARROW)


def fit(line: str, *, width: int, hang: int | None = None) -> list[str]:
    """Wrap a line at `width` columns; no longer word is broken, and no command in backquotes that fits on one row."""
    if measure_columns(line) <= width:
        return [line]
    hang = _find_hang(line, width=width) if hang is None else hang
    start = len(line) - len(line.lstrip(" "))
    found, row = [], line[:start]
    empty = True
    for piece in _split_pieces(line[start:], width=width - hang):
        if empty or measure_columns(row + piece) <= width:
            row += piece
        else:
            found.append(row)
            word = piece.lstrip(" ")
            row = " " * (hang if hang + measure_columns(word) <= width else start + 2) + word
        empty = False
    return [*found, row]


def _split_pieces(text: str, *, width: int) -> Iterator[str]:
    for piece in _PIECES.findall(text):
        fits = measure_columns(piece.lstrip(" ")) <= width
        yield from [piece] if fits else _WORDS.findall(piece)


def _find_hang(line: str, *, width: int) -> int:
    plain = _CODES.sub("", line)
    for form in (_LABEL, _COLUMN):
        match = form.match(plain[: width + 1])
        if match and match.end() <= width // 2:
            return match.end()
    return len(plain) - len(plain.lstrip(" ")) + 2


def measure_columns(text: str) -> int:
    """The columns that a text takes: those of East Asia take two for a character, combining characters none."""
    plain = _CODES.sub("", text)
    if plain.isascii():
        return len(plain)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in plain)


class TolerantFile(io.FileIO):
    """A file that keeps the first error of a write and discards what follows it."""

    error: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Write the bytes, or discard them where a write has failed before."""
        if self.error is None:
            try:
                return super().write(data)
            except OSError as error:
                self.error = error
        return memoryview(data).nbytes


def protect_streams() -> None:
    """Let a command end with its own exit code where a stream is closed, its reader is gone or its disk is full.

    A stream that the shell closed (`>&-`) is opened: else the next opened file would take its place.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "w" if number else "r"))
    sys.stdout = _make_tolerant(sys.stdout, number=1)
    sys.stderr = _make_tolerant(sys.stderr, number=2)


def find_lost_output() -> OSError | None:
    """Write out what is buffered; return the error that lost a part of stdout, but not that its reader is gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    error = getattr(getattr(getattr(sys.stdout, "buffer", None), "raw", None), "error", None)
    return error if isinstance(error, OSError) and error.errno != errno.EPIPE else None


def _make_tolerant(stream: TextIO, *, number: int) -> TextIO:
    try:
        if stream.fileno() != number:
            return stream  # it was closed, and is another file's
    except (OSError, ValueError):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(TolerantFile(number, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=number == 2 or stream.isatty(),
    )
