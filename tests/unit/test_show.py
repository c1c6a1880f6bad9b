"""What a terminal shows: lines that fit, words that stay whole, images that are shortened."""

from __future__ import annotations

import click
from support.rows import rows

from builder.cli.output import Styled, columns, fit, short_image

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


def test_the_next_lines_of_a_fix_begin_below_its_text() -> None:
    assert fit("  fix: write the sites first, then the files", width=40) == [
        "  fix: write the sites first, then the",
        "       files",
    ]


def test_the_last_column_hangs() -> None:
    table = columns([["ok", "a name", "some words that are a few too many for it"]])
    assert fit(table, width=40) == ["ok  a name  some words that are a few", "            too many for it"]


def test_colours_take_no_room() -> None:
    line = click.style("error:", fg="red", bold=True) + " twenty-four columns"
    assert fit(line, width=30) == [line]
    row = columns([[Styled(click.style("ok", fg="green")), "a"], ["refused", "b"]]).splitlines()[0]
    assert row == click.style("ok", fg="green") + " " * 7 + "a"


@rows("room", [60, 45, 30, 20])
def test_a_long_image_is_shortened(room: int) -> None:
    short = short_image(REFERENCE, room=room)
    assert len(short) <= room
    assert short == {60: REFERENCE, 45: "…/intel-extension-for-pytorch:2.8.10-xpu"}.get(room, short)
    assert short.endswith("-xpu")
