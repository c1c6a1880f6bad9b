"""JSON data to frozen dataclasses, as strictly as they were written: types, choices, numbers, no key too many."""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import math
import types
import typing
from functools import cache
from typing import Any, TypeVar, Union

from builder.model.plain import LARGEST
from builder.model.safe import shown

T = TypeVar("T")
WIDEST = 2**64  # of a whole number: an inode has 64 bits


class MismatchError(ValueError):
    """A value of another kind than its place; `key` is the path to it."""

    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(f"{message}, at '{key}'" if key else message)
        self.message, self.key = message, key


def typed(kind: type[T], value: Any, *, schema: int | None = None, what: str = "file", more: bool = False) -> T:
    """Turn plain data into the dataclass `kind`; raises MismatchError with the first fault.

    `schema` is the version that the table must name, `what` the word for it in messages; with `more` a table may have
    keys of its own beside those of `kind`, as what a shell script writes.
    """
    table = _expect(isinstance(value, dict), value, "an object", key="")
    if schema is not None:
        found = table.get("schema")
        if found != schema or isinstance(found, bool):
            other = shown(repr(found), limit=40)
            raise MismatchError(f"the {what} has schema {other}, this version reads {schema}", key="schema")
        table = {name: item for name, item in table.items() if name != "schema"}
    if more:
        table = {name: item for name, item in table.items() if name in _fields(kind)}
    decoded = _dataclass(kind, table, key="", what=what)
    assert isinstance(decoded, kind)
    return decoded


def _fields(kind: Any) -> dict[str, Any]:
    return _shape(kind)[0]


@cache
def _shape(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """The type of every field, and the names that may not be missing."""
    needed = [
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}, frozenset(needed)


def _decode(kind: Any, value: Any, *, key: str, what: str) -> Any:
    """Turn JSON data into a value of a type that our dataclasses use."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, value, key=key, what=what)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return _expect(isinstance(value, str) and value in arguments, value, " or ".join(map(repr, arguments)), key=key)
    if origin in (Union, types.UnionType):
        return None if value is None else _decode(arguments[0], value, key=key, what=what)
    if origin is tuple:
        items = _expect(isinstance(value, list), value, "a list", key=key)
        return tuple(_decode(arguments[0], item, key=f"{key}[{at}]", what=what) for at, item in enumerate(items))
    if origin is collections.abc.Mapping:
        table = _expect(isinstance(value, dict), value, "an object", key=key)
        return {name: _decode(arguments[1], item, key=f"{key}.{name}", what=what) for name, item in table.items()}
    return value if kind is Any else _scalar(kind, value, key=key)


def _scalar(kind: Any, value: Any, *, key: str) -> Any:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is float:
        fits = number and abs(value) <= LARGEST and math.isfinite(value)
        return float(_expect(fits, value, "a number" if not number else "a number of a sane size", key=key))
    if kind is int:
        whole = number and isinstance(value, int)
        fits = whole and abs(value) < WIDEST
        return _expect(fits, value, "a whole number" if not whole else "a whole number of a sane size", key=key)
    return _expect(isinstance(value, kind), value, {str: "text", bool: "true or false"}[kind], key=key)


def _dataclass(kind: Any, value: Any, *, key: str, what: str) -> Any:
    table = _expect(isinstance(value, dict), value, "an object", key=key)
    fields, needed = _shape(kind)
    for name in table:
        if name not in fields:
            raise MismatchError(f"'{shown(name)}' is no key of a {what}", key=f"{key}.{name}".lstrip("."))
    for name in fields:
        if name in needed and name not in table:
            raise MismatchError(f"'{name}' is missing", key=key)
    keys = {name: f"{key}.{name}".lstrip(".") for name in table}
    return kind(**{name: _decode(fields[name], item, key=keys[name], what=what) for name, item in table.items()})


def _expect(ok: bool, value: Any, expected: str, *, key: str) -> Any:
    if not ok:
        raise MismatchError(f"expected {expected}, found {_shown(value)}", key=key)
    return value


def _shown(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= WIDEST:
        return "a number of too many digits"
    return shown(json.dumps(value), limit=40)
