"""recipe status: what became of submitted jobs; when all have ended, the verdict."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from builder.cli.inputs import trust_option, verbosity
from builder.cli.json_documents import emit_document, format_option
from builder.cli.output import columns, echo, emit, show_findings, use_color
from builder.cli.status_of_many import job_content, painted_state, status_of_many
from builder.cli.terminal import Terminal
from builder.execute.executor import raise_for
from builder.execute.progress import choose_progress
from builder.execute.report_file import read_report
from builder.model.finding import ConfigError, Finding, Place, UnfinishedError
from builder.model.report import Report
from builder.slurm.client import Slurm, hopeless
from builder.slurm.collect import JobView, check_output, finish, is_over, ledger_of, look_at_jobs, read_plan
from builder.slurm.status import follow_command, read_kits
from builder.system.layout import PLAN_FILE, plan_folder
from builder.system.trust import check_folder


@click.command("status")
@click.argument("place", metavar="[FOLDER|IMAGE]", default=".", type=click.Path(path_type=Path))
@click.option("--follow", is_flag=True, help="Follow the jobs to the verdict, as --submit does.")
@click.option("--cancel", is_flag=True, help="Cancel the jobs that have not ended.")
@format_option
@trust_option
@verbosity
def command(place: Path, follow: bool, cancel: bool, shape: str, verbose: int, quiet: bool) -> None:
    """Show the jobs that were submitted from a plan folder, for an image, or from a folder of several plan folders.

    When all have ended it judges what they left, puts the image into its place, writes report.json and exits with the
    verdict's exit code, however often it is called. Exits with 7 while jobs wait or run.
    """
    place = place.absolute()  # `.` has no name that a folder could be beside
    kits = None if (place / PLAN_FILE).is_file() else read_kits(place)
    if kits is not None:
        terminal = Terminal(single=False, verbose=bool(verbose), quiet=quiet)
        status_of_many(kits, place=place, follow=follow, cancel=cancel, terminal=terminal, as_json=shape == "json")
        return
    folder = folder_of(place)
    check_folder(folder)
    ledger, plan = ledger_of(folder), read_plan(folder)
    check_output(ledger, plan, folder=folder.resolve())
    slurm = Slurm(os.environ)
    if cancel:
        slurm.cancel([view.job for view in look_at_jobs(ledger, folder=folder, slurm=slurm) if not view.over])
    views = look_at_jobs(ledger, folder=folder, slurm=slurm)
    if not quiet and shape == "text":
        echo(columns(_rows(views)), err=True)
    if not (follow or ledger.finished or is_over(plan, views)):
        if shape == "json":
            emit_document(content(folder, kind=ledger.kind, views=views))
        raise UnfinishedError(*_open(views, folder=folder))
    if ledger.kind == "run":
        if shape == "json":
            emit_document(content(folder, kind=ledger.kind, views=views))
        _run_ended(folder, shown=shape == "text")
        return
    report = read_report(folder) if ledger.finished else None
    if report is None:
        color = use_color()
        progress = choose_progress(
            sys.stderr, verbose=bool(verbose), quiet=quiet or not follow, color=color, environment=dict(os.environ)
        )
        report = finish(folder, environment=os.environ, progress=progress)
    if shape == "json":
        emit_document(content(folder, kind=ledger.kind, views=views, report=report))
    Terminal(quiet=quiet).report("", report)
    raise_for(report)
    if shape == "text":
        emit(ledger.output)


def content(folder: Path, *, kind: str, views: tuple[JobView, ...], report: Report | None = None) -> dict[str, object]:
    """What is known of the jobs of a plan folder, as plain data; no verdict while jobs wait or run."""
    return {
        "folder": str(folder),
        "kind": kind,
        "verdict": report.status if report else None,
        "image": report.image if report else None,
        "jobs": [job_content(view) for view in views],
    }


def _run_ended(folder: Path, *, shown: bool) -> None:
    """Show what a command printed, and exit with its exit code."""
    on_line = emit if shown else lambda _: None
    end = follow_command(folder, environment=os.environ, on_line=on_line, note=lambda text: echo(text, err=True))
    if end.finding is not None:
        show_findings([end.finding])
    if end.exit_code:
        raise click.exceptions.Exit(end.exit_code)


def folder_of(place: Path) -> Path:
    """The plan folder that a path means: itself, or the one beside an image."""
    for folder in (place, plan_folder(place)):
        if (folder / PLAN_FILE).is_file():
            return folder
    message = f"'{place}' is neither a plan folder, nor a folder of several, nor an image with a plan folder beside it"
    fix = "name the folder that ends in .plan, or the image"
    raise ConfigError(Finding(code="no-plan", message=message, at=Place(file=str(place)), fix=fix))


def _rows(views: tuple[JobView, ...]) -> list[list[str]]:
    return [["step", "job", "state", "log"], *([view.step, view.job, painted_state(view), view.log] for view in views)]


def _open(views: tuple[JobView, ...], *, folder: Path) -> list[Finding]:
    left = [view for view in views if not view.over]
    never = [
        finding
        for view in left
        if view.state is not None and view.state.stage == "waiting"
        if (finding := hopeless(view.state.reason, step=view.step, job=view.job)) is not None
    ]
    if never:
        return never
    named = ("job " if len(left) == 1 else "jobs ") + ", ".join(view.job for view in left)
    fix = f"ask again later, or `recipe status --follow {folder}`; --cancel ends them"
    return [Finding(code="jobs-open", message=f"{named} not at the end yet", fix=fix, level="note")]
