"""Builds that are stopped at a place and killed there: what tests of kills have in common."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recipe_program import LIMIT, Room

STOPPER = Path(__file__).parent / "stand_ins" / "stopper"
RUN = "subprocess.Popen "


@dataclass(kw_only=True)
class Victim:
    """A room with an image; every build in it is of another one."""

    room: Room
    base: Path | str
    before: str = ""
    after: str = ""
    caches: int = 0

    @property
    def image(self) -> Path:
        return self.room.folder / "x.sif"

    @property
    def cache(self) -> Path:
        return self.room.folder / f"cache-{self.caches}"

    @property
    def stands(self) -> Path:
        """The file that is there while a build stands at its place; without it the build goes on."""
        return self.room.folder / "stands"

    def to_stand(self, at: str, *, when: str = "/") -> dict[str, str]:
        """The variables by which a build stands at a place."""
        self.stands.unlink(missing_ok=True)
        loaded = {"PYTHONPATH": str(STOPPER), "RECIPE_PYTHON": str(STOPPER / "python"), "STOP_PYTHON": sys.executable}
        return {"STOP_AT": at, "STOP_WHEN": when, "STOP_FILE": str(self.stands), **loaded}


def reached(process: subprocess.Popen[str], there: Callable[[], bool], *, pause: float = 0.01) -> None:
    """Wait until a program that runs has come somewhere: a file that it moves while a test looks is looked at again."""
    end = time.monotonic() + LIMIT
    while not _seen(there):
        assert time.monotonic() < end, "it did not come there"
        assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(pause)


def _seen(there: Callable[[], bool]) -> bool:
    try:
        return there()
    except FileNotFoundError:
        return False


def ended(process: subprocess.Popen[str]) -> int:
    """Wait for its end: what it started may still hold its output."""
    code = process.wait(timeout=LIMIT)
    if process.stdout is not None:
        process.stdout.close()
    return code
