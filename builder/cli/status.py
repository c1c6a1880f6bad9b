"""recipe status: how submitted jobs are doing, of one plan folder or of several; when all have ended, the result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from builder.cli.inputs import add_trust_option, add_verbosity, find_sites_folder
from builder.cli.output import (
    StyledText,
    echo,
    emit,
    emit_document,
    format_columns,
    format_option,
    show_findings,
    uses_color,
)
from builder.cli.paths import write_line
from builder.cli.targets import choose_site, name_environment
from builder.cli.terminal import Terminal
from builder.cli.typed import quote
from builder.execute.report_file import read_report
from builder.model.finding import BuilderError, ConfigError, Finding, Location, UnfinishedError
from builder.model.report import Report
from builder.model.text import escape_line, sanitize
from builder.parse.site import load_site
from builder.parse.yaml import find_near_path
from builder.pipeline.batch import follow
from builder.pipeline.request import Outcome, Outcomes, make_failure, make_outcome
from builder.slurm.client import Slurm
from builder.slurm.ledger import read_ledger
from builder.slurm.status import (
    SubmittedPlan,
    describe_state,
    find_endless_wait,
    follow_command,
    look_at_jobs,
    read_plan_list,
)
from builder.slurm.submitted_jobs import JobView
from builder.system.files import check_reachable
from builder.system.layout import JOBS, PLAN_FILE, REPORT_FILE, SUBMITTED_FILE, plan_folder
from builder.system.trust import check_folder

MOST = 8  # names in a message
Views = Mapping[str, tuple[JobView, ...]]


@click.command("status")
@click.argument("place", metavar="[FOLDER|IMAGE]", default=".", type=click.Path(path_type=Path))
@click.option("--follow", "follows", is_flag=True, help="Follow the jobs to the verdict, as --submit does.")
@click.option("--cancel", is_flag=True, help="Cancel the jobs that have not ended.")
@format_option
@add_trust_option
@add_verbosity
def run_command(place: Path, follows: bool, cancel: bool, shape: str, verbose: int, quiet: bool) -> None:
    """Show the jobs that were submitted from a plan folder, for an image, or from a folder of several plan folders.

    When all have ended it judges what they left, puts the image into its place, writes report.json and exits with the
    verdict's exit code, however often it is called. Exits with 7 while jobs wait or run.
    """
    check_reachable(place)
    # `.` and `..` have no name that a plan folder could be derived from.
    found = find_plans(place.resolve() if place.name in ("", "..") else place.absolute(), typed=place)
    slurm, as_json = Slurm(os.environ), shape == "json"
    views = look_at_jobs(found.plans, slurm=slurm)
    if cancel:
        slurm.cancel([view.job for one in views.values() for view in one if not view.over])
        views = look_at_jobs(found.plans, slurm=slurm)
    if not quiet and not as_json:
        echo(format_columns(_make_rows(views, single=found.single)) + ("" if found.single else "\n"), err=True)
    command_folder = found.command_folder
    if command_folder is not None and (follows or found.is_over(views)):
        _report_command_end(found, views, folder=command_folder, as_json=as_json)
        return
    terminal = Terminal(single=found.single, verbose=bool(verbose), quiet=quiet)
    ended = _find_outcomes(found, views, follows=follows, terminal=terminal)
    if as_json:
        emit_document(_make_status_document(found, views, ended.outcomes))
    terminal.conclude(ended, paths=not as_json)


@dataclass(frozen=True, kw_only=True)
class SubmittedPlans:
    """Plan folders from which jobs were submitted, by name; `outcomes` of those from which none were."""

    place: Path
    names: tuple[str, ...]
    single: bool
    plans: Mapping[str, SubmittedPlan]
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)

    @property
    def command_folder(self) -> Path | None:
        """The folder of a command of the user's (`recipe run`), None of a build."""
        return next((one.folder for one in self.plans.values() if one.ledger.kind == "run"), None)

    def is_over(self, views: Views) -> bool:
        """Whether nothing more will come of any of them."""
        return all(one.is_over(views[name]) for name, one in self.plans.items())


