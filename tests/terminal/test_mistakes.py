"""The table of mistakes at a terminal: each message is whole, and the cure that it names works."""

from __future__ import annotations

import re

import pytest
from conftest import Seat
from mistakes import ACCEPTED, MISTAKES, PLACED, Mistake
from screen import faults


def furnish(seat: Seat, files: dict[str, str | bytes]) -> None:
    seat.write({**PLACED, **files})
    for name in files:
        if name.startswith("shut"):
            (seat.work / "shut").chmod(0)


def test_every_row_has_its_reason() -> None:
    numbers = [row.number for row in MISTAKES]
    assert len(set(numbers)) == len(numbers)
    for row in MISTAKES:
        assert row.cure is not None or row.why, row.number
        assert row.score == 3 or row.why, row.number
    assert sum(row.cure is not None for row in MISTAKES) > 80


@pytest.mark.parametrize("row", MISTAKES, ids=lambda row: f"{row.number}: {row.line}")
def test_a_mistake(row: Mistake, seat: Seat) -> None:
    furnish(seat, dict(row.files))
    shown = seat.type(row.line)
    text = shown.text
    assert (shown.code, faults(shown)) == (row.code, []), text
    assert re.search(rf"error(\[[\w-]+\])?: .*{row.what}", text, re.DOTALL), text
    assert re.search(row.where, text), text
    fix = re.search(rf"fix: .*?(?:{row.fix})", text, re.DOTALL)
    assert fix is not None, text
    if row.cure is None:
        return
    after = row.cure(seat, row, fix)
    assert (after.code in row.then, faults(after)) == (True, []), (after.words, after.code, after.text)
    assert after.code == 0 or not re.search(rf"error(\[[\w-]+\])?: .*{row.what}", after.text, re.DOTALL), after.text


@pytest.mark.parametrize(("number", "line", "code", "said", "files"), ACCEPTED)
def test_what_is_no_mistake(
    number: str, line: str, code: int, said: str, files: dict[str, str | bytes], seat: Seat
) -> None:
    furnish(seat, files)
    shown = seat.type(line)
    assert (shown.code, faults(shown)) == (code, []), (number, shown.text)
    assert re.search(said, shown.text, re.DOTALL), (number, shown.text)
