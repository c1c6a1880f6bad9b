"""The page: one HTML file without scripts; it loads nothing, and its links are relative to its folder."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from builder.compile.render import read_template, render_page
from builder.model.plan import choose_program
from builder.model.results import Results, Stage
from builder.model.text import UNTESTED, format_bytes, format_duration, format_number
from builder.report import tables
from builder.report.comparison import find_differences, tabulate_comparison
from builder.report.plots import explain_missing, make_plots
from builder.report.tables import choose_key_transfer, find_import_seconds
from builder.smoke.options import format_size

STATUS_TITLES = {
    "passed": "passed",
    "smoke-failed": "smoke test failed",
    "failed": "build failed",
    "interrupted": "interrupted",
    "built": UNTESTED,
}
GOOD, SKIPPED = ("pass", "ok", "finished", "exit status 0"), "skipped"


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One of the numbers at the top of the page."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Link:
    """A file that exists, by a path relative to the page."""

    title: str
    href: str


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A step that failed, with the link to its log where there is one."""

    stage: Stage
    log: str


@dataclass(frozen=True, kw_only=True)
class Part:
    """What the page shows of one report: its letter among several, its status, links, commands and failures."""

    letter: str
    results: Results
    status: str
    started: str
    links: tuple[Link, ...]
    commands: tuple[str, ...]
    failures: tuple[Failure, ...]
    notes: tuple[str, ...]


def make_report_page(reports: Sequence[Results], *, tool: str, folder: Path | None = None) -> str:
    """Make the page of one report, or of several side by side; `folder` is where it is written, None for no links."""
    style = read_template("report.css")
    many = len(reports) > 1
    letters = tables.assign_letters(reports)
    return render_page(
        "report.html.j2",
        title=" and ".join(results.name for results in reports[:3]) if many else reports[0].name,
        style=style,
        digest=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii"),
        tool=tool,
        many=many,
        parts=[make_part(one, letter=letter, folder=folder) for letter, one in zip(letters, reports, strict=True)],
        tiles=() if many else make_tiles(reports[0]),
        comparison=tabulate_comparison(reports, detail=False) if many else None,
        comparison_detail=tabulate_comparison(reports, detail=True) if many else None,
        differences=find_differences(reports) if many else (),
        failed=tables.tabulate_checks(reports, failed=True),
        figures=make_plots(reports),
        missing=explain_missing(reports),
        tables=[tables.tabulate_workloads(reports), tables.tabulate_stages(reports), tables.tabulate_ranks(reports)],
        checks=tables.tabulate_checks(reports),
        facts=tables.tabulate_facts(reports),
        packages=tables.tabulate_packages(reports),
        installed=None if many else tables.tabulate_installed(reports[0].installed),
        kinds={**dict.fromkeys(GOOD, "good"), SKIPPED: "quiet"},
    )


def format_status(results: Results) -> str:
    """The status of a report for a reader: of the last build, and of the image where an earlier one made it."""
    status = STATUS_TITLES.get(results.status, results.status)
    if results.image_now:
        return f"{status}; the image {results.image_now}"
    if not results.earlier_image:
        return status
    step = next((stage.name for stage in results.stages if stage.status not in ("ok", "skipped")), "")
    at = f" at {step}" if step else ""
    ended = "was interrupted" if results.status == "interrupted" else "failed"
    return f"the last build {ended}{at}; the image is from the build of {tables.format_time(results.earlier_image)}"


def make_part(results: Results, *, letter: str, folder: Path | None) -> Part:
    """Collect what the page shows of one report besides its tables."""
    links = [Link(title=one.title, href=make_link(one.path, folder=folder)) for one in results.artifacts if folder]
    logs = {link.title: link.href for link in links}
    failed = [stage for stage in results.stages if stage.status not in ("ok", "skipped") and stage.kind == "step"]
    failures = tuple(Failure(stage=stage, log=logs.get(f"log of {stage.name}", "")) for stage in failed)
    known = {stage.note for stage in failed}
    return Part(
        letter=letter,
        results=results,
        status=format_status(results),
        started=tables.format_time(results.facts.get("started", "")),
        links=tuple(links),
        commands=make_run_commands(results, folder=folder),
        failures=failures,
        notes=tuple(note for note in results.notes if note not in known),
    )


def make_run_commands(results: Results, *, folder: Path | None) -> tuple[str, ...]:
    """Write the commands that run a program in an image that passed, from the folder of the page."""
    site = results.facts.get("site", "")
    if folder is None or not results.image_path or results.image_now or results.status not in ("passed", "built"):
        return ()
    image = Path(results.image_path)
    program = choose_program(torch="torch" in results.facts)
    commands = [f"recipe run {shlex.quote(site)} {_quote(image, folder=folder)} -- {program}"] if site else []
    script = image.with_name(f"{image.name.removesuffix('.sif')}.plan") / "run" / "one.sh"
    if script.is_file():
        commands.append(f"bash {_quote(script, folder=folder)} {program}")
    return tuple(commands)


def make_link(path: str | Path, *, folder: Path | None) -> str:
    """Write a path as a link relative to a folder; a name with a colon is no scheme."""
    return quote(os.fsencode(os.path.relpath(path, folder)), safe="/")


def _quote(path: Path, *, folder: Path) -> str:
    """A path relative to the folder as a word of a shell, never an option."""
    relative = os.path.relpath(path, folder)
    return shlex.quote(f"./{relative}" if relative.startswith("-") else relative)


def make_tiles(results: Results) -> tuple[Tile, ...]:
    """Choose the numbers of one report for the top of the page."""
    found = []
    checks = [check for workload in results.workloads for check in workload.checks]
    if checks:
        good = sum(check.ok for check in checks)
        found.append(Tile(name="checks passed", value=f"{good} of {len(checks)}"))
    best = [one for one in results.workloads if one.training.accuracy is not None]
    if best:
        least = min(best, key=lambda one: one.training.accuracy or 0.0)
        found.append(Tile(name="accuracy", value=format_number(least.training.accuracy), note=least.title))
    seconds = find_import_seconds(results)
    if seconds is not None:
        found.append(Tile(name="import torch", value=format_duration(seconds)))
    for one in results.workloads[::-1]:
        transfer = choose_key_transfer(one)
        if transfer is not None:
            value, note = f"{format_number(transfer.busbw)} GB/s", f"{one.title}, {format_size(transfer.size)}"
            found.append(Tile(name="bus bandwidth", value=value, note=note))
            break
    if results.image_bytes is not None:
        found.append(Tile(name="image", value=format_bytes(results.image_bytes)))
    if results.build_seconds is not None:
        name = "build" if results.is_built else "until it stopped"
        found.append(Tile(name=name, value=format_duration(results.build_seconds)))
    return tuple(found)