def find_plans(place: Path, *, typed: Path) -> SubmittedPlans:
    """Find what was submitted; raises ConfigError, with the path as it was `typed`."""
    listed = None if (place / PLAN_FILE).is_file() else read_plan_list(place)
    if listed is None:
        folder = find_plan_folder(place, typed=typed)
        check_folder(folder)
        return SubmittedPlans(place=folder, names=("",), single=True, plans={"": SubmittedPlan.read(folder)})
    plans: dict[str, SubmittedPlan] = {}
    outcomes: dict[str, Outcome] = {}
    for item in listed:
        folder = place / item.folder
        try:
            check_folder(folder)
            if read_ledger(folder) is None:
                outcomes[item.name] = Outcome(name=item.name, word="not submitted")
            else:
                plans[item.name] = SubmittedPlan.read(folder)
        except BuilderError as error:
            outcomes[item.name] = make_failure(item.name, error)
    if not plans:
        message = f"nothing was submitted from the plan folders in '{place}'"
        raise ConfigError(Finding(code="no-jobs", message=message, fix="submit with --submit, or name another folder"))
    names = tuple(item.name for item in listed)
    return SubmittedPlans(place=place, names=names, single=False, plans=plans, outcomes=outcomes)


def find_plan_folder(place: Path, *, typed: Path) -> Path:
    """The plan folder that a path means: itself, or the one next to an image."""
    for folder in (place, *([plan_folder(place)] if place.name else [])):  # the root has no folder next to it
        if (folder / PLAN_FILE).is_file():
            return folder
    plans = sorted(path.parent for path in place.glob(f"*/{PLAN_FILE}")) if place.is_dir() else []
    submitted = [folder for folder in plans if (folder / JOBS / SUBMITTED_FILE).exists()]
    if plans:
        which = submitted or plans
        jobs_of = "jobs were submitted from" if submitted else "nothing was submitted from"
        message = f"{jobs_of} the plan folders in '{sanitize(str(typed), limit=400)}': {_list_names(which)}"
        near = quote(str(typed / which[0].name))
        fix = f"run `recipe status {near}`" if submitted else _explain_no_jobs()
        if not submitted and (which[0] / REPORT_FILE).is_file():
            fix = f"`recipe report {near}` shows what was built"
        raise ConfigError(
            Finding(code="no-plan" if submitted else "no-jobs", message=message, at=Location(file=str(typed)), fix=fix)
        )
    from builder.cli.file_kinds import find_kind, list_submitted

    shown, jobs = sanitize(str(typed), limit=400), list_submitted(typed if place.is_dir() else Path())
    kind = find_kind(place)
    message = f"'{shown}' does not exist"
    if kind is not None:
        lacks = "has no plan folder next to it" if kind == "an image" else "neither an image nor a plan folder"
        message = f"'{shown}' is {kind}, and {lacks}"
    if place.is_dir():
        message = f"'{shown}' is neither a plan folder, nor a folder of several, "
        message += "nor an image with a plan folder next to it"
    near = find_near_path(typed) if kind is None else ""
    if near and {near, str(plan_folder(Path(near)))} & set(list_submitted(Path(near).parent)):
        fix = f"did you mean `recipe status {quote(near)}`?"
    else:
        fix = write_line("status", jobs[:1], others=jobs) or _explain_no_jobs()
    raise ConfigError(Finding(code="no-plan", message=message, at=Location(file=str(typed)), fix=fix))


def _explain_no_jobs() -> str:
    """What helps where no jobs were submitted: a line only where this machine's site has jobs."""
    fix = "no jobs were submitted in this folder: name the image or the plan folder that was built with --submit"
    site = choose_site()
    if load_site(site, folder=find_sites_folder()).scheduler.kind == "none":
        return fix
    return f"{fix}; `recipe build {site} {quote(name_environment())} --submit` submits jobs"


def _list_names(plans: Sequence[Path]) -> str:
    more = f" and {len(plans) - MOST} more" if len(plans) > MOST else ""
    return ", ".join(path.name for path in plans[:MOST]) + more


