"""One build as a chain of Slurm jobs: submitted, followed, judged. Steps that have no job run here first."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from builder.execute.executor import Work, chosen, lead
from builder.execute.folder_lock import hold
from builder.execute.options import Options, Signals
from builder.execute.progress import Progress
from builder.execute.reproduce import again_steps
from builder.execute.run import Lead
from builder.inspect.origin import origin_of
from builder.model.plan import Plan
from builder.model.report import Report
from builder.model.site import Site
from builder.pipeline.prepare import Prepared, prepare
from builder.pipeline.request import UI, Build, BuildRequest, Outcome, SlurmOptions, Tell, outcome_of
from builder.slurm.client import Slurm
from builder.slurm.collect import finish, prepare_again
from builder.slurm.options import read_wishes
from builder.slurm.state import Kind, Ledger, forget_command, forget_ledger, keep_command
from builder.slurm.submit import Batch, Steps, check_jobs, split_steps, submit
from builder.system.process import which


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What is submitted: a plan that was written into `folder`, whose image goes to `output`."""

    plan: Plan
    site: Site
    kind: Kind
    folder: Path
    output: Path
    options: Options
    variables: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    built: bool = False  # the image is there: only the second build is wanted, to compare
    steps: tuple[Steps, Steps] | None = None  # to run here, and as jobs, where that is known already


def submit_plan(what: Submission, *, jobs: SlurmOptions, progress: Progress) -> Ledger:
    """Try and submit the jobs of a plan's steps, as a chain; those before them that have no job run here first.

    Raises StepError or SmokeError when one of those failed, with its report written.
    """
    # Where the image itself is a link, what it leads to is looked up when the image is put there.
    folder, output = what.folder.resolve(), what.output.parent.resolve() / what.output.name
    slurm, signals, environment = Slurm(what.options.environment), Signals(), what.options.environment
    with signals.caught(), hold(folder), ExitStack() as unsent:
        here, steps = ((), ()) if what.built else what.steps or _chosen(what, folder=folder, output=output)
        tried = again_steps(what.plan) if what.built else steps
        command = keep_command(what.command, folder) if what.command else ""
        given = {"RECIPE_COMMAND": str(folder / command)} if command else {}
        unsent.callback(forget_command, command, folder)
        batch = _batch(what, tried, jobs=jobs, output=output, variables={**what.variables, **given}, command=command)
        # Before anything is built here: a job that is refused is known at once.
        check_jobs(tried, batch=batch, folder=folder, slurm=slurm)
        done = Lead()
        if here:
            forget_ledger(folder)
            work = Work(
                plan=what.plan, steps=here, folder=folder, output=output, options=what.options, progress=progress
            )
            done = lead(work, signals=signals, total=len(here) + len(steps))
        if what.options.verify:
            batch = replace(batch, again=prepare_again(what.plan, folder, environment=environment))
        origin = origin_of(what.plan, (*here, *steps), folder=folder)
        ledger = submit(
            what.plan, steps, batch=batch, folder=folder, slurm=slurm, undisturbed=signals.held, lead=done,
            origin=origin,
        )  # fmt: skip
        unsent.pop_all()  # a job reads the command now
        return ledger


def try_jobs(ready: Prepared, *, request: BuildRequest) -> None:
    """Ask Slurm, where it is here, whether it would take the jobs of a build that is not written yet.

    Raises what `check_jobs` does. sbatch reads the scripts, which lie in a temporary folder for so long.
    """
    what, steps = _submission(ready, request=request), ready.jobs
    batch = _batch(what, steps, jobs=request.slurm, output=ready.output)
    if which("sbatch", env=what.options.environment) is None:
        return
    scripts = {step.batch for step in steps}
    with TemporaryDirectory(prefix="recipe-") as name:
        for file in what.plan.files:
            if file.path in scripts:
                path = Path(name) / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(file.text, encoding="utf-8")
        check_jobs(steps, batch=batch, folder=Path(name), slurm=Slurm(what.options.environment))


def _batch(
    what: Submission,
    steps: Steps,
    *,
    jobs: SlurmOptions,
    output: Path,
    variables: Mapping[str, str] | None = None,
    command: str = "",
) -> Batch:
    """How the jobs are submitted; raises ConfigError for a wish that is none."""
    names = [step.name for step in steps]
    wishes = read_wishes(jobs.of_jobs, steps=names, account=jobs.account, dependency=jobs.dependency)
    return Batch(
        kind=what.kind,
        output=output,
        site_options=what.site.scheduler.submit,
        wishes=wishes,
        environment=what.options.environment,
        variables=variables or {},
        command=command,
    )


def _chosen(what: Submission, *, folder: Path, output: Path) -> tuple[Steps, Steps]:
    """The steps to run here and those to submit; raises what speaks against them."""
    steps = chosen(what.plan, folder=folder, output=output, options=what.options)
    return split_steps(what.plan, steps, folder=folder, environment=what.options.environment)


def job_lines(ledger: Ledger) -> list[str]:
    """One line a job, for people."""
    return [
        f"job {job.job}: {job.step}" + (f", after {', '.join(job.after)}" if job.after else "") for job in ledger.jobs
    ]


def to_verdict(what: Submission, *, jobs: SlurmOptions, progress: Progress, tell: Tell) -> Report | None:
    """Submit, and follow to the report; None where the jobs are not waited for. `tell` gets what is worth a line."""
    ledger = submit_plan(what, jobs=jobs, progress=progress)
    for line in job_lines(ledger):
        tell(line)
    if jobs.no_wait:
        tell(f"submitted; `recipe status {what.folder}` says how it goes, and judges")
        return None
    return finish(
        what.folder,
        environment=what.options.environment,
        progress=progress,
        cancel_on_interrupt=jobs.cancel_on_interrupt,
    )


def run_chain(name: str, build: Build, *, request: BuildRequest, ui: UI) -> Outcome:
    """Prepare one build, submit it and follow it to its outcome; raises what stops it, and Interrupted."""
    tell, image = partial(ui.line, name), str(build.image)
    display = ui.display([name])
    with ExitStack() as held, display.shown():
        ready = prepare(build, request=request, tell=tell, held=held)
        if ready.done and not request.options.verify:
            return Outcome(name=name, word="nothing to do", text=image, image=image)
        what = _submission(ready, request=request)
        report = to_verdict(what, jobs=request.slurm, progress=display.side(name), tell=tell)
    if report is None:
        return Outcome(name=name, word="submitted", text=f"recipe status {build.folder}")
    ui.report(name, report)
    return outcome_of(name, report, image=build.image)


def _submission(ready: Prepared, *, request: BuildRequest) -> Submission:
    build = ready.build
    return Submission(
        plan=build.plan, site=build.site, kind="build", folder=build.folder, output=build.image,
        options=request.options, built=bool(ready.done), steps=(ready.here, ready.jobs),
    )  # fmt: skip
