"""Which uv is used: the one that was installed with us, or one of the same series, never just the first on PATH."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from ..sif.errors import LayeringError
from ..sif.programs import find_program, version_of

VARIABLE = "RECIPE_UV"
LEAST, BELOW = (0, 13, 8), (0, 14)  # as pyproject.toml has it: another series resolves, names and keeps otherwise
WANTED = f"uv {'.'.join(map(str, LEAST))} or newer, below {'.'.join(map(str, BELOW))}"
FIX = f"run `pip install 'uv=={'.'.join(map(str, LEAST))}'` and set {VARIABLE} to it, or build with --backend apptainer"


def find_uv(environment: Mapping[str, str] | None = None) -> str | None:
    """The uv to use, None where there is none; raises LayeringError where all that are here are of another series.

    First that of RECIPE_UV, then the one beside our Python, then that on PATH.
    """
    environment = os.environ if environment is None else environment
    others = []
    for program in dict.fromkeys(_candidates(environment)):
        found = _version(program)
        if LEAST <= found < BELOW:
            return program
        others.append(f"'{program}' is {'.'.join(map(str, found)) or 'of no known version'}")
    if others:
        raise LayeringError(f"this takes {WANTED}: {', '.join(others)}", fix=FIX)
    return None


def needed_uv() -> str:
    """The uv to use; raises LayeringError when there is none."""
    found = find_uv()
    if found is None:
        raise LayeringError(f"there is no uv on PATH, and this takes {WANTED}", fix=FIX)
    return found


def own_uv() -> str:
    """The uv that was installed with this Python, "" where there is none."""
    path = Path(sys.executable).with_name("uv")
    return str(path) if path.is_file() else ""


def _candidates(environment: Mapping[str, str]) -> Iterator[str]:
    said = environment.get(VARIABLE, "")
    if said and Path(said).is_file():  # a job may run where that folder is not
        yield said
    if own := own_uv():
        yield own
    if found := find_program("uv", path=environment.get("PATH")):
        yield found


@cache
def _version(program: str) -> tuple[int, ...]:
    try:
        return version_of(program)
    except LayeringError:
        return ()
