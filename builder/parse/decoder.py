"""The tree of a document to frozen dataclasses: their annotations are the schema."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Literal, TypeVar, Union

from builder.model.finding import Finding, Location, find_typo, make_edit, suggest_name
from builder.model.text import sanitize
from builder.parse.yaml import Listing, Table, Text, Value, describe

LARGEST = 10**15  # no count, size or time here is beyond it
INSTEAD = {  # key of a site -> what to do without the value that one would like
    "scheduler.kind": "only Slurm is known: write kind: none, and submit the scripts of a plan yourself",
}
ON_COMMAND_LINE = {  # keys that one looks for in a recipe
    "container.site": "remove it, and name the site on the command line: `recipe build SITE ENV`",
    "container.sites": "remove it: one file is for every site, and the command line names one or several of them",
    "container.backend": "remove it, and name it on the command line: --backend NAME",
    "container.output": "remove it, and name it on the command line: -o PATH",
}
T = TypeVar("T")


@cache
def _read_fields(kind: Any) -> tuple[Mapping[str, Any], Mapping[str, dataclasses.Field[Any]]]:
    """Types and fields of a dataclass; reading the annotations took a third of the time of a site file."""
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    return {name: _read_annotation(str(field.type), module=kind.__module__) for name, field in fields.items()}, fields


@cache
def _read_annotation(text: str, *, module: str) -> Any:
    """The type that an annotation of a module names; hundreds of fields share a dozen of them."""
    return eval(text, vars(import_module(module)))


def find_key_type(kind: Any, name: str) -> tuple[Any, bool]:
    """Return the type of a key in a table of type `kind` (None for an unknown key), and if it is optional."""
    if typing.get_origin(kind) in (Union, types.UnionType):
        kind = next(part for part in typing.get_args(kind) if part is not type(None))
    origin = typing.get_origin(kind)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return typing.get_args(kind)[1], True
    if not dataclasses.is_dataclass(kind):
        return None, False
    hints, fields = _read_fields(typing.cast("typing.Hashable", kind))
    return (hints[name], not _is_required(fields[name])) if name in fields else (None, False)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


class Decoder:
    """Decode a tree by a dataclass's annotations; faults are collected in `findings`, never raised one by one."""

    def __init__(self, *, file: str) -> None:
        self.file = file
        self.findings: list[Finding] = []

    def add_fault(
        self, code: str, message: str, *, line: int, key: str, fix: str, edit: tuple[str, str] | None = None
    ) -> None:
        at = Location(file=self.file, line=line, key=key)
        change = make_edit(at, *edit) if edit else None
        self.findings.append(Finding(code=code, message=message, at=at, fix=fix, edit=change))

    def add_wrong_type(
        self, value: Value, expected: str, *, key: str, fix: str, edit: tuple[str, str] | None = None
    ) -> None:
        """Add the fault of a value that is not what is expected there."""
        message = f"expected {expected}, found {describe(value)}"
        self.add_fault("wrong-type", message, line=value.line, key=key, fix=fix, edit=edit)

    def decode(self, value: Value, kind: Any, *, key: str) -> Any:
        """Return the value as `kind`, or None with a fault in `findings`."""
        if kind is str:  # most values
            return self._decode_string(value, key=key)
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin in (Union, types.UnionType):
            return self._decode_optional(value, arguments, key=key)
        if origin is Literal:
            return self._decode_choice(value, arguments, key=key)
        if origin is tuple:
            return self._decode_tuple(value, arguments[0], key=key)
        if origin is not None and issubclass(origin, Mapping):
            return self._decode_mapping(value, arguments[1], key=key)
        if dataclasses.is_dataclass(kind):
            return self.decode_table(value, typing.cast(type[Any], kind), key=key)
        return self._decode_scalar(value, kind, key=key)

    def decode_table(self, value: Value, kind: type[T], *, key: str) -> T | None:
        """Decode a table into the dataclass `kind`; unknown, missing and faulty keys become faults."""
        if not isinstance(value, Table):
            self.add_wrong_type(value, "a table of keys", key=key, fix=self._format_known_keys(kind))
            return None
        hints, fields = _read_fields(typing.cast("typing.Hashable", kind))
        before = len(self.findings)
        found: dict[str, Any] = {}
        edit: tuple[str, str] | None
        for name, item in value.entries:
            if name.raw not in fields:
                shown, fix = sanitize(name.raw), suggest_name(name.raw, known=fields)
                place, edit = f"{key}.{shown}".lstrip("."), (name.raw, find_typo(name.raw, known=fields))
                if place in ON_COMMAND_LINE:
                    fix, edit = ON_COMMAND_LINE[place], None
                self.add_fault("unknown-key", f"unknown key '{shown}'", line=name.line, key=place, fix=fix, edit=edit)
                continue
            found[name.raw] = self.decode(item, hints[name.raw], key=f"{key}.{name.raw}".lstrip("."))
        for name_, field in fields.items():
            if _is_required(field) and name_ not in found:
                where = f" in '{key}'" if key else ""
                message = f"the key '{name_}' is missing{where}"
                self.add_fault("missing-key", message, line=value.line, key=key, fix=f"add '{name_}:'")
        return kind(**found) if len(self.findings) == before else None

    def _format_known_keys(self, kind: Any) -> str:
        return "known keys: " + ", ".join(sorted(field.name for field in dataclasses.fields(kind)))

    def _decode_optional(self, value: Value, arguments: tuple[Any, ...], *, key: str) -> Any:
        """`X | None`: the word `unknown` (or nothing) is None: an unknown fact is written, never left out."""
        if isinstance(value, Text) and (value.kind == "null" or value.raw == "unknown"):
            return None
        kinds = [kind for kind in arguments if kind is not type(None)]
        return self.decode(value, kinds[0], key=key)

    def _decode_choice(self, value: Value, choices: tuple[Any, ...], *, key: str) -> Any:
        if isinstance(value, Text) and value.raw in choices:
            return value.raw
        words = [str(choice) for choice in choices]
        fix = (
            suggest_name(value.raw, known=words, noun="allowed")
            if isinstance(value, Text)
            else f"allowed: {', '.join(words)}"
        )
        if key in INSTEAD:
            fix = f"{INSTEAD[key]}; {fix}"
        self.add_fault(
            "wrong-choice",
            f"expected one of {', '.join(words)}, found {describe(value)}",
            line=value.line,
            key=key,
            fix=fix,
            edit=(value.raw, find_typo(value.raw, known=words)) if isinstance(value, Text) else None,
        )
        return None

    def _decode_tuple(self, value: Value, kind: Any, *, key: str) -> tuple[Any, ...]:
        if not isinstance(value, Listing):
            if isinstance(value, Text) and value.kind == "null":
                return ()
            self.add_wrong_type(value, "a list", key=key, fix="write one item a line, each after '- '")
            return ()
        return tuple(self.decode(item, kind, key=f"{key}[{index}]") for index, item in enumerate(value.items))

    def _decode_mapping(self, value: Value, kind: Any, *, key: str) -> dict[str, Any]:
        if not isinstance(value, Table):
            if isinstance(value, Text) and value.kind == "null":
                return {}
            self.add_wrong_type(value, "a table of keys", key=key, fix="write it as 'KEY: value' lines")
            return {}
        return {name.raw: self.decode(item, kind, key=f"{key}.{sanitize(name.raw)}") for name, item in value.entries}

    def _decode_scalar(self, value: Value, kind: Any, *, key: str) -> Any:
        if kind is bool:
            return self._decode_boolean(value, key=key)
        assert kind in (int, float), f"no decoding for {kind}"
        noun = "a whole number" if kind is int else "a number"
        if isinstance(value, Text) and value.kind == "number":
            try:
                found = kind(value.raw)
                if abs(found) <= LARGEST:  # neither infinite nor of a thousand digits
                    return found
            except ValueError:
                pass
        self.add_wrong_type(value, noun, key=key, fix=f"write {noun}")
        return None

    def _decode_string(self, value: Value, *, key: str) -> str | None:
        if isinstance(value, Text) and value.kind in ("text", "date"):
            return value.raw
        edit = None
        if isinstance(value, Text) and value.kind != "null":
            edit = (value.raw, f'"{value.raw}"')
            name = key.rpartition(".")[2]
            named = f"{name}: " if name and not name.endswith("]") else ""  # an item of a list has no key
            fix = f'put quotes round it: {named}"{sanitize(value.raw)}"'
        else:
            fix = "write a text"
        self.add_wrong_type(value, "text", key=key, fix=fix, edit=edit)
        return None

    def _decode_boolean(self, value: Value, *, key: str) -> bool | None:
        if isinstance(value, Text) and value.kind == "bool":
            return value.raw.lower() in ("true", "yes", "on")
        self.add_wrong_type(value, "true or false", key=key, fix="write true or false")
        return None
