"""What a terminal shows: lines that fit, words that stay whole, images that are shortened."""

from __future__ import annotations

import io
import sys

import click
import pytest
from support.rows import rows

from builder.cli.output import StyledText, format_columns, format_finding, shorten_image
from builder.cli.streams import fit, get_screen_width, measure_columns
from builder.model.finding import Finding, Location

REFERENCE = "docker://intel/intel-extension-for-pytorch:2.8.10-xpu"


@rows(
    ("line", "rows"),
    [
        ("short", ["short"]),
        ("error: one two three four five six seven", ["error: one two three four five", "  six seven"]),
        ("  fix: a", ["  fix: a"]),
        ("x" * 50, ["x" * 50]),
        ("see " + "y" * 40 + " here", ["see", "  " + "y" * 40, "  here"]),
    ],
)
def test_a_long_line_is_broken_between_words(line: str, rows: list[str]) -> None:
    assert fit(line, width=30) == rows


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        (
            "  fix: type this: `recipe smoke local x.sif`; or wait",
            ["  fix: type this:", "       `recipe smoke local x.sif`; or", "       wait"],
        ),
        (
            "  fix: `aaaa bbbb cccc dddd eeee ffff gggg hhhh`",
            ["  fix: `aaaa bbbb cccc dddd eeee ffff", "       gggg hhhh`"],
        ),
        ("one two three four five ` six seven eight", ["one two three four five ` six seven", "  eight"]),
    ],
)
def test_a_command_in_backquotes_stays_on_one_row(line: str, rows: list[str]) -> None:
    assert fit(line, width=40) == rows


@pytest.mark.parametrize(
    ("message", "at", "shown"),
    [
        ("'a.yml' is a folder", Location(file="a.yml"), False),
        ("'a.yml' is a folder", Location(file="a.yml", line=3), True),
        ("'b.yml' is a folder", Location(file="a.yml"), True),
        ("'x' cannot be the value of --mem", Location(key="--mem"), False),
        ("'x' cannot be the value of --memory", Location(key="--mem"), True),
        ("'a.yml' is odd", Location(file="a.yml", key="name"), True),
        ("odd", Location(), False),
    ],
)
def test_a_place_that_the_message_names_is_not_repeated(message: str, at: Location, shown: bool) -> None:
    lines = format_finding(Finding(code="x", message=message, at=at, fix="mend it"))
    assert any(line.startswith("  at:") for line in lines) == shown


def test_the_next_lines_of_a_fix_begin_below_its_text() -> None:
    assert fit("  fix: write the sites first, then the files", width=40) == [
        "  fix: write the sites first, then the",
        "       files",
    ]


def test_the_last_column_hangs() -> None:
    table = format_columns([["ok", "a name", "some words that are a few too many for it"]])
    assert fit(table, width=40) == ["ok  a name  some words that are a few", "            too many for it"]


def test_colours_take_no_room() -> None:
    line = click.style("error:", fg="red", bold=True) + " twenty-four columns"
    assert fit(line, width=30) == [line]
    row = format_columns([[StyledText(click.style("ok", fg="green")), "a"], ["refused", "b"]]).splitlines()[0]
    assert row == click.style("ok", fg="green") + " " * 7 + "a"


@rows("room", [60, 45, 30, 20])
def test_a_long_image_is_shortened(room: int) -> None:
    short = shorten_image(REFERENCE, room=room)
    assert len(short) <= room
    assert short == {60: REFERENCE, 45: "…/intel-extension-for-pytorch:2.8.10-xpu"}.get(room, short)
    assert short.endswith("-xpu")


def test_wide_and_combining_characters_are_measured_in_columns() -> None:
    assert [measure_columns(text) for text in ("ab", "環境", "e\u0301", "\x1b[31mab\x1b[0m")] == [2, 4, 1, 2]
    assert fit("環境 環境 環境", width=10) == ["環境 環境", "  環境"]
    assert fit("a word and another", width=10) == ["a word and", "  another"]


@pytest.mark.parametrize(("columns", "width"), [("33", 33), ("7", 10), ("0", 80), ("wide", 80)])
def test_a_stream_has_the_width_of_its_terminal(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Screen())
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setenv("COLUMNS", columns)
    assert (get_screen_width(err=True), get_screen_width()) == (width, None)
