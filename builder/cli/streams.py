"""The program's own streams: what happens to a reader changes no exit code."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

# Of stdout a reader that has seen enough (`recipe sites | head`); of stderr anything, as there is nowhere to say it.
GONE = (errno.EPIPE,)
LOST = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO)


class _Patient(io.FileIO):
    """A file to which writing fails once at most, and never for some reasons of the system."""

    def __init__(self, number: int, ignored: tuple[int, ...]) -> None:
        super().__init__(number, "w", closefd=False)
        self._ignored = ignored
        self._failed = False

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in self._ignored and not self._failed:
                self._failed = True  # what is still in the buffer at the end changes no exit code
                raise
            return memoryview(data).nbytes


def open_streams() -> None:
    """Open a stream that the shell closed (`>&-`): else the next opened file would take its place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "w" if number else "r"))


def keep_exit_code() -> None:
    """Let a command end with its own exit code where its reader is gone, or where stderr is a full disk."""
    open_streams()
    sys.stdout = _make_patient_stream(sys.stdout, 1, GONE)
    sys.stderr = _make_patient_stream(sys.stderr, 2, LOST)


def _make_patient_stream(stream: TextIO, number: int, ignored: tuple[int, ...]) -> TextIO:
    try:
        if stream.fileno() != number:
            return stream  # it was closed, and is another file's
    except (OSError, ValueError):
        return stream
    return io.TextIOWrapper(
        io.BufferedWriter(_Patient(number, ignored)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=number == 2 or stream.isatty(),
    )
