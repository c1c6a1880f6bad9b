"""The width of the terminal that a stream is, and text that is wrapped to it."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress

NARROW = 10  # columns: a terminal that says less is taken for one of so many
USUAL = 80  # columns of a terminal that does not say how many it has
_CODES = re.compile(r"\x1b\[[0-9;]*m")
# Where the following lines of a long one begin: below the text of `fix:`, below the last column, else two columns in.
_LABEL = re.compile(r"\s*(?:at|fix|next):\s+")
_COLUMN = re.compile(r".*\S\s{2,}(?=\S)")


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
    """Wrap a line at `width` columns; a longer word is not broken."""
    if measure_columns(line) <= width:
        return [line]
    hang = _find_hang(line, width=width) if hang is None else hang
    start = len(line) - len(line.lstrip(" "))
    found, row = [], line[:start]
    empty = True
    for piece in re.findall(r" *[^ ]+", line[start:]):
        if empty or measure_columns(row + piece) <= width:
            row += piece
        else:
            found.append(row)
            word = piece.lstrip(" ")
            row = " " * (hang if hang + measure_columns(word) <= width else start + 2) + word
        empty = False
    return [*found, row]


def _find_hang(line: str, *, width: int) -> int:
    plain = _CODES.sub("", line)
    for form in (_LABEL, _COLUMN):
        match = form.match(plain[: width + 1])
        if match and match.end() <= width - 24:
            return match.end()
    return len(plain) - len(plain.lstrip(" ")) + 2


def measure_columns(text: str) -> int:
    """The columns that a text takes: those of East Asia take two for a character, combining characters none."""
    plain = _CODES.sub("", text)
    if plain.isascii():
        return len(plain)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(one) else 2 if east_asian_width(one) in "WF" else 1 for one in plain)
