"""Starts other programs: the only import of subprocess here."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import LayeringError

# /usr/sbin is not on every user's PATH.
MORE = "/usr/local/sbin:/usr/sbin:/sbin"


# What ends a program that is not itself at fault, and what helps.
LIMITS: dict[int, tuple[str, str]] = {
    signal.SIGXFSZ: ("the limit of a file's size was reached (ulimit -f)", "raise it with `ulimit -f unlimited`"),
    signal.SIGXCPU: ("the limit of processor time was reached (ulimit -t)", "raise it with `ulimit -t unlimited`"),
    signal.SIGKILL: ("the memory may have been used up", "run it again, with more memory"),
}


def find_signal(program: str, exit_code: int) -> LayeringError | None:
    """Return the error for a program that a signal ended, by its exit code (-9, or 137 as of a shell), else None."""
    number = -exit_code if exit_code < 0 else exit_code - 128
    if number <= 0 or number >= signal.NSIG:
        return None
    why, fix = LIMITS.get(number, ("", "run it again"))
    return LayeringError(f"{program} was killed by signal {number}{': ' if why else ''}{why}", fix=fix)


def find_system_program(name: str, *, path: str | None = None) -> str | None:
    """The path of a program, also of one that only administrators have on PATH."""
    return shutil.which(name, path=path) or shutil.which(name, path=MORE)


def require_program(name: str, *, fix: str) -> str:
    """The path of a program; raises LayeringError when it is missing."""
    found = find_system_program(name)
    if found is None:
        raise LayeringError(f"there is no {name} on PATH", fix=fix)
    return found


PYTHON = ("PYTHONUSERBASE", "PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE")  # where packages are, and what is written


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without variables that change what a program produces, or how a Python runs and ends."""
    dropped = ("SOURCE_DATE_EPOCH", "VIRTUAL_ENV", "CONDA_PREFIX", "UV_COMPILE_BYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    kept = {name: value for name, value in kept.items() if not name.startswith("PYTHON") or name in PYTHON}
    return {**kept, "LC_ALL": "C.UTF-8", **(more or {})}


def ask(
    argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, text: str = "", seconds: float | None = None
) -> tuple[int, str, str]:
    """Run a program with `text` as its input; returns its exit code, output and errors; raises LayeringError.

    For calls whose exit code may be bad; all others use `call`.
    """
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            env=dict(env) if env is not None else clean_environment(),
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=seconds,
        )
    except OSError as error:
        raise LayeringError(f"'{argv[0]}' cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise LayeringError(f"'{argv[0]}' has not ended after {seconds:.0f} s") from None
    return done.returncode, done.stdout, done.stderr


def call(argv: Sequence[str | Path], *, what: str) -> str:
    """Run a program that has to succeed; raises LayeringError with its last lines when it does not."""
    code, out, err = ask(argv)
    if code:
        text = (err.strip() or out.strip() or f"exit code {code}")[-4000:]
        print(text, flush=True)
        raise LayeringError(f"{what} failed with exit code {code}", told=True)
    return out


def follow(argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> int:
    """Run a program whose output is part of the log; its exit code."""
    return subprocess.run(
        [str(word) for word in argv],
        env=dict(env) if env is not None else None,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        check=False,
    ).returncode


def read_program_output(argv: Sequence[str | Path]) -> str:
    """What a program prints of itself, whatever its exit code; raises LayeringError where it was killed."""
    code, out, err = ask(argv)
    if code < 0:  # perhaps in the middle of a line
        raise LayeringError(f"'{argv[0]}' was killed by signal {-code} when it was asked what it is", fix="build again")
    return out + err


def read_program_version(program: str, *options: str) -> tuple[int, ...]:
    """The version that a program prints of itself; () without one."""
    found = re.search(r"(\d+(?:\.\d+)+)", read_program_output([program, *(options or ("--version",))]))
    return tuple(int(part) for part in found[1].split(".")) if found else ()
