"""recipe status of a folder of kits: every job in one table, every verdict in another."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from builder.cli.json_documents import emit_document
from builder.cli.output import Styled, columns, echo, use_color
from builder.cli.terminal import Terminal
from builder.execute.report_file import read_report
from builder.model.finding import BuilderError, ConfigError, Finding, UnfinishedError
from builder.model.text import one_line
from builder.pipeline.arrays import Outcomes, follow_arrays, judge
from builder.pipeline.request import Ended, Outcome, failure, outcome_of
from builder.slurm.client import Slurm
from builder.slurm.collect import JobView, is_over
from builder.slurm.state import read_ledger
from builder.slurm.status import NamedKit, Watched, look_at_kits, never_starts, state_of
from builder.system.trust import check_folder


def status_of_many(
    kits: Sequence[NamedKit], *, place: Path, follow: bool, cancel: bool, terminal: Terminal, as_json: bool = False
) -> None:
    """Say how the jobs of all kits are doing, judge those that have ended, and exit with the worst code."""
    slurm = Slurm(os.environ)
    watched, outcomes = _watched(kits, place=place)
    if not watched:
        message = f"nothing was submitted from the kits of '{place}'"
        raise ConfigError(Finding(code="no-jobs", message=message, fix="submit with --submit, or name another folder"))
    views = look_at_kits(watched, slurm=slurm)
    if cancel:
        slurm.cancel([view.job for found in views.values() for view in found if not view.over])
        views = look_at_kits(watched, slurm=slurm)
    if not terminal.quiet and not as_json:
        echo(columns(list(_rows(views))) + "\n", err=True)
    stop = None
    if follow:
        folders = {name: kit.folder for name, kit in watched.items() if not kit.ledger.finished}
        followed = follow_arrays(folders, environment=os.environ, place=place, say=terminal.line)
        outcomes, stop = {**outcomes, **followed.outcomes}, followed.stop
    for name, kit in watched.items():
        if name not in outcomes:
            outcomes[name] = _outcome(name, kit, views[name])
    if as_json:
        emit_document({"folder": str(place), "builds": [_content(outcomes[kit.name], views) for kit in kits]})
    ended = Ended(outcomes={kit.name: outcomes[kit.name] for kit in kits}, stop=stop)
    terminal.conclude(ended, paths=not as_json)


def _content(outcome: Outcome, views: Mapping[str, tuple[JobView, ...]]) -> dict[str, object]:
    jobs = [job_content(view) for view in views.get(outcome.name, ())]
    return {"name": outcome.name, "verdict": outcome.word, "image": outcome.image, "text": outcome.text, "jobs": jobs}


def _watched(kits: Sequence[NamedKit], *, place: Path) -> tuple[dict[str, Watched], Outcomes]:
    """The kits of which something was submitted; an outcome for the others."""
    watched: dict[str, Watched] = {}
    outcomes: Outcomes = {}
    for kit in kits:
        folder = place / kit.folder
        try:
            check_folder(folder)
            ledger = read_ledger(folder)
            if ledger is None:
                outcomes[kit.name] = Outcome(name=kit.name, word="not submitted")
            else:
                watched[kit.name] = Watched.of(ledger, folder)
        except BuilderError as error:
            outcomes[kit.name] = failure(kit.name, error)
    return watched, outcomes


def _outcome(name: str, kit: Watched, views: tuple[JobView, ...]) -> Outcome:
    report = read_report(kit.folder) if kit.ledger.finished else None
    if report is not None:
        return outcome_of(name, report, image=Path(kit.ledger.output))
    if is_over(kit.plan, views) or any(never_starts(view) for view in views):
        return judge(name, kit, environment=os.environ)
    left = next(view for view in views if not view.over)
    return Outcome(
        name=name, word="open", text=f"job {left.job}, {left.step}: {state_of(left)}", code=UnfinishedError.exit_code
    )


def _rows(views: Mapping[str, tuple[JobView, ...]]) -> list[list[str]]:
    rows = [
        [name, view.step, view.job, painted_state(view), view.log] for name, found in views.items() for view in found
    ]
    return [["build", "step", "job", "state", "log"], *rows]


def job_content(view: JobView) -> dict[str, object]:
    """One job as plain data; `over` says that it has ended."""
    code = view.record.exit_code if view.over and view.record else None
    return {
        "step": view.step, "job": view.job, "state": state_of(view), "over": view.over, "exit_code": code,
        "log": view.log,
    }  # fmt: skip


def painted_state(view: JobView) -> Styled:
    """How a job is doing, in the colour of what it means."""
    state = one_line(state_of(view))
    color = "yellow" if not view.over else "red" if view.failed else "green"
    return Styled(click.style(state, fg=color) if use_color() else state)
