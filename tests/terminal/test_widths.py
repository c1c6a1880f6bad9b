"""Terminals of any width: each stream is fitted to its own terminal, help and wide characters too."""

from __future__ import annotations

import unicodedata

import pytest
from conftest import Seat
from mistakes import PLACED
from screen import faults
from test_commands import commands


@pytest.mark.parametrize("columns", [20, 27, 40, 50, 60])
@pytest.mark.parametrize("command", ["", *commands()])
def test_help_fits(command: str, columns: int, seat: Seat) -> None:
    shown = seat.type_again(f"recipe {command} --help", columns=columns)  # test_commands.py starts it
    assert (shown.code, faults(shown)) == (0, [])


@pytest.mark.parametrize("columns", [20, 27, 40])
@pytest.mark.parametrize("line", [
    "check lumi-g env.yml", "check lumi-g no.yml", "chek", "check --nonsense", "explain glibc", "run local x.sif",
    "status",
])  # fmt: skip
def test_messages_fit(line: str, columns: int, seat: Seat) -> None:
    seat.write(PLACED)
    typed = seat.type if columns == 20 else seat.type_again
    shown = typed(f"recipe {line}", columns=columns)
    wide = [text for text in shown.lines if len(text) > columns and len(text.split()) > 1 and "  " not in text.strip()]
    assert wide == []


def test_messages_fit_their_own_terminal(seat: Seat) -> None:
    seat.write(PLACED)
    shown = seat.type("bash -c 'recipe check lumi-g no.yml | cat'", columns=40)
    assert faults(shown) == []
    piped = seat.type("bash -c 'recipe check lumi-g no.yml 2>&1 | cat'", columns=40)
    assert max(map(len, piped.lines)) > 40


def test_results_fit_their_own_terminal(seat: Seat) -> None:
    shown = seat.type("bash -c 'recipe explain glibc 2>err'", columns=40)
    assert (shown.code, faults(shown)) == (0, [])
    assert max(map(len, shown.lines)) > 30


def test_wide_characters_take_two_columns(seat: Seat) -> None:
    seat.write({"wide.yml": f"name: x\n{' '.join(['環境'] * 12)}: 1\ndependencies: [python]\n"})
    shown = seat.type("recipe check local wide.yml", columns=40)
    widths = [sum(1 + (unicodedata.east_asian_width(one) in "WF") for one in line) for line in shown.lines]
    assert (shown.code, "環境" in shown.text) == (2, True)
    assert max(widths) <= 40, shown.lines
