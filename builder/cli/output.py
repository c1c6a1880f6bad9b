"""Output: text fitted to the terminal, findings, tables, colours, JSON documents. All commands print through it.

Machine output goes unchanged to stdout, everything else to stderr. A pipe and a file get unbroken lines.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from builder.cli.streams import fit, get_screen_width, measure_columns
from builder.model.finding import Finding, Location
from builder.model.text import UNTESTED, escape_control, escape_line

COLORS = {"error": "red", "warning": "yellow", "note": "cyan"}
WORDS = {
    **dict.fromkeys(("ok", "pass", "passed", "fetched", "the same bytes", "the cache is whole"), "green"),
    **dict.fromkeys(("warnings", "differs", "open", "unknown", "not begun", "stopped", "waits"), "yellow"),
    **dict.fromkeys((UNTESTED, "not tested"), "yellow"),
    **dict.fromkeys(("refused", "FAIL", "BAD", "failed", "altered", "smoke test failed", "not the same"), "red"),
    **dict.fromkeys(("the smoke test failed", "the image is not what was planned", "NOT the same bytes"), "red"),
}
QUIET = "recipe.quiet"  # in the context of a command: -q was given
PRINTED = "recipe.printed"  # in the object of a context: stdout has output for programs


def uses_color(*, err: bool = True) -> bool:
    """Colour on a terminal only, and never against NO_COLOR (https://no-color.org; --no-color sets it) or TERM=dumb."""
    allowed = os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    return allowed and (sys.stderr if err else sys.stdout).isatty()


def is_quiet() -> bool:
    """Whether -q was given: only errors and results are printed."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


class StyledText(str):
    """Text with our colours; its control characters were made visible before."""


def echo(text: str = "", *, err: bool = False, important: bool = False, hang: int | None = None) -> None:
    """Print any text with its control characters made visible.

    With -q nothing is printed to stderr unless it is `important`. On a terminal long lines are wrapped between words,
    with a hanging indent: of `hang` columns, or below the last column of the line.
    """
    if err and not important and is_quiet():
        return
    text = text if isinstance(text, StyledText) else escape_control(text)
    width = get_screen_width(err=err)
    if width is not None:
        text = "\n".join(part for line in text.split("\n") for part in fit(line, width=width, hang=hang))
    color = None if uses_color(err=err) else False
    click.echo(text, err=err, color=color)


def emit(text: str, *, end: str = "\n") -> None:
    """Print machine output to stdout: paths, JSON, files of a plan, unchanged."""
    context = click.get_current_context(silent=True)
    if context is not None and isinstance(context.obj, dict):
        context.obj[PRINTED] = True
    click.echo(escape_control(text) + end, nl=False)


def color_word(word: str, *, err: bool = False) -> StyledText:
    """Colour a word of a table: good, warning or bad."""
    color, plain = WORDS.get(word.partition(":")[0]), escape_line(word)
    return StyledText(click.style(plain, fg=color) if color and uses_color(err=err) else plain)


def color_verdict(text: str, *, err: bool = False) -> StyledText:
    """Colour the verdict at the start of lines, or after `verdict: `."""
    return StyledText("\n".join(_color_line(line, err=err) for line in escape_control(text).split("\n")))


def _color_line(line: str, *, err: bool) -> str:
    head, colon, rest = line.partition(": ")
    if head == "verdict":
        return f"{head}{colon}{color_word(rest, err=err)}"
    if head not in WORDS:
        head, colon, rest = line.partition(" ")
    return f"{color_word(head, err=err)}{colon}{rest}"


def shorten_image(reference: str, *, room: int) -> str:
    """Shorten the reference of an image to `room` columns: its last part NAME:TAG, or both ends of that."""
    if len(reference) <= room:
        return reference
    last = reference.rpartition("/")[2]
    short = f"…/{last}" if last != reference else reference
    end = max(room // 3, 4)
    return short if len(short) <= room else f"{short[: max(room - end - 1, 4)]}…{short[-end:]}"


def format_finding(finding: Finding, *, codes: bool = False, color: bool = False) -> list[str]:
    """Write the lines of a finding: what, where, fix; with its code where it may be ignored."""
    code = f"[{finding.code}]" if codes else ""
    level = f"{finding.level}{code}:"
    if color:
        level = click.style(level, fg=COLORS[finding.level], bold=True)
    lines = [f"{level} {escape_line(finding.message)}"]
    if finding.at is not None and not _is_said(finding.at, finding.message):
        lines.append(f"  at:  {escape_line(str(finding.at))}")
    if finding.fix:
        lines.append(f"  fix: {escape_line(finding.fix)}")
    return lines


def _is_said(at: Location, message: str) -> bool:
    """Whether a message names its place itself: the file in quotes, the option or variable as a word; no line."""
    if at.line is not None:
        return False
    said = not at.key or re.search(rf"(?<![\w-]){re.escape(at.key)}(?![\w-])", message) is not None
    return said and (not at.file or f"'{at.file}'" in message)


def show_findings(findings: Iterable[Finding]) -> None:
    """Print findings to stderr, errors last, where they stay visible."""
    quiet = is_quiet()
    findings = [finding for finding in findings if finding.level == "error" or not quiet]
    ordered = sorted(findings, key=lambda finding: ("note", "warning", "error").index(finding.level))
    for finding in ordered:
        for line in format_finding(finding, codes=True, color=uses_color()):
            # what a message quotes may look like columns
            echo(StyledText(line), err=True, important=True, hang=len("  fix: ") if line.startswith("  ") else 2)


def format_columns(rows: Sequence[Sequence[str]]) -> StyledText:
    """Write rows as aligned columns; the last one is not padded."""
    rows = [[cell if isinstance(cell, StyledText) else escape_line(cell) for cell in row] for row in rows]
    widths = [max(measure_columns(row[index]) for row in rows) for index in range(len(rows[0]) - 1)]
    return StyledText(
        "\n".join(
            "  ".join(
                [
                    *(cell + " " * (size - measure_columns(cell)) for cell, size in zip(row, widths, strict=False)),
                    row[-1],
                ]
            ).rstrip()
            for row in rows
        )
    )


SCHEMA = 1  # of every document that a command prints

format_option = click.option(
    "--format",
    "shape",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text for people, or JSON (docs/check.md).",
)
# The word of earlier versions.
json_option = click.option("--json", "as_json", is_flag=True, hidden=True)


def has_json_format(command: click.Command) -> bool:
    """Whether a command has --format json; the formats of `lock` are those of other tools."""
    kinds = [param.type for param in command.params if "--format" in param.opts]
    return any(isinstance(kind, click.Choice) and "json" in kind.choices for kind in kinds)


def make_document(content: Mapping[str, Any]) -> dict[str, Any]:
    """Make a document: its schema number first, null for empty text."""
    return {"schema": SCHEMA, **{key: replace_empty(value) for key, value in content.items() if key != "schema"}}


def replace_empty(value: Any) -> Any:
    """Replace every empty text by null; keys and lists stay."""
    if isinstance(value, Mapping):
        return {key: replace_empty(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [replace_empty(item) for item in value]
    return None if isinstance(value, str) and not value else value


def emit_document(content: Mapping[str, Any]) -> None:
    emit(json.dumps(make_document(content), indent=2, ensure_ascii=False, allow_nan=False))
