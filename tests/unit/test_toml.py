"""TOML with lines: the scanner finds the place of every value that Python's reader finds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.rows import rows

from builder.model.finding import ConfigError
from builder.parse.toml import parse_toml
from builder.parse.yaml import Listing, Table, Text, Value

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

TEXT = '''# a comment with [brackets] and "quotes"
title = "one" # and "two"
[a]
"quoted key" = 'x]'
dotted.b.c = [ 1, # [
  [2, 3],
  { d = "e", f.g = 3.10 },
]
long = """
[not.a.table]
key = "\\""" """
[[list]]
x = 1
  [list.inner]
  y = 1979-05-27 07:32:00
[[list]]
x = true
[a.later]
z = QQQ"'"QQQ # x
'''.replace("QQQ", "'" * 3)
LINES = {
    ("title",): 2, ("a",): 3, ("a", "quoted key"): 4, ("a", "dotted"): 5, ("a", "dotted", "b", "c"): 5,
    ("a", "dotted", "b", "c", 0): 5, ("a", "dotted", "b", "c", 1): 6, ("a", "dotted", "b", "c", 1, 1): 6,
    ("a", "dotted", "b", "c", 2): 7, ("a", "dotted", "b", "c", 2, "f", "g"): 7, ("a", "long"): 9, ("list",): 12,
    ("list", 0, "x"): 13, ("list", 0, "inner"): 14, ("list", 0, "inner", "y"): 15, ("list", 1): 16,
    ("list", 1, "x"): 17, ("a", "later"): 18, ("a", "later", "z"): 19,
}  # fmt: skip


def list_lines(value: Value, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """Each path below a value, with its line."""
    if isinstance(value, Table):
        for name, item in value.entries:
            yield (*path, name.raw), name.line
            yield from list_lines(item, (*path, name.raw))
    elif isinstance(value, Listing):
        for index, item in enumerate(value.items):
            yield (*path, index), item.line
            yield from list_lines(item, (*path, index))


def to_plain(value: Value) -> Any:
    if isinstance(value, Table):
        return {name.raw: to_plain(item) for name, item in value.entries}
    return [to_plain(item) for item in value.items] if isinstance(value, Listing) else value.raw


def test_each_key_and_item_has_its_line() -> None:
    found = dict(list_lines(parse_toml(TEXT, file="x.toml")))
    assert {path: found[path] for path in LINES} == LINES


def test_lines_are_right_with_the_ends_of_windows() -> None:
    text = TEXT.replace("\n", "\r\n")
    found = dict(list_lines(parse_toml(text, file="x.toml")))
    assert {path: found[path] for path in LINES} == LINES


def test_values_are_those_of_the_reader_of_python() -> None:
    def write(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: write(item) for name, item in value.items()}
        if isinstance(value, list):
            return [write(item) for item in value]
        return str(value).lower() if isinstance(value, bool) else str(value)

    assert to_plain(parse_toml(TEXT, file="x")) == write(tomllib.loads(TEXT, parse_float=str))


def test_a_number_stays_as_it_was_written() -> None:
    tree = parse_toml("a = 3.10\n", file="x")
    assert tree.get("a") == Text(raw="3.10", line=1, kind="number")


def test_our_own_file_has_the_lines_that_it_has() -> None:
    path = Path(__file__).parents[2] / "pyproject.toml"
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for place, line in list_lines(parse_toml(text, file="x")):
        if isinstance(place[-1], str):
            assert place[-1] in lines[line - 1], place
    assert to_plain(parse_toml(text, file="x")).keys() == tomllib.loads(text).keys()


SIZE = 1 << 20
BOMBS = {
    "a string without its end": 'a = """' + "x" * SIZE,
    "quotes in a long string": 'a = """' + '\\"""' * (SIZE // 4),
    "a key of many parts": "a" + ".a" * (SIZE // 2) + " = 1",
    "a header of many parts": "[" + "a." * (SIZE // 2) + "a]",
    "lists in lists": "a = " + "[" * SIZE,
    "tables in tables": "a = " + "{a=" * (SIZE // 3),
    "many items": "a = [" + "1," * (SIZE // 2) + "]",
    "many tables": "[[a]]\n" * (SIZE // 6),
    "a number of a million digits": "a = " + "9" * SIZE,
    "a hexadecimal number of a million digits": "a = 0x" + "f" * SIZE,
}


@rows("text", BOMBS.values(), ids=list(BOMBS))
def test_bombs_are_refused_in_a_moment(text: str) -> None:
    start = time.process_time()
    with pytest.raises(ConfigError):
        parse_toml(text, file="x")
    assert time.process_time() - start < 5
