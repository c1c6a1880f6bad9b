"""recipe report: what was measured of an image, alone or compared with others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from builder import __version__
from builder.cli.inputs import add_plain_verbosity
from builder.cli.output import SCHEMA, echo, emit_document, format_columns, format_option, json_option, show_findings
from builder.cli.paths import explain_kind, write_line
from builder.model.finding import BuilderError, ConfigError, Finding
from builder.model.results import Results, Stage
from builder.report import tables
from builder.report.comparison import compare_results, find_differences, tabulate_comparison
from builder.report.page import format_status, make_report_page
from builder.report.records import read_results
from builder.system.files import check_reachable
from builder.system.layout import JOBS, PLAN_FILE, REPORT_FILE, RESULTS
from builder.system.trust import read_to_show

RANKS = 16  # rows on the terminal; the page and the JSON have more
MOST = 8  # reports in a comparison: there are no more colours

# Of findings on a path that has no report, or is another kind of file.
CODES = ("report-empty", "report-missing", "report-foreign", "report-damaged")
TAIL = 8  # lines of a log on the terminal


@click.command("report")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write a page (HTML, one file) as well.")
@format_option
@json_option
@add_plain_verbosity
def run_command(paths: tuple[Path, ...], output: Path | None, shape: str, as_json: bool) -> None:
    """Show what was measured of an image, or compare several with the first.

    PATH is a report.json, a plan folder, a results folder, an image with its plan folder next to it, or a folder of
    several plan folders.
    """
    with read_to_show():
        reports = _read(paths)
    if output is not None:
        from builder.cli.paths import OutputFile

        page = make_report_page(reports, tool=f"recipe {__version__}", folder=output.absolute().parent)
        OutputFile(path=output, what="a report page", is_own=_is_page, option="-o").write(page)
        echo(f"page: {output}", err=True)
    if as_json or shape == "json":
        emit_document(make_document(reports))
    else:
        echo("\n\n".join(format_comparison(reports) if len(reports) > 1 else format_report(reports[0])))


def make_document(reports: Sequence[Results]) -> dict[str, Any]:
    """Make the JSON document of the reports (docs/report.md)."""
    rows = compare_results(reports) if len(reports) > 1 else ()
    return {
        "schema": SCHEMA,
        "reports": [dataclasses.asdict(results) for results in reports],
        "comparison": [{**dataclasses.asdict(row), "ratios": row.ratios} for row in rows],
        "differences": [dataclasses.asdict(difference) for difference in find_differences(reports)],
    }


def format_report(results: Results) -> list[str]:
    """Write one report as blocks of text."""
    blocks = [f"{results.name}: {format_status(results)}"]
    facts = [(f"  {name}", value) for name, value in tables.describe_results(results).items()]
    if facts:
        blocks[0] += "\n" + format_columns(facts)
    found = (
        tables.tabulate_stages([results]),
        tables.tabulate_workloads([results]),
        tables.tabulate_ranks([results], most=RANKS),
    )
    blocks += [format_table(table) for table in found if table.rows]
    blocks += [format_failure(stage) for stage in results.stages if stage.fix or stage.tail]
    bad = tables.tabulate_checks([results], failed=True)
    total = len(tables.tabulate_checks([results]).rows)
    if total:
        blocks.append(f"checks: {total - len(bad.rows)} of {total} passed")
    if bad.rows:
        blocks.append(format_table(bad))
    reasons = [f"{shape.shape}: {shape.verdict}: {shape.reason}" for shape in results.shapes if shape.reason]
    if reasons or results.notes:
        blocks.append("\n".join([*reasons, *results.notes]))
    return blocks


def format_comparison(reports: Sequence[Results]) -> list[str]:
    """Write the comparison of several reports as blocks of text."""
    names = [
        (letter, results.name, format_status(results), results.source)
        for letter, results in zip(tables.assign_letters(reports), reports, strict=True)
    ]
    blocks = [format_columns(names), format_table(tabulate_comparison(reports))]
    found = find_differences(reports)
    if found:
        rows = [(difference.name, *difference.values) for difference in found]
        blocks.append("differs\n" + format_columns([("", *tables.assign_letters(reports)), *rows]))
    bad = tables.tabulate_checks(reports, failed=True)
    return [*blocks, "failed checks\n" + format_table(bad)] if bad.rows else blocks


def format_failure(stage: Stage) -> str:
    """Write the fix of a failed step and the end of its log."""
    lines = [f"fix: {stage.fix}"] if stage.fix else []
    if stage.tail:
        lines += [f"end of {stage.log}:", *(f"  {line}" for line in stage.tail[-TAIL:])]
    return "\n".join(lines)


def format_table(table: tables.ResultTable) -> str:
    """Write a table with its numbers aligned to the right."""
    rows = [table.head, *table.rows]
    widths = [max(len(row[index]) for row in rows) for index in range(len(table.head))]
    aligned = [
        tuple(cell.rjust(widths[index]) if index in table.right else cell for index, cell in enumerate(row))
        for row in rows
    ]
    return "\n".join([format_columns(aligned), *filter(None, [table.note])])


def _read(paths: Sequence[Path]) -> list[Results]:
    """Read every path; raises ConfigError with the faults of all of them."""
    paths = [one for path in paths for one in _list_measured_plans(path) or [path]]
    if len(paths) > MOST:
        fix = f"give at most {MOST}"
        raise ConfigError(Finding(code="usage", message=f"{len(paths)} reports are too many to compare", fix=fix))
    found: list[Results] = []
    faults: list[Finding] = []
    for path in paths:
        try:
            check_reachable(path)
            found.append(read_results(path))
        except BuilderError as error:
            faults += [_explained(finding, path) for finding in error.findings]
    if faults:
        raise ConfigError(*dict.fromkeys(faults))
    damaged = [note for results in found for note in results.damaged]
    findings = [
        Finding(code="report-damaged", message=note, fix="run that workload again", level="warning") for note in damaged
    ]
    show_findings([*findings, *(_make_image_finding(results) for results in found if results.image_now)])
    return found


def _list_measured_plans(path: Path) -> list[Path]:
    """The plan folders in a folder of several that were measured: each has a report of its own; [] for another path."""
    try:
        if (path / PLAN_FILE).is_file() or (path / REPORT_FILE).is_file() or (path / RESULTS).is_dir():
            return []
        plans = sorted(one.parent for one in path.glob(f"*/{PLAN_FILE}"))
    except (OSError, ValueError):  # said where it is read
        return []
    measured = [plan for plan in plans if any((plan / name).exists() for name in (REPORT_FILE, RESULTS, JOBS))]
    if len(plans) > len(measured) > 0:
        echo(f"without a report: {', '.join(plan.name for plan in plans if plan not in measured)}", err=True)
    return measured


def _make_image_finding(results: Results) -> Finding:
    """The finding on an image that is not there any more, or is another than the one that was measured."""
    message = f"the image '{results.image_path or results.image}' {results.image_now}"
    fix = "build it again, or put the image back that was measured"
    return Finding(code="report-image", message=message, fix=fix, level="warning")


def _explained(finding: Finding, path: Path) -> Finding:
    """A finding on a path that has no report, with the line for one that has, or that makes one."""
    from builder.cli.file_kinds import find_kind, list_measured
    from builder.cli.targets import choose_site, name_environment
    from builder.cli.typed import quote, write_path
    from builder.parse.yaml import find_near_path

    here, kind = list_measured(), find_kind(path)
    folders = ("a plan folder", "a folder")
    if finding.code not in CODES or path.suffix == ".json" or (finding.code == "report-damaged" and kind in folders):
        return finding
    line = write_line("report", here[:1], others=here)
    if kind == "an image" and not line:
        folder = quote(f"{path.stem}.smoke")
        test = f"`recipe smoke {choose_site()} {quote(write_path(path))} -o {folder}`"
        line = f"measure it with {test}, then type `recipe report {folder}`"
    if kind is None and finding.fix.startswith("did you mean"):
        near = Path(find_near_path(path))
        if find_kind(near) in ("a plan folder", "an image") or near.suffix == ".json" or str(near) in here:
            return finding
    make = f"build an image first: `recipe build {choose_site()} {quote(name_environment())}`"
    changed = dataclasses.replace(finding, fix=line or make)
    if kind in (None, "an image", *folders):
        return changed
    takes = "an image that was built here or a plan folder"
    return explain_kind(changed, path, command="report", takes=takes, here=here)


def _is_page(head: bytes) -> bool:
    return head.startswith(b"<!DOCTYPE html>")
