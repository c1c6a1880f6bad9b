"""What a program of a step tells: errors in one sentence with a fix, and events, a line of JSON each, in a file.

`RECIPE_EVENTS` names the file; without it nothing is written, and what people read is printed all the same.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Iterator, Sequence
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
def report_reading(what: str, *, trees: Sequence[Path], target: Path) -> Iterator[None]:
    """Report how much of some folders our child that writes `target` has read, where someone reads the reports.

    The kernel counts it (proc(5), /proc/PID/io: rchar); what the program reads twice makes it more, so that the last
    bytes are reported at the end.
    """
    if VARIABLE not in os.environ:
        yield
        return
    meter, over = Meter(what), threading.Event()

    def look() -> None:
        meter.total = sum(_list_sizes(trees, over))
        while not over.wait(PAUSE):
            with suppress(OSError):
                read = min(_count_read(os.fsencode(target)), max(meter.total - 1, 0))
                meter.set_done(max(meter.done, read))  # it is 0 again when the program has ended

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if meter.done:
            meter.set_done(meter.total)


def _list_sizes(trees: Sequence[Path], over: threading.Event) -> Iterator[int]:
    """Yield the size of each file below some folders, until it is over."""
    for tree in trees:
        for folder, _, names in os.walk(tree):
            if over.is_set():
                return
            for name in names:
                with suppress(OSError):
                    found = os.lstat(f"{folder}/{name}")
                    yield found.st_size if stat.S_ISREG(found.st_mode) else 0


def _count_read(word: bytes) -> int:
    """Count the bytes that our child with this word in its command line has read; 0 where it is not found."""
    for file in Path("/proc/self/task").glob("*/children"):
        for number in file.read_text().split():
            with suppress(OSError, StopIteration):
                if word in Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0"):
                    lines = Path(f"/proc/{number}/io").read_text().splitlines()
                    return next(int(line[6:]) for line in lines if line.startswith("rchar:"))
    return 0


AT_WORK = "recipe: this was written to"


class LayeringError(Exception):
    """A build that cannot go on; `fix` is the next action; `told` if a program has already printed the reason."""

    def __init__(self, message: str, *, fix: str = "", told: bool = False) -> None:
        super().__init__(message)
        self.fix = fix
        self.told = told


class AlteredError(LayeringError):
    """A cached file that is not what it was when it was made; `path` is the file."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the cached file '{path}' was altered")
        self.path = path


class NotAsPlannedError(LayeringError):
    """An image that is whole and is not what was planned: exit code 6."""


def log_line(text: str) -> None:
    print(f"recipe: {text}", flush=True)


def translate_error(error: OSError) -> LayeringError:
    """An error of the system as a sentence; a full disk in the words of the engines."""
    where = f" '{error.filename}'" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LayeringError(f"{os.strerror(error.errno)}{where}", told=False)
    return LayeringError(f"{(error.strerror or str(error)).lower()}{where}")


@contextmanager
def add_error_path(path: Path) -> Iterator[None]:
    """Add the written path to an error of the system that names none."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


FULL = 16 << 20  # bytes: with less free space a disk is full, since what did not fit may be removed by now


def describe_written_place(
    error: OSError | LayeringError, *, cache: Path, output: Path | None, temporary: str = ""
) -> str:
    """The place that a build wrote to when it failed, for the log.

    It is the cache, unless the error names another one, or the disk of temporary files is full and the cache's is not.
    """
    named = getattr(error, "filename", None)
    if output is not None and isinstance(named, (str, Path)):
        path, folder = os.path.abspath(named), os.path.abspath(output.parent)
        if path == folder or path.startswith(folder.rstrip("/") + "/"):
            return f"{AT_WORK} the folder of the image '{folder}'"
    if temporary and _measure_free(temporary) < FULL <= _measure_free(cache):
        return f"{AT_WORK} the temporary folder '{os.path.dirname(os.path.abspath(temporary))}'"
    return f"{AT_WORK} the cache '{os.path.abspath(cache)}'"


def _measure_free(path: str | Path) -> int:
    """The free bytes of a disk; of one that cannot be asked, more than any."""
    try:
        found = os.statvfs(path)
    except OSError:
        return sys.maxsize
    return found.f_bavail * found.f_frsize


def show(error: LayeringError) -> None:
    """Print a failure as the step scripts do."""
    report("error", message=str(error), fix=error.fix)
    print(f"recipe: {error}" if error.told else f"recipe: error: {error}", file=sys.stderr)
    if error.fix:
        print(f"recipe: fix: {error.fix}", file=sys.stderr, flush=True)
