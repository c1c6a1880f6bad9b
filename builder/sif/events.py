"""What a program of a step reports to the one that runs it: a line of JSON for each event, in a file.

`RECIPE_EVENTS` names the file; without it nothing is written, and what people read is printed all the same.
"""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "RECIPE_EVENTS"
LIMIT = 1024 * 1024  # bytes of the file
PAUSE = 0.25  # seconds between two reports of how far one thing is
_LOGIN = re.compile(r"://[^/\s@]*@")


def report(event: str, **data: object) -> None:
    """Append an event; where the file cannot be written, or is full, nothing happens."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    line = _LOGIN.sub("://***@", json.dumps({"event": event, **data})) + "\n"
    with suppress(OSError):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(handle)
            if stat.S_ISREG(found.st_mode) and found.st_size < LIMIT:
                os.write(handle, line.encode())  # in one piece: several programs append
        finally:
            os.close(handle)


class Meter:
    """Reports how many bytes of something are done; `total` is 0 where it is not known."""

    def __init__(self, what: str, *, total: int = 0) -> None:
        self.what, self.total, self.done = what, total, 0
        self._next = 0.0

    def add(self, count: int) -> None:
        """So many bytes more."""
        self.set_done(self.done + count)

    def set_done(self, done: int) -> None:
        self.done = done
        now = time.monotonic()
        if (done and now >= self._next) or (self.total and self.done >= self.total):
            self._next = now + PAUSE
            report("progress", what=self.what, done=self.done, total=self.total)


@contextmanager
def report_growth(what: str, path: Path) -> Iterator[None]:
    """Report the size of a file while a program writes it, where someone reads it."""
    if VARIABLE not in os.environ:
        yield
        return
    meter, over = Meter(what), threading.Event()

    def look() -> None:
        while not over.wait(PAUSE):
            with suppress(OSError):
                meter.set_done(path.stat().st_size)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
