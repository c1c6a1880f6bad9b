"""Every command with --help, -h and nothing, at a narrow and a wide terminal, without colour and in a pipe."""

from __future__ import annotations

import click
import pytest
from conftest import Seat
from screen import broken, faults

from builder.cli.main import COMMANDS, cli

# No argument is needed: what the code may be without one. `doctor` says 4 where the machine lacks an engine.
ALONE = {"sites": (0,), "doctor": (0, 4), "init": (0,), "cache ls": (0,), "cache verify": (0,), "cache prune": (0,)}


def commands() -> list[str]:
    """All commands, and those below them."""
    names = []
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        names += [name, *(f"{name} {below}" for below in getattr(command, "commands", ()))]
    return names


@pytest.mark.parametrize("command", ["", *commands()])
def test_help(command: str, seat: Seat) -> None:
    line = f"recipe {command}".strip()
    narrow = seat.type(f"{line} --help")
    wide = seat.type(f"{line} -h", columns=120, color=False)
    pipe = seat.type(f"{line} --help", columns=None)
    for shown in (narrow, wide, pipe):
        assert (shown.code, faults(shown)) == (0, [])
        assert shown.lines[0].startswith("Usage: ")
    assert broken(narrow, wide) == []


@pytest.mark.parametrize("command", commands())
def test_without_arguments(command: str, seat: Seat) -> None:
    narrow, pipe = seat.type(f"recipe {command}"), seat.type(f"recipe {command}", columns=None)
    right = ALONE.get(command, (2,))
    again = (2,) if command == "init" else right  # its file is there now
    assert (narrow.code in right, pipe.code in again) == (True, True), narrow.lines
    assert faults(narrow) + faults(pipe) == []
    if command != "init":
        assert broken(narrow, pipe) == []


@pytest.mark.parametrize("flag", ["--version", "--help", "-h", ""])
def test_the_program_itself(flag: str, seat: Seat) -> None:
    shown = seat.type(f"recipe {flag}")
    assert (shown.code, faults(shown)) == (0 if flag else 2, [])
