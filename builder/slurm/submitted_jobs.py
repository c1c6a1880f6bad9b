"""Submitted jobs to their end: what each has left, the verdict, the image in its place and the report.

A second build as jobs, to compare, is the same job scripts once more, in a copy of the plan below the plan folder.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builder.execute.build_options import SignalInterrupt, Signals
from builder.execute.execution import Execution, LocalPrefix
from builder.execute.folder_lock import lock_folder
from builder.execute.preflight import query_versions
from builder.execute.progress import Progress
from builder.execute.report_file import keep_report, read_report
from builder.execute.reproduction import (
    Reproduction,
    apply_answer,
    compare,
    copy_plan,
    list_rebuild_steps,
    make_failed_reproduction,
    make_fresh_cache,
    note_rebuild,
)
from builder.inspect.attestations import write_attestations
from builder.inspect.origin import Origin, read_origin
from builder.model.finding import ConfigError, Finding, Location
from builder.model.plan import LIMIT, Plan, Step, from_json
from builder.model.report import Report
from builder.model.secrets import Mask
from builder.model.text import is_plain_path
from builder.slurm.client import NODE_LOST, JobState, Slurm
from builder.slurm.ledger import (
    JobRecord,
    Ledger,
    drop_old_record,
    list_open_jobs,
    name_ledger_file,
    note_finished,
    read_ledger,
    read_record,
)
from builder.slurm.monitor import Monitor, SlurmRunner
from builder.system.files import remove_tree
from builder.system.layout import AGAIN, JOBS, PLAN_FILE, plan_folder
from builder.system.process import find_program
from builder.system.trust import read_below

NAMED = 4  # jobs in a message; of more only the number


def describe_interrupt(jobs: Sequence[str], *, place: Path, cancelled: bool) -> str:
    """What to print when someone stops following: these `jobs` have not ended; `place` is what has a status."""
    if not jobs:
        return f"interrupted: all jobs have ended; `recipe status {place}` prints the result"
    some = f"job {jobs[0]}" if len(jobs) == 1 else f"jobs {', '.join(jobs)}"
    named = some if len(jobs) <= NAMED else f"{len(jobs)} jobs"
    if cancelled:
        return f"interrupted: {named} cancelled"
    return f"interrupted: {named} in the queue or running; `recipe status {place}` shows them, --cancel ends them"


def stop_following(folder: Path, stop: SignalInterrupt, *, slurm: Slurm, cancel: bool) -> None:
    """Cancel the open jobs where that was requested, and give the words for the user to what stopped it."""
    left = list_open_jobs(read_ledger(folder), folder)
    if cancel:
        slurm.cancel(left)
    stop.message = describe_interrupt(left, place=folder, cancelled=cancel)


def check_jobs_again(plan: Plan) -> None:
    """Raise ConfigError where a step of a second build could not be a job."""
    jobless = [step.name for step in list_rebuild_steps(plan) if not step.batch]
    if jobless:
        message = (
            f"--reproduce with --submit: step '{jobless[0]}' has no job on '{plan.site}', and a second build needs one"
        )
        fix = "leave out --reproduce, or leave out --submit"
        raise ConfigError(Finding(code="verify-job", message=message, fix=fix))


def name_again(step: Step) -> str:
    """The name that a step has in a second build."""
    return f"{AGAIN}-{step.name}"


def prepare_again(plan: Plan, folder: Path, *, environment: Mapping[str, str]) -> dict[str, str]:
    """Copy a plan for a second build, with a cache of downloads alone; the variables of its jobs. Raises OSError."""
    place = folder / AGAIN
    remove_tree(place)
    place.mkdir()
    copy_plan(plan, folder, place)
    shutil.copy2(folder / PLAN_FILE, place / PLAN_FILE)
    (folder / JOBS).mkdir(exist_ok=True)
    (place / JOBS).symlink_to(Path("..", JOBS))  # where `recipe status` looks for the records
    return make_fresh_cache(environment, place=place / "cache")


def list_submitted_rebuild(ledger: Ledger, plan: Plan) -> tuple[Step, ...]:
    """The steps of the second build, with their products as seen from the plan folder; none where there is no such."""
    return tuple(
        replace(step, name=name_again(step), produces=tuple(f"{AGAIN}/{name}" for name in step.produces))
        for step in list_rebuild_steps(plan)
        if ledger.find_job(name_again(step))
    )


def judge_again(run: Execution, steps: tuple[Step, ...], *, runner: SlurmRunner, image: Path) -> None:
    """Follow the jobs of a second build, and note what they gave."""
    plan = replace(run.plan, image=f"{AGAIN}/{run.plan.image}", steps=steps)
    second = Execution(
        plan=plan,
        folder=run.folder,
        output=run.folder / AGAIN / "again.sif",
        runner=runner,
        progress=run.progress,
        signals=run.signals,
        versions=run.versions,
        environment=run.environment,
        prefix=LocalPrefix(results=tuple(run.results)),
        origin=run.origin,
    )
    run.progress.note("the second build, to compare")

    def build() -> Reproduction:
        if not second.run_steps(steps):
            last = next(step for step in steps if step.name == second.results[-1].name)
            return make_failed_reproduction(second, log=runner.log(last))
        taken = sum(runner.ends[step.name].seconds for step in steps)
        return compare(run, second, image=image, seconds=taken)

    note_rebuild(run, build)


def remove_again(folder: Path) -> None:
    """Remove what a second build was made in."""
    remove_tree(folder / AGAIN)


@dataclass(frozen=True, kw_only=True)
class JobView:
    """One job as `recipe status` shows it."""

    step: str
    job: str
    state: JobState | None  # None: Slurm does not answer
    record: JobRecord | None
    log: str

    @property
    def over(self) -> bool:
        if self.record is not None and not self.record.ending and self.state is None:
            return True
        # While Slurm clears up it may put the job back into the queue.
        return self.state is not None and self.state.stage in ("ended", "lost")

    @property
    def failed(self) -> bool:
        """Whether it has ended, and badly."""
        if self.record is not None and not self.record.ending:
            lost = self.state is not None and self.state.word in NODE_LOST
            return self.over and bool(self.record.exit_code or self.record.reason or lost)
        return self.over and self.state is not None and self.state.word != "COMPLETED"


def read_plan(folder: Path) -> Plan:
    """Read the plan of a folder; raises ConfigError."""
    path = folder / PLAN_FILE
    try:
        return from_json(read_below(folder, PLAN_FILE, limit=LIMIT), file=str(path))
    except (OSError, ValueError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        message = f"'{folder}' is no plan folder: its {PLAN_FILE} cannot be read ({reason.lower()})"
        fix = "name the image, or the folder next to it"
        raise ConfigError(Finding(code="no-plan", message=message, at=Location(file=str(path)), fix=fix)) from None


def make_job_views(ledger: Ledger, *, folder: Path, states: Mapping[str, JobState] | None) -> tuple[JobView, ...]:
    """How each job of a ledger is doing, by what Slurm has said; None when it did not answer."""
    return tuple(
        JobView(
            step=job.step,
            job=job.job,
            state=state,
            record=drop_old_record(read_record(folder, job.job), started=state.started if state else 0.0),
            log=job.log,
        )
        for job in ledger.jobs
        for state in [states.get(job.job) if states is not None else None]
    )


def is_over(plan: Plan, views: tuple[JobView, ...]) -> bool:
    """Whether nothing more will come: all have ended, or one has failed that the others wait for."""
    kinds = {step.name: step.kind for step in plan.steps}
    # For a smoke test or a second build nothing waits.
    waited_for = {name for name, kind in kinds.items() if kind != "smoke"}
    return all(view.over for view in views) or any(view.failed and view.step in waited_for for view in views)


def finish(
    folder: Path,
    *,
    environment: Mapping[str, str],
    progress: Progress,
    monitor: Monitor | None = None,
    cancel_on_interrupt: bool = False,
) -> Report:
    """Follow the jobs of a folder to their end, judge them, publish the image and write report.json.

    `monitor` is that of several builds. Done twice it gives the same. Raises SignalInterrupt; the jobs then continue
    unless they are to be cancelled. Raises ConfigError when another process does the same.
    """
    folder = folder.resolve()
    plan, signals = read_plan(folder), Signals()
    monitor = monitor or Monitor(Slurm(environment))
    with signals.catch(), lock_folder(folder), monitor.take_turn():
        ledger = require_ledger(folder)
        check_output(ledger, plan, folder=folder)
        steps = tuple(step for step in plan.steps if ledger.find_job(step.name))
        runner = SlurmRunner(ledger=ledger, folder=folder, monitor=monitor, progress=progress, mask=Mask(environment))
        run = Execution(
            plan=plan,
            folder=folder,
            output=Path(ledger.output).resolve(),
            runner=runner,
            progress=progress,
            signals=signals,
            versions=lambda _: _find_versions(environment),
            environment=environment,
            prefix=ledger.lead,
            began=ledger.began,
            origin=_find_origin(ledger, plan, folder=folder),
        )
        try:
            return _carry_out(run, steps, runner=runner)
        except SignalInterrupt as stop:
            signals.ignore()
            stop_following(folder, stop, slurm=monitor.slurm, cancel=cancel_on_interrupt)
            raise


def require_ledger(folder: Path) -> Ledger:
    """What was submitted from a folder; raises ConfigError where nothing was."""
    ledger = read_ledger(folder)
    if ledger is None:
        message = f"nothing was submitted from '{folder}'"
        raise ConfigError(Finding(code="no-jobs", message=message, fix="submit with --submit, or name another folder"))
    return ledger


def check_output(ledger: Ledger, plan: Plan, *, folder: Path) -> None:
    """Raise ConfigError where an image would be put anywhere but next to its plan folder, or its plan makes none.

    `folder` has no links in it. What tests an image that was there already publishes nothing.
    """
    output = Path(ledger.output)
    if ledger.kind in ("smoke", "run"):
        if output == Path(plan.image):
            return
        what = f"the image '{output}' of the jobs is not '{plan.image}', which the plan is for"
    elif output.parent.resolve() != folder.parent or plan_folder(output).name != folder.name:
        what = f"the image of the jobs, '{output}', is not next to the plan folder"
    elif not is_plain_path(plan.image):
        what = f"the plan's image '{plan.image}' does not lie in the plan folder"
    elif output.is_symlink() and output.lstat().st_uid != os.geteuid():
        what = f"'{output}' is a link of another user's"
    else:
        return
    at, fix = (
        Location(file=str(name_ledger_file(folder))),
        "build again: `recipe build` puts an image next to its plan folder",
    )
    raise ConfigError(Finding(code="output-elsewhere", message=what, at=at, fix=fix))


def _find_origin(ledger: Ledger, plan: Plan, *, folder: Path) -> Origin:
    """What the image was made from; not known where the folder got another plan after the jobs were submitted."""
    return ledger.origin if ledger.origin == read_origin(folder, plan) else Origin()


def _carry_out(run: Execution, steps: tuple[Step, ...], *, runner: SlurmRunner) -> Report:
    ledger, second = runner.ledger, list_submitted_rebuild(runner.ledger, run.plan)
    known = None if steps else read_report(run.folder)  # of an image that was there: only the second build is new
    run.progress.begin(title=f"{run.plan.target}: {run.output}", total=len(run.results) + len(steps) + len(second))
    try:
        if known is None:
            run.run_all(steps)
        if second and (known or run.status == "passed"):
            judge_again(run, second, runner=runner, image=run.image or run.output)
    finally:
        run.progress.end()
    runner.monitor.slurm.cancel(list_open_jobs(ledger, run.folder))
    if known is None:
        report = run.report(max(0.0, time.time() - ledger.began))
        # The attestations of an image that was there already are those of its own build.
        if ledger.kind != "smoke" and (fault := write_attestations(run.plan, report, sbom=run.sbom)):
            run.progress.note(fault)
    else:
        report = apply_answer(known, run)
    keep_report(report, run.folder, note=run.progress.note)
    note_finished(ledger, run.folder, note=run.progress.note)
    remove_again(run.folder)
    return report


def _find_versions(environment: Mapping[str, str]) -> dict[str, str]:
    path = find_program("sbatch", env=environment)
    with query_versions({"sbatch": path} if path else {}, environment=environment) as answers:
        return answers(10.0)
