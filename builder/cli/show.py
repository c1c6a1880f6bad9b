"""Findings and tables on the terminal; machine output goes to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

import click

from builder.model.finding import Finding
from builder.model.safe import one_line, visible

COLORS = {"error": "red", "warning": "yellow", "note": "cyan"}


def use_color(*, wanted: bool = True) -> bool:
    """Colour on a terminal only, and never against NO_COLOR (https://no-color.org)."""
    return wanted and not os.environ.get("NO_COLOR") and sys.stderr.isatty()


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text that may hold anything, what a terminal would obey made visible; all commands print by this."""
    click.echo(visible(text), err=err, nl=nl)


def finding_lines(finding: Finding, *, codes: bool = False) -> list[str]:
    """The three lines of a finding: what, where, what to do; with its code where one may be ignored by it."""
    code = f"[{finding.code}]" if codes else ""
    lines = [f"{finding.level}{code}: {one_line(finding.message)}"]
    if finding.at is not None and str(finding.at):
        lines.append(f"  at:  {one_line(str(finding.at))}")
    if finding.fix:
        lines.append(f"  fix: {one_line(finding.fix)}")
    return lines


def show_findings(findings: Iterable[Finding], *, color: bool = True, codes: bool = False) -> None:
    """Print findings to stderr, errors last so that they stay in sight."""
    ordered = sorted(findings, key=lambda finding: ("note", "warning", "error").index(finding.level))
    styled = use_color(wanted=color)
    for finding in ordered:
        head, *rest = finding_lines(finding, codes=codes)
        if styled:
            level, _, text = head.partition(":")
            head = click.style(f"{level}:", fg=COLORS[level], bold=True) + text
        click.echo("\n".join([head, *rest]), err=True)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned columns; the last one is as long as it is."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    )
