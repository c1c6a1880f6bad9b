"""The program's own streams: writing to them never fails; what was lost of stdout is known at the end."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any, TextIO


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