def _find_outcomes(found: SubmittedPlans, views: Views, *, follows: bool, terminal: Terminal) -> Outcomes:
    """The outcome of each: judged where its jobs have ended, or with `follows` when they do."""
    outcomes = dict(found.outcomes)
    judged = {}
    for name, one in found.plans.items():
        report = read_report(one.folder) if one.ledger.finished else None
        if report is not None:
            terminal.report(name, report)
            outcomes[name] = make_outcome(name, report, image=Path(one.ledger.output))
        elif follows or one.is_over(views[name]):
            judged[name] = one.folder
        else:
            outcomes[name] = _make_open_outcome(name, views[name], found=found)
    quiet = Terminal(single=found.single, quiet=True)
    display = (terminal if follows else quiet).choose_display(list(judged))
    with display.show():
        ended = follow(judged, environment=os.environ, place=found.place, ui=terminal, display=display)
    outcomes |= ended.outcomes
    return Outcomes(outcomes={name: outcomes[name] for name in found.names}, stop=ended.stop)


def _make_open_outcome(name: str, views: tuple[JobView, ...], *, found: SubmittedPlans) -> Outcome:
    left = [view for view in views if not view.over]
    never = [finding for view in left if (finding := find_endless_wait(view)) is not None]
    if found.single:
        if never:
            return make_failure(name, UnfinishedError(*never))
        named = ("job " if len(left) == 1 else "jobs ") + ", ".join(view.job for view in left)
        fix = f"ask again later, or `recipe status --follow {found.place}`; --cancel ends them"
        message = f"{named} still in the queue or running"
        return make_failure(name, UnfinishedError(Finding(code="jobs-open", message=message, fix=fix, level="note")))
    text = never[0].message if never else f"job {left[0].job}, {left[0].step}: {describe_state(left[0])}"
    return Outcome(name=name, word="open", text=text, code=UnfinishedError.exit_code)


def _report_command_end(found: SubmittedPlans, views: Views, *, folder: Path, as_json: bool) -> None:
    """Print what a command printed, and exit with its exit code."""
    if as_json:
        emit_document(_make_status_document(found, views, {}))
    on_line = (lambda _: None) if as_json else emit
    code, fault = follow_command(
        folder, environment=os.environ, on_line=on_line, note=lambda text: echo(text, err=True)
    )
    show_findings([fault] if fault else [])
    if code:
        raise click.exceptions.Exit(code)


def _make_status_document(found: SubmittedPlans, views: Views, outcomes: Mapping[str, Outcome]) -> dict[str, object]:
    """What is known, as plain data; of a single plan folder no verdict while jobs wait or run."""
    if found.single:
        (plan,) = found.plans.values()
        judged = "" in outcomes and outcomes[""].code != UnfinishedError.exit_code
        report = read_report(plan.folder) if judged else None
        return describe_jobs(plan.folder, kind=plan.ledger.kind, views=views[""], report=report)
    builds = []
    for name in found.names:
        one, jobs = outcomes[name], [_describe_job(view) for view in views.get(name, ())]
        builds.append({"name": name, "verdict": one.word, "image": one.image, "text": one.text, "jobs": jobs})
    return {"folder": str(found.place), "builds": builds}


def describe_jobs(
    folder: Path, *, kind: str, views: tuple[JobView, ...], report: Report | None = None
) -> dict[str, object]:
    """What is known of the jobs of a plan folder, as plain data; no verdict while jobs wait or run."""
    return {
        "folder": str(folder),
        "kind": kind,
        "verdict": report.verdict if report else None,
        "image": report.image if report else None,
        "jobs": [_describe_job(view) for view in views],
    }


def _describe_job(view: JobView) -> dict[str, object]:
    """One job as plain data; `over` says that it has ended."""
    code = view.record.exit_code if view.over and view.record else None
    return {
        "step": view.step, "job": view.job, "state": describe_state(view), "over": view.over, "exit_code": code,
        "log": view.log,
    }  # fmt: skip


def _make_rows(views: Views, *, single: bool) -> list[list[str]]:
    head = ["step", "job", "state", "log"]
    rows = [(name, [view.step, view.job, color_state(view), view.log]) for name, one in views.items() for view in one]
    return [head, *(row for _, row in rows)] if single else [["build", *head], *([name, *row] for name, row in rows)]


def color_state(view: JobView) -> StyledText:
    """How a job is doing, in the colour of what it means."""
    state = escape_line(describe_state(view))
    color = "yellow" if not view.over else "red" if view.failed else "green"
    return StyledText(click.style(state, fg=color) if uses_color() else state)
