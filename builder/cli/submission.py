"""Submission to the verdict: a plan's steps as jobs, those before them that have none here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from builder.cli.batch import Asked
from builder.execute.asking import which
from builder.execute.executor import Work, chosen, lead, raise_for
from builder.execute.hold import hold
from builder.execute.image.again import again_steps
from builder.execute.image.origin import origin_of
from builder.execute.jobs.again import prepare_again
from builder.execute.jobs.finish import finish
from builder.execute.jobs.ledger import Kind, Ledger, forget_command, forget_ledger, keep_command
from builder.execute.jobs.slurm import Slurm
from builder.execute.jobs.split import Steps, split_steps
from builder.execute.jobs.submit import Batch, check_jobs, submit
from builder.execute.jobs.wishes import read_wishes
from builder.execute.options import Options, Signals
from builder.execute.progress import Progress
from builder.execute.run import Lead
from builder.model.plan import Plan
from builder.model.report import Report
from builder.model.site import Site


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


def submit_plan(what: Submission, *, asked: Asked, progress: Progress) -> Ledger:
    """Try and submit the jobs of a plan's steps, as a chain; those before them that have no job run here first.

    Raises StepError or SmokeError when one of those failed, with its report written.
    """
    # Where the image itself is a link, what it leads to is looked up when the image is put there.
    folder, output = what.folder.resolve(), what.output.parent.resolve() / what.output.name
    slurm, signals, environment = Slurm(what.options.environment), Signals(), what.options.environment
    with signals.caught(), hold(folder), ExitStack() as unsent:
        here, steps = ((), ()) if what.built else _chosen(what, folder=folder, output=output)
        tried = again_steps(what.plan) if what.built else steps
        command = keep_command(what.command, folder) if what.command else ""
        given = {"RECIPE_COMMAND": str(folder / command)} if command else {}
        unsent.callback(forget_command, command, folder)
        batch = _batch(what, tried, asked=asked, output=output, variables={**what.variables, **given}, command=command)
        # Before anything is built here: a job that is refused is known at once.
        check_jobs(what.plan, tried, batch=batch, folder=folder, slurm=slurm)
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


def try_jobs(what: Submission, steps: Steps, *, asked: Asked) -> None:
    """Ask Slurm, where it is here, whether it would take the jobs of steps that nobody has written yet.

    Raises what `check_jobs` does. sbatch reads the scripts, which lie in a temporary folder for so long.
    """
    slurm = Slurm(what.options.environment)
    batch = _batch(what, steps, asked=asked, output=what.output)
    if which("sbatch", env=what.options.environment) is None:
        return
    scripts = {step.batch for step in steps}
    with TemporaryDirectory(prefix="recipe-") as name:
        for file in what.plan.files:
            if file.path in scripts:
                path = Path(name) / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(file.text, encoding="utf-8")
        check_jobs(what.plan, steps, batch=batch, folder=Path(name), slurm=slurm)


def _batch(
    what: Submission,
    steps: Steps,
    *,
    asked: Asked,
    output: Path,
    variables: Mapping[str, str] | None = None,
    command: str = "",
) -> Batch:
    """How the jobs are submitted; raises ConfigError for a wish that is none."""
    names = [step.name for step in steps]
    wishes = read_wishes(asked.of_jobs, steps=names, account=asked.account, dependency=asked.dependency)
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


def to_verdict(
    what: Submission,
    *,
    asked: Asked,
    progress: Progress,
    show: Callable[[Report], None],
    tell: Callable[[str], None],
) -> bool:
    """Submit, and follow to the verdict unless nobody is to wait; True when the verdict was good.

    `show` gets the report, `tell` what else is worth a line. Raises what `raise_for` does for a bad verdict.
    """
    ledger = submit_plan(what, asked=asked, progress=progress)
    for line in job_lines(ledger):
        tell(line)
    if asked.no_wait:
        tell(f"submitted; `recipe status {what.folder}` says how it goes, and judges")
        return False
    cancel = asked.cancel_on_interrupt
    environment = what.options.environment
    report = finish(what.folder, environment=environment, progress=progress, cancel_on_interrupt=cancel)
    show(report)
    raise_for(report)
    return True
