"""Errors in one sentence with a fix; the program prints them and exits with 1."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .events import report

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


def describe_written_place(error: OSError | LayeringError, *, cache: Path, output: Path | None) -> str:
    """The place that a build wrote to when it failed, for the log: its cache, unless the error names another one."""
    named = getattr(error, "filename", None)
    if output is not None and isinstance(named, (str, Path)):
        path, folder = os.path.abspath(named), os.path.abspath(output.parent)
        if path == folder or path.startswith(folder.rstrip("/") + "/"):
            return f"{AT_WORK} the folder of the image '{folder}'"
    return f"{AT_WORK} the cache '{os.path.abspath(cache)}'"


def show(error: LayeringError) -> None:
    """Print a failure as the step scripts do."""
    report("error", message=str(error), fix=error.fix)
    print(f"recipe: {error}" if error.told else f"recipe: error: {error}", file=sys.stderr)
    if error.fix:
        print(f"recipe: fix: {error.fix}", file=sys.stderr, flush=True)
