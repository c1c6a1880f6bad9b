"""Quote words for bash. The only place where text becomes shell; all text in scripts is quoted here."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from builder.model.plan import ShellExpr, Word
from builder.model.text import VARIABLE

_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_SPECIAL = re.compile(r'([\\"`$])')


def quote_word(value: Word) -> str:
    """Quote one word; in a `ShellExpr` the shell expands ${NAME} and nothing else."""
    return quote_expression(value.text) if isinstance(value, ShellExpr) else shlex.quote(value)


def quote_expression(text: str) -> str:
    """Quote a text in which the shell expands ${NAME} and nothing else."""
    parts: list[str] = []
    end = 0
    for match in _REFERENCE.finditer(text):
        parts += [_SPECIAL.sub(r"\\\1", text[end : match.start()]), match.group()]
        end = match.end()
    parts.append(_SPECIAL.sub(r"\\\1", text[end:]))
    return '"' + "".join(parts) + '"' if text else "''"


def quote_command(argv: Iterable[Word]) -> str:
    """Quote one command; a long one is split into lines, each option with its value on its own line."""
    items = list(argv)
    line = " ".join(quote_word(item) for item in items)
    if len(line) <= 110:
        return line
    rows: list[str] = []
    for before, item in zip([None, *items], items, strict=False):
        if before is None or _is_option(item) or (_is_option(before) and "=" in _format_word(before)):
            rows.append(quote_word(item))
        else:
            rows[-1] += f" {quote_word(item)}"
    return " \\\n  ".join(rows)


def _format_word(item: Word) -> str:
    return item.text if isinstance(item, ShellExpr) else item


def _is_option(item: Word) -> bool:
    return _format_word(item).startswith("-")


def export(variables: Mapping[str, str], *, expand: bool = False) -> list[str]:
    """Write `export` lines; values are literal, or contain ${NAME} with `expand`."""
    lines = []
    for name, value in variables.items():
        assert VARIABLE.fullmatch(name), f"checked when the file was read: {name!r}"
        lines.append(f"export {name}={quote_word(ShellExpr(value) if expand else value)}")
    return lines


def comment(text: str) -> str:
    """Write a comment of one line, whatever the text contains."""
    return "# " + " ".join(text.split())
