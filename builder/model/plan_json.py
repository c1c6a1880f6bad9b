"""A plan as JSON and back: sorted, the same bytes for the same plan."""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import types
import typing
from typing import Any, Union

from builder.model.finding import ConfigError, Finding, Place
from builder.model.plan import Plan

SCHEMA = 1


def to_json(plan: Plan) -> str:
    """Write a plan as JSON text that ends with a newline."""
    content = {"schema": SCHEMA, **dataclasses.asdict(plan)}
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str, *, file: str = "plan.json") -> Plan:
    """Read a plan again; raises ConfigError with the first fault and the path of its key."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _fault(f"the plan is not JSON: {error}", file=file, key="") from None
    if not isinstance(content, dict):
        raise _fault("the plan is not a JSON object", file=file, key="")
    schema = content.pop("schema", None)
    if schema != SCHEMA or schema is True:
        raise _fault(f"the plan has schema {schema!r}, this version reads {SCHEMA}", file=file, key="schema")
    try:
        plan = _decode(Plan, content, key="")
    except _MismatchError as error:
        raise _fault(error.message, file=file, key=error.key) from None
    assert isinstance(plan, Plan)
    return plan


class _MismatchError(Exception):
    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(message)
        self.message, self.key = message, key


def _fault(message: str, *, file: str, key: str) -> ConfigError:
    fix = "write the plan folder again with `recipe plan`"
    return ConfigError(Finding(code="plan-faulty", message=message, at=Place(file=file, key=key), fix=fix))


def _decode(kind: Any, value: Any, *, key: str) -> Any:
    """Turn JSON data into a value of a type that the plan's dataclasses use."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, value, key=key)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return _expect(value in arguments and isinstance(value, str), value, " or ".join(map(repr, arguments)), key=key)
    if origin in (Union, types.UnionType):
        return None if value is None else _decode(arguments[0], value, key=key)
    if origin is tuple:
        items = _expect(isinstance(value, list), value, "a list", key=key)
        return tuple(_decode(arguments[0], item, key=f"{key}[{number}]") for number, item in enumerate(items))
    if origin is collections.abc.Mapping:
        table = _expect(isinstance(value, dict), value, "an object", key=key)
        return {name: _decode(arguments[1], item, key=f"{key}.{name}") for name, item in table.items()}
    if kind is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(_expect(number, value, "a number", key=key))
    if kind is int:
        return _expect(isinstance(value, int) and not isinstance(value, bool), value, "a whole number", key=key)
    return _expect(isinstance(value, kind), value, {str: "text", bool: "true or false"}[kind], key=key)


def _dataclass(kind: type, value: Any, *, key: str) -> Any:
    table = _expect(isinstance(value, dict), value, "an object", key=key)
    types_of = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in table:
        if name not in fields:
            raise _MismatchError(f"'{name}' is no key of a plan", key=f"{key}.{name}".lstrip("."))
    for name, field in fields.items():
        missing = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if missing and name not in table:
            raise _MismatchError(f"'{name}' is missing", key=key)
    return kind(
        **{name: _decode(types_of[name], item, key=f"{key}.{name}".lstrip(".")) for name, item in table.items()}
    )


def _expect(ok: bool, value: Any, expected: str, *, key: str) -> Any:
    if not ok:
        shown = json.dumps(value)
        raise _MismatchError(f"expected {expected}, found {shown if len(shown) <= 40 else shown[:37] + '...'}", key=key)
    return value
