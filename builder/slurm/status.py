"""The state of submitted jobs, of one plan folder or of several: kits.json names those that were written together.

A user's command as a job: its output as it comes, its exit code in the end.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from builder.execute.build_options import SignalInterrupt, Signals
from builder.execute.folder_lock import lock_folder
from builder.model.finding import ConfigError, Finding, Location
from builder.model.plan import Plan
from builder.model.secrets import Mask
from builder.model.text import format_clock, is_plain_path, sanitize, to_dataclass
from builder.sif.bounded import parse_json
from builder.slurm.client import NODE_LOST, Slurm, explain_endless_wait
from builder.slurm.ledger import Ledger, forget_command, note_finished
from builder.slurm.monitor import Follower, LogTail, Monitor, find_job_fault
from builder.slurm.submitted_jobs import (
    JobView,
    check_output,
    is_over,
    make_job_views,
    read_plan,
    require_ledger,
    stop_following,
)
from builder.system.files import write_atomic
from builder.system.layout import KITS_FILE, PLAN_FILE
from builder.system.trust import read_below


@dataclass(frozen=True, kw_only=True)
class SubmittedPlan:
    """A plan folder from which jobs were submitted."""

    ledger: Ledger
    plan: Plan
    folder: Path

    @classmethod
    def read(cls, folder: Path) -> SubmittedPlan:
        """Read a folder that has a ledger; raises ConfigError."""
        ledger, plan = require_ledger(folder), read_plan(folder)
        check_output(ledger, plan, folder=folder.resolve())
        return cls(ledger=ledger, plan=plan, folder=folder)

    def is_over(self, views: tuple[JobView, ...]) -> bool:
        """Whether nothing more will come of its jobs."""
        return bool(self.ledger.finished) or is_over(self.plan, views)


def look_at_jobs(plans: Mapping[str, SubmittedPlan], *, slurm: Slurm) -> dict[str, tuple[JobView, ...]]:
    """How the jobs of each are doing: one question to Slurm for all of them, since its controllers are shared."""
    jobs = [job.job for plan in plans.values() for job in plan.ledger.jobs]
    states = slurm.query_states(jobs) if jobs else {}
    waiting = [job for job, state in (states or {}).items() if state.stage == "waiting"]
    if states and waiting:
        expected = slurm.query_expected_starts(waiting)
        states = {job: replace(state, expected=expected.get(job, "")) for job, state in states.items()}
    return {name: make_job_views(plan.ledger, folder=plan.folder, states=states) for name, plan in plans.items()}


def find_endless_wait(view: JobView) -> Finding | None:
    """Why a job waits for what will never be, None where it may start."""
    if view.state is None or view.state.stage != "waiting":
        return None
    return explain_endless_wait(view.state.reason, step=view.step, job=view.job)


def describe_state(view: JobView) -> str:
    """How a job is doing, in words."""
    if view.over and view.record is not None:
        lost = "lost its node" if view.state is not None and view.state.word in NODE_LOST else ""
        how = "ended" if view.record.exit_code == 0 else f"exit code {view.record.exit_code}"
        how = view.record.reason or lost or how
        return f"{how} after {format_clock(view.record.seconds)}"
    if view.state is None:
        return "Slurm does not answer"
    if view.state.stage == "waiting":
        reason = view.state.reason.strip("()")
        why = f" ({reason})" if reason not in ("", "None") else ""
        start = view.state.expected.replace("T", " ")
        return f"waits{why}" + (f", expected to start at {start}" if start else "")
    if view.state.stage == "running":
        return f"runs on {view.state.nodes}"
    if view.state.stage == "lost":
        return "unknown to Slurm, no record"
    return view.state.word.lower().replace("_", " ") + (", no record" if view.state.nodes else "")


SCHEMA = 1

LIMIT = 16 * 1024 * 1024  # bytes


@dataclass(frozen=True, kw_only=True)
class ListedPlan:
    """One plan: the name it is shown by, its site, and its plan folder next to kits.json."""

    name: str
    site: str
    folder: str


@dataclass(frozen=True, kw_only=True)
class _Index:
    kits: tuple[ListedPlan, ...]  # the name in the file


def write_plan_list(folder: Path, *, plans: Sequence[ListedPlan], arrays: Sequence[Plan]) -> None:
    """Write the index and the arrays' scripts; other plans stay listed.

    Arrays of an earlier call for the same sites are removed. Raises ConfigError when the folder cannot be written.
    """
    names = {plan.name for plan in plans}
    others = [
        plan
        for plan in read_plan_list(folder) or ()
        if plan.name not in names and (folder / plan.folder / PLAN_FILE).is_file()
    ]
    try:
        for array in arrays:
            _remove_old(folder, array)
            for file in array.files:
                write_atomic(folder / file.path, file.text)
                if file.executable:
                    mode = stat.S_IMODE((folder / file.path).stat().st_mode)
                    (folder / file.path).chmod(mode | (mode & 0o444) >> 2)  # everyone who may read it may run it
        content = {"schema": SCHEMA, "kits": [asdict(plan) for plan in (*others, *plans)]}
        write_atomic(folder / KITS_FILE, json.dumps(content, indent=1) + "\n")
    except OSError as error:
        message = f"the folder '{folder}' cannot be written: {(error.strerror or str(error)).lower()}"
        fix = "choose another folder with -o, or give it the rights and the space"
        raise ConfigError(Finding(code="folder-unwritable", message=message, fix=fix)) from None


def _remove_old(folder: Path, plan: Plan) -> None:
    now = {file.path for file in plan.files}
    for path in folder.glob(f"array-{plan.site}-[0-9]-*.sbatch"):
        if path.name not in now:
            with suppress(OSError):
                path.unlink()


def _explain(error: OSError | ValueError) -> str:
    """What is wrong in words, without the number that the system has for it."""
    return ((error.strerror if isinstance(error, OSError) else "") or str(error)).lower()


def read_plan_list(folder: Path) -> tuple[ListedPlan, ...] | None:
    """Read the index, None when there is none; raises ConfigError when it is damaged."""
    path = folder / KITS_FILE
    try:
        content = read_below(folder, KITS_FILE, limit=LIMIT)
        plans = to_dataclass(_Index, parse_json(content), schema=SCHEMA, what="list of plan folders").kits
        if not all(is_plain_path(plan.folder) and "/" not in plan.folder for plan in plans):
            raise ValueError("it leads out of its folder")
        if len({plan.name for plan in plans}) < len(plans):
            raise ValueError("two plans have one name")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        message = f"the list of plan folders in '{folder}' cannot be read: {sanitize(_explain(error), limit=200)}"
        fix = "write it again with `recipe plan`, or name one plan folder"
        raise ConfigError(Finding(code="kits-file", message=message, at=Location(file=str(path)), fix=fix)) from None
    return plans


def follow_command(
    folder: Path,
    *,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    note: Callable[[str], None],
    cancel_on_interrupt: bool = False,
) -> tuple[int, Finding | None]:
    """Follow the one job of a folder to its end: the exit code of its command, and what Slurm did to the job.

    Raises SignalInterrupt, and StepError where it would never start.
    """
    folder = folder.resolve()
    slurm, signals = Slurm(environment), Signals()
    with signals.catch(), lock_folder(folder):
        ledger = require_ledger(folder)
        job = ledger.only
        log = LogTail(folder=folder, name=job.log, on_line=on_line, mask=Mask(environment))
        follower = Follower(job=job, folder=folder, monitor=Monitor(slurm), log=log, on_tick=lambda: None, note=note)
        try:
            end = follower.follow()
        except SignalInterrupt as stop:
            signals.ignore()
            stop_following(folder, stop, slurm=slurm, cancel=cancel_on_interrupt)
            raise
        forget_command(ledger.command, folder)
        note_finished(ledger, folder, note=note)
        return end.exit_code, find_job_fault(job, end, folder=folder)
