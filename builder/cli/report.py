"""recipe report: what was measured of an image, here or side by side with others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from builder import __version__
from builder.cli.inputs import plain_verbosity
from builder.cli.json_documents import SCHEMA, emit_document, format_option, json_option
from builder.cli.output import columns, echo, show_findings
from builder.model.finding import BuilderError, ConfigError, Finding, Place
from builder.model.results import Results
from builder.report import tables
from builder.report.collect import read_results
from builder.report.page import report_page, word
from builder.report.tables import compare, comparison, differences
from builder.system.files import write_atomic

RANKS = 16  # rows on the terminal; the page and the JSON have more
MOST = 8  # reports side by side; more are not told apart by their colours


@click.command("report")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write a page (HTML, one file) as well.")
@format_option
@json_option
@plain_verbosity
def command(paths: tuple[Path, ...], output: Path | None, shape: str, as_json: bool) -> None:
    """Show what was measured of an image; of several, side by side with the ratio to the first.

    PATH is a report.json, a plan folder, a results folder, or an image whose plan folder lies beside it.
    """
    reports = _read(paths)
    if output is not None:
        _write(output, report_page(reports, tool=f"recipe {__version__}"))
        echo(f"page: {output}", err=True)
    if as_json or shape == "json":
        emit_document(content(reports))
    else:
        echo("\n\n".join(compared(reports) if len(reports) > 1 else shown(reports[0])))


def content(reports: Sequence[Results]) -> dict[str, Any]:
    """Everything as plain data, for other programs (docs/report.md)."""
    rows = compare(reports) if len(reports) > 1 else ()
    return {
        "schema": SCHEMA,
        "reports": [dataclasses.asdict(results) for results in reports],
        "comparison": [{**dataclasses.asdict(row), "ratios": row.ratios} for row in rows],
        "differences": [dataclasses.asdict(difference) for difference in differences(reports)],
    }


def shown(results: Results) -> list[str]:
    """One report as blocks of text."""
    blocks = [f"{results.name}: {word(results)}"]
    facts = [(f"  {name}", value) for name, value in tables.describe(results).items()]
    if facts:
        blocks[0] += "\n" + columns(facts)
    made = (tables.stages([results]), tables.workloads([results]), tables.ranks([results], most=RANKS))
    blocks += [text(table) for table in made if table.rows]
    bad = tables.checks([results], failed=True)
    total = len(tables.checks([results]).rows)
    if total:
        blocks.append(f"checks: {total - len(bad.rows)} of {total} passed")
    if bad.rows:
        blocks.append(text(bad))
    reasons = [f"{shape.shape}: {shape.verdict}: {shape.reason}" for shape in results.shapes if shape.reason]
    if reasons or results.notes:
        blocks.append("\n".join([*reasons, *results.notes]))
    return blocks


def compared(reports: Sequence[Results]) -> list[str]:
    """Several reports side by side as blocks of text."""
    names = [
        (letter, results.name, word(results), results.source)
        for letter, results in zip(tables.letters(reports), reports, strict=True)
    ]
    blocks = [columns(names), text(comparison(reports))]
    found = differences(reports)
    if found:
        rows = [(difference.name, *difference.values) for difference in found]
        blocks.append("differs\n" + columns([("", *tables.letters(reports)), *rows]))
    bad = tables.checks(reports, failed=True)
    return [*blocks, "checks that failed\n" + text(bad)] if bad.rows else blocks


def text(table: tables.Table) -> str:
    """A table with its figures to the right."""
    rows = [table.head, *table.rows]
    widths = [max(len(row[index]) for row in rows) for index in range(len(table.head))]
    aligned = [
        tuple(cell.rjust(widths[index]) if index in table.right else cell for index, cell in enumerate(row))
        for row in rows
    ]
    return "\n".join([columns(aligned), *filter(None, [table.note])])


def _read(paths: Sequence[Path]) -> list[Results]:
    """Read every path, and say all that is wrong with any of them at once."""
    if len(paths) > MOST:
        fix = f"give {MOST} at most"
        raise ConfigError(Finding(code="usage", message=f"{len(paths)} reports are too many side by side", fix=fix))
    found: list[Results] = []
    faults: list[Finding] = []
    for path in paths:
        try:
            found.append(read_results(path))
        except BuilderError as error:
            faults += error.findings
    if faults:
        raise ConfigError(*faults)
    damaged = [note for results in found for note in results.damaged]
    show_findings(
        [
            Finding(code="report-damaged", message=note, fix="run that workload again", level="warning")
            for note in damaged
        ]
    )
    return found


def _write(output: Path, page: str) -> None:
    if output.is_file() and not _is_page(output):
        message, fix = f"'{output}' is no page of ours", "choose another file with -o, or remove it"
        raise ConfigError(Finding(code="output-exists", message=message, fix=fix, at=Place(file=str(output))))
    try:
        write_atomic(output, page)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"the page '{output}' cannot be written: {reason}"
        fix = "choose another file with -o"
        raise ConfigError(
            Finding(code="output-unwritable", message=message, fix=fix, at=Place(file=str(output)))
        ) from None


def _is_page(output: Path) -> bool:
    with suppress(OSError), output.open("rb") as file:
        return file.read(15) == b"<!DOCTYPE html>"
    return False
