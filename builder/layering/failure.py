"""What can go wrong in words: one sentence and what to do; the program prints it and ends with status 1."""

from __future__ import annotations

import errno
import sys


class LayeringError(Exception):
    """A build that cannot go on; `fix` is the next action; `told` where a program has said above what is wrong."""

    def __init__(self, message: str, *, fix: str = "", told: bool = False) -> None:
        super().__init__(message)
        self.fix = fix
        self.told = told


class AlteredError(LayeringError):
    """A cached file that is not what it was when it was made; `path` is the file."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the cached file '{path}' was altered")
        self.path = path


def say(text: str) -> None:
    """A line for the log of the step."""
    print(f"recipe: {text}", flush=True)


def in_words(error: OSError) -> LayeringError:
    """An error of the system as a sentence; a full disk is named as such, as the engines name it."""
    where = f" '{error.filename}'" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LayeringError(
            f"No space left on device{where}", fix="make room, or set RECIPE_CACHE_DIR to a folder on a larger disk"
        )
    return LayeringError(f"{(error.strerror or str(error)).lower()}{where}")


def show(error: LayeringError) -> None:
    """Print a failure as the step scripts do."""
    print(f"recipe: {error}" if error.told else f"recipe: error: {error}", file=sys.stderr)
    if error.fix:
        print(f"recipe: fix: {error.fix}", file=sys.stderr, flush=True)
