"""TOML text to the tree of yaml.py, whose keys and items know their lines. tomllib itself knows no lines.

The text is scanned first: one pass that takes a superset of TOML, notes the line of each key and item, and bounds what
the reader of Python would need the square of (the parts of a dotted key) or recurse for.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

from builder.model.finding import ConfigError, Finding, Location
from builder.model.text import sanitize
from builder.parse.yaml import DEPTH_LIMIT, NODE_LIMIT, Listing, Table, Text, Value

SIZE_LIMIT = 1024 * 1024  # bytes
PARTS_LIMIT = 16  # of a dotted key

BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
SPACE = re.compile(r"[ \t]*")
KEY = re.compile(r"""[A-Za-z0-9_-]+|"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\n]*'""")
STRING = re.compile(
    r'''"""[^"\\]*(?:(?:\\.|"{1,2}(?!"))[^"\\]*)*"{3,5}|\'\'\'[^']*(?:'{1,2}(?!')[^']*)*'{3,5}'''
    r"""|"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\n]*\'""",
    re.DOTALL,
)
SCALAR = re.compile(r"[^\n,\]}#\"'\[{]+")
ERROR = re.compile(r"(.*?) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)
ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\"}
Path = tuple[str | int, ...]  # the keys and the places in lists that lead to a value


def parse_toml(text: str, *, file: str, nodes: int = NODE_LIMIT) -> Table:
    """Parse a TOML document of so many values; raises ConfigError with the line of what is wrong."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib
    lines = _Scanner(text, file=file, nodes=nodes).scan()
    try:
        tree = tomllib.loads(text, parse_float=_Written)
        return _convert_table(tree, (), lines=lines, line=1)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError, too
        raise ConfigError(_make_finding(str(error), text=text, file=file)) from None


class _Written(str):
    """A number as it was written: 3.10 stays 3.10."""

    __slots__ = ()


def _make_finding(error: str, *, text: str, file: str) -> Finding:
    found = ERROR.match(error)
    words = found[1] if found else error
    line = int(found[2]) if found and found[2] else text.count("\n") + 1 if found else None
    at = Location(file=file, line=line)
    if words.startswith(("Cannot overwrite", "Duplicate", "Cannot declare", "Cannot mutate")):
        message = "a key or a table occurs twice"
        return Finding(code="toml-duplicate", message=message, at=at, fix="keep one of them")
    if words.startswith("Illegal character '\\n'"):
        message = "a quote is opened in this line and not closed"
        return Finding(code="toml-syntax", message=message, at=at, fix="close it")
    message = f"this is not TOML: {sanitize(words[:1].lower() + words[1:], limit=120)}"
    return Finding(code="toml-syntax", message=message, at=at, fix="check quotes, brackets and commas")


def _convert(value: Any, path: Path, *, lines: Mapping[Path, int], line: int) -> Value:
    line = lines.get(path, line)
    if isinstance(value, dict):
        return _convert_table(value, path, lines=lines, line=line)
    if isinstance(value, list):
        items = (_convert(item, (*path, index), lines=lines, line=line) for index, item in enumerate(value))
        return Listing(items=tuple(items), line=line)
    if isinstance(value, bool):
        return Text(raw="true" if value else "false", line=line, kind="bool")
    if isinstance(value, (int, _Written)):
        return Text(raw=str(value), line=line, kind="number")
    if isinstance(value, str):
        return Text(raw=value, line=line)
    return Text(raw=str(value), line=line, kind="date")


def _convert_table(tree: Mapping[str, Any], path: Path, *, lines: Mapping[Path, int], line: int) -> Table:
    entries = []
    for name, item in tree.items():
        place = (*path, name)
        at = lines.get(place, line)
        entries.append((Text(raw=name, line=at), _convert(item, place, lines=lines, line=at)))
    return Table(entries=tuple(entries), line=line)


class _EndError(Exception):
    """What follows is not TOML: the reader says so, with its place."""


class _Scanner:
    """Finds the lines of keys and items, in one pass."""

    def __init__(self, text: str, *, file: str, nodes: int) -> None:
        self.text, self.file, self.nodes, self.at = text, file, nodes, 0
        self.ends = [found.start() for found in re.finditer("\n", text)]
        self.lines: dict[Path, int] = {}
        self.counts: dict[Path, int] = {}  # of `[[name]]`: the place of the last one

    def scan(self) -> Mapping[Path, int]:
        """Return the line of each path; raises ConfigError beyond a bound."""
        prefix: Path = ()
        try:
            while self._skip(BLANK) < len(self.text):
                if self.text.startswith("[", self.at):
                    prefix = self._read_header()
                else:
                    self._read_pair(prefix, depth=0)
        except _EndError:
            pass
        return self.lines

    def _line(self) -> int:
        return bisect_left(self.ends, self.at) + 1

    def _skip(self, form: re.Pattern[str]) -> int:
        """Pass over what the form matches, and return the new place."""
        found = form.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.at

    def _take(self, form: re.Pattern[str]) -> str:
        found = form.match(self.text, self.at)
        if found is None:
            raise _EndError
        self.at = found.end()
        return found[0]

    def _expect(self, mark: str) -> None:
        if not self.text.startswith(mark, self.at):
            raise _EndError
        self.at += len(mark)

    def _note(self, path: Path, line: int) -> None:
        if len(self.lines) >= self.nodes:
            self._refuse(f"the file holds more than {self.nodes} values", "check that it is the right file")
        self.lines.setdefault(path, line)

    def _refuse(self, message: str, fix: str) -> None:
        at = Location(file=self.file, line=self._line())
        raise ConfigError(Finding(code="toml-bomb", message=message, at=at, fix=fix))

    def _read_keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._skip(SPACE)
            keys.append(_unquote(self._take(KEY)))
            if len(keys) > PARTS_LIMIT:
                self._refuse(f"a key has more than {PARTS_LIMIT} parts", "write it as a table")
            self._skip(SPACE)
            if not self.text.startswith(".", self.at):
                return keys
            self.at += 1

    def _read_header(self) -> Path:
        line, double = self._line(), self.text.startswith("[[", self.at)
        self.at += 2 if double else 1
        keys = self._read_keys()
        path: Path = ()
        self._expect("]]" if double else "]")
        for place, key in enumerate(keys):
            path = (*path, key)
            self._note(path, line)
            last = place == len(keys) - 1
            if double and last:
                self.counts[path] = self.counts.get(path, -1) + 1
            if path in self.counts:
                path = (*path, self.counts[path])
                self._note(path, line)
        return path

    def _read_pair(self, prefix: Path, *, depth: int) -> None:
        line = self._line()
        for key in self._read_keys():
            prefix = (*prefix, key)
            self._note(prefix, line)
        self._expect("=")
        self._skip(SPACE)
        self._read_value(prefix, depth=depth)

    def _read_value(self, path: Path, *, depth: int) -> None:
        if depth > DEPTH_LIMIT:
            self._refuse(f"the file is nested more than {DEPTH_LIMIT} levels deep", "write it flat")
        mark = self.text[self.at : self.at + 1]
        if mark in ('"', "'"):
            self._take(STRING)
        elif mark == "[":
            self.at += 1
            self._read_items(path, depth=depth + 1)
        elif mark == "{":
            self.at += 1
            self._read_inline(path, depth=depth + 1)
        else:
            self._take(SCALAR)

    def _read_items(self, path: Path, *, depth: int) -> None:
        index = 0
        while not self.text.startswith("]", self._skip(BLANK)):
            self._note((*path, index), self._line())
            self._read_value((*path, index), depth=depth)
            index += 1
            if self.text.startswith(",", self._skip(BLANK)):
                self.at += 1
        self.at += 1

    def _read_inline(self, path: Path, *, depth: int) -> None:
        while not self.text.startswith("}", self._skip(BLANK)):
            self._read_pair(path, depth=depth)
            if self.text.startswith(",", self._skip(BLANK)):
                self.at += 1
        self.at += 1


def _unquote(key: str) -> str:
    """A key without its quotes; a rare escape (`\\u0041`) stays, and with it the line of the table above."""
    if key[0] == "'":
        return key[1:-1]
    return re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[0]), key[1:-1]) if key[0] == '"' else key
