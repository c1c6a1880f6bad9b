"""recipe status: what became of submitted jobs; when all have ended, the verdict."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from builder.cli.build import show_verdict
from builder.cli.inputs import trust_option, verbosity
from builder.cli.several import Shown
from builder.cli.show import columns, echo, emit, show_findings, use_color
from builder.execute.executor import raise_for
from builder.execute.jobs.command import follow_command
from builder.execute.jobs.finish import JobView, check_output, finish, is_over, ledger_of, look_at_jobs, read_plan
from builder.execute.jobs.kits import read_kits
from builder.execute.jobs.refusal import hopeless
from builder.execute.jobs.slurm import Slurm
from builder.execute.jobs.watch import state_of
from builder.execute.names import PLAN_FILE, plan_folder
from builder.execute.progress import choose_progress
from builder.execute.report_file import read_report
from builder.execute.trust import check_folder
from builder.model.finding import ConfigError, Finding, Place, UnfinishedError


@click.command("status")
@click.argument("place", metavar="[FOLDER|IMAGE]", default=".", type=click.Path(path_type=Path))
@click.option("--follow", is_flag=True, help="Follow the jobs to the verdict, as --submit does.")
@click.option("--cancel", is_flag=True, help="Cancel the jobs that have not ended.")
@trust_option
@verbosity
def command(place: Path, follow: bool, cancel: bool, verbose: int, quiet: bool) -> None:
    """Say how the jobs are doing that were submitted from a plan folder, for an image, or from a folder of many kits.

    When all have ended it judges what they left, puts the image into its place, writes report.json and leaves with the
    verdict's exit code, however often it is called. Leaves with 7 while jobs wait or run.
    """
    place = place.absolute()  # `.` has no name that a folder could be beside
    kits = None if (place / PLAN_FILE).is_file() else read_kits(place)
    if kits is not None:
        from builder.cli.status_of_many import status_of_many

        shown = Shown(verbose=bool(verbose), quiet=quiet)
        status_of_many(kits, place=place, follow=follow, cancel=cancel, shown=shown)
        return
    folder = folder_of(place)
    check_folder(folder)
    ledger, plan = ledger_of(folder), read_plan(folder)
    check_output(ledger, plan, folder=folder.resolve())
    slurm = Slurm(os.environ)
    if cancel:
        slurm.cancel([view.job for view in look_at_jobs(ledger, folder=folder, slurm=slurm) if not view.over])
    views = look_at_jobs(ledger, folder=folder, slurm=slurm)
    if not quiet:
        echo(columns(_rows(views)), err=True)
    if not (follow or ledger.finished or is_over(plan, views)):
        raise UnfinishedError(*_open(views, folder=folder))
    if ledger.kind == "run":
        _run_ended(folder)
        return
    report = read_report(folder) if ledger.finished else None
    if report is None:
        color = use_color()
        progress = choose_progress(
            sys.stderr, verbose=bool(verbose), quiet=quiet or not follow, color=color, environment=dict(os.environ)
        )
        report = finish(folder, environment=os.environ, progress=progress)
    show_verdict(quiet=quiet)(report)
    raise_for(report)
    emit(ledger.output)


def _run_ended(folder: Path) -> None:
    """Show what a command said, and leave with its exit code."""
    end = follow_command(folder, environment=os.environ, on_line=emit, note=lambda text: echo(text, err=True))
    if end.finding is not None:
        show_findings([end.finding])
    if end.exit_code:
        raise click.exceptions.Exit(end.exit_code)


def folder_of(place: Path) -> Path:
    """The plan folder that a path means: itself, or the one beside an image."""
    for folder in (place, plan_folder(place)):
        if (folder / PLAN_FILE).is_file():
            return folder
    message = f"'{place}' is neither a plan folder, nor a folder of kits, nor an image with a plan folder beside it"
    fix = "name the folder that ends in .plan, or the image"
    raise ConfigError(Finding(code="no-plan", message=message, at=Place(file=str(place)), fix=fix))


def _rows(views: tuple[JobView, ...]) -> list[list[str]]:
    return [["step", "job", "state", "log"], *([view.step, view.job, state_of(view), view.log] for view in views)]


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
