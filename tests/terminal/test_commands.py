"""Every command with --help, -h and nothing, at a narrow and a wide terminal, without colour and in a pipe."""

from __future__ import annotations

import click
import pytest
from conftest import Seat
from mistakes import PLACED, SIF
from screen import COLORS, broken, faults

from builder.cli.main import COMMANDS, run_cli

# No argument is needed: what the code may be without one. `doctor` says 4 where the machine lacks an engine.
ALONE = {
    "sites": (0,),
    "doctor": (0, 4),
    "init": (0,),
    "config": (0,),
    "cache ls": (0,),
    "cache check": (0,),
    "cache prune": (0,),
}
# What follows each command, the right exit codes without engine, batch system and network, and whether it has colours.
TYPED: dict[str, tuple[str, tuple[int, ...], bool]] = {
    "build": ("local env.yml", (4,), True),
    "plan": ("local env.yml --print 1-build-image.sh", (0,), False),
    "check": ("lumi-g x.txt", (3,), True),
    "explain": ("torch-bild", (2,), True),
    "lock": ("local env.yml", (5,), True),
    "fetch": ("local env.yml", (4,), True),
    "bundle": ("local env.yml", (4,), True),
    "smoke": ("local x.sif", (4,), True),
    "report": ("env.yml", (2,), True),
    "run": ("local x.sif -- ls", (4,), True),
    "shell": ("local x.sif", (4,), True),
    "module": ("local x.sif", (0,), False),
    "kernel": ("local x.sif", (0,), True),
    "push": ("env.yml oras://a.example/b:1", (2,), True),
    "convert": ("local env.yml", (2,), True),
    "status": ("", (2,), True),
    "diff": ("env.yml b.txt", (2,), True),
    "inspect": ("env.yml", (2,), True),
    "sites": ("", (0,), False),
    "cache ls": ("", (0,), False),
    "cache check": ("", (0,), True),
    "cache prune": ("", (0,), False),
    "doctor": ("local --offline", (4,), True),
    "init": ("mnist -o new.yml", (0,), False),
    "schema": ("sites", (2,), True),
    "config": ("", (0,), False),
    "completion": ("csh", (2,), True),
}


def commands() -> list[str]:
    """All commands, and those below them."""
    names = []
    for name in COMMANDS:
        command = run_cli.get_command(click.Context(run_cli), name)
        below = getattr(command, "commands", {})
        names += [name, *(f"{name} {word}" for word, found in below.items() if not found.hidden)]
    return names


@pytest.mark.parametrize("command", ["", *commands()])
def test_help(command: str, seat: Seat) -> None:
    line = f"recipe {command}".strip()
    narrow = seat.type(f"{line} --help")
    wide = seat.type_again(f"{line} -h", columns=120, color=False)
    pipe = seat.type_again(f"{line} --help", columns=None)
    for shown in (narrow, wide, pipe):
        assert (shown.code, faults(shown)) == (0, [])
        assert shown.lines[0].startswith("Usage: ")
    assert broken(narrow, wide) == []


@pytest.mark.parametrize("command", commands())
def test_without_arguments(command: str, seat: Seat) -> None:
    narrow, pipe = seat.type(f"recipe {command}"), seat.type_again(f"recipe {command}", columns=None)
    right = ALONE.get(command, (2,))
    again = (2,) if command == "init" else right  # its file is there now
    assert (narrow.code in right, pipe.code in again) == (True, True), narrow.lines
    assert faults(narrow) + faults(pipe) == []
    if command != "init":
        assert broken(narrow, pipe) == []


def test_every_command_is_typed() -> None:
    assert {*TYPED} == {*commands()} - {"cache"}


@pytest.mark.parametrize("command", TYPED)
def test_options_of_what_is_shown(command: str, seat: Seat) -> None:
    """-v, -q and --no-color are taken by each command; the last one holds for its faults and its usage too."""
    more, codes, colored = TYPED[command]
    seat.write({**PLACED, "x.txt": "torch==2.8.0+cu126\n", "x.sif": SIF})
    found = {}
    for option in ("", "-v", "-q", "--no-color", "--no-color --nonsense"):
        typed = seat.type_again if option else seat.type
        found[option] = shown = typed(f"recipe {command} {option} {more}")
        right = (2,) if "nonsense" in option else codes
        assert (shown.code in right, faults(shown)) == (True, []), (option, shown.code, shown.lines)
        (seat.work / "new.yml").unlink(missing_ok=True)
    assert bool(COLORS.search(found[""].raw)) == colored
    assert not COLORS.search(found["--no-color"].raw + found["--no-color --nonsense"].raw)
    assert len(found["-q"].lines) <= len(found["-v"].lines)


@pytest.mark.parametrize("flag", ["--version", "--help", "-h", ""])
def test_the_program_itself(flag: str, seat: Seat) -> None:
    shown = seat.type(f"recipe {flag}")
    assert (shown.code, faults(shown)) == (0 if flag else 2, [])


GONE = "import os, sys; os.chdir('gone'); os.rmdir('../gone'); os.execvp('recipe', sys.argv[1:])"
PATHS = ("build", "check", "lock", "smoke", "convert", "init")


@pytest.mark.parametrize("command", [*PATHS, "config", "doctor", "cache check"])
def test_a_current_folder_that_was_removed(command: str, seat: Seat) -> None:
    seat.write({"gone/": ""})
    shown = seat.type(f'python3 -c "{GONE}" recipe {command} {TYPED[command][0]}')
    assert "Traceback" not in shown.text
    assert shown.code in range(9)
    if command in PATHS:
        assert (shown.code, "the current folder was removed" in shown.text) == (2, True), shown.text
