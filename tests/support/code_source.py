"""Every code of a finding that the source can give, read from its syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache

from support.own_code import PACKAGE, files, nodes_of

CODE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
OTHERS = {"run_command", "read_page", "Binary", "Outcome"}  # their `code` is another thing
FATES = re.compile(r"(?:job|no)-[a-z]+(-[a-z]+)*")  # in tables of what Slurm says
PER_BACKEND = {"check_unsupported_keys", "check_constraints"}


@cache
def source_codes() -> frozenset[str]:
    """Every code that is given to a function or a class with a field `code`, or is in a table of Slurm's words."""
    paths = [path for path in files() if not {"smoke", "data"} & set(path.relative_to(PACKAGE).parts)]
    nodes = [node for path in paths for node in nodes_of(path)]
    takers: dict[str, set[int]] = {}
    for name, position in _takers(nodes):
        takers.setdefault(name, set()).add(position)
    constants: dict[str, set[str]] = {}
    for name, value in _constants(nodes):
        constants.setdefault(name, set()).add(value)
    found = {code for node in nodes if isinstance(node, ast.Call) for code in _given(node, takers, constants)}
    for path in paths:
        if path.parent.name == "slurm":
            words = (node.value for node in nodes_of(path) if isinstance(node, ast.Constant))
            found |= {word for word in words if isinstance(word, str) and FATES.fullmatch(word)}
    return frozenset(code for code in found if CODE.fullmatch(code))


def _takers(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args if argument.arg not in ("self", "cls")]
        elif isinstance(node, ast.ClassDef):
            fields = [line.target for line in node.body if isinstance(line, ast.AnnAssign)]
            names = [field.id for field in fields if isinstance(field, ast.Name)]
        if "code" in names and isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name not in OTHERS:
            yield node.name, names.index("code")


def _constants(nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        for target, value in _assignments(node) if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield target.id, value.value


def _assignments(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with its value, also those of a tuple."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _given(call: ast.Call, takers: Mapping[str, set[int]], constants: Mapping[str, set[str]]) -> Iterator[str]:
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    if name in PER_BACKEND:
        words = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg in ("keys", "backend")}
        yield from (f"{words['backend']}-{key}" for key in words.get("keys", ("constraints",)))
    values = [word.value for word in call.keywords if word.arg == "code" and name not in OTHERS]
    values += [call.args[at] for at in takers.get(name, ()) if at < len(call.args)]
    for part in (part for value in values if not isinstance(value, ast.JoinedStr) for part in ast.walk(value)):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        elif isinstance(part, ast.Name) and part.id in constants:
            yield from constants[part.id]
