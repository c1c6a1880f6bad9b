"""What the commands that submit jobs have in common: options, submission, following, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from builder.execute.executor import Work, check_skipped, choose_steps, kept_image, lead, raise_for
from builder.execute.hold import hold
from builder.execute.jobs.finish import finish
from builder.execute.jobs.ledger import Kind, Ledger, forget_ledger
from builder.execute.jobs.slurm import Slurm
from builder.execute.jobs.split import split_steps
from builder.execute.jobs.submit import Batch, check_jobs, submit
from builder.execute.jobs.wishes import read_wishes
from builder.execute.options import Options, Signals
from builder.execute.preflight import check_output
from builder.execute.progress import Progress
from builder.execute.run import Lead
from builder.model.finding import ConfigError, Finding, Place, UnsupportedError
from builder.model.plan import Plan
from builder.model.report import Report
from builder.model.site import Site

F = TypeVar("F", bound=Callable[..., object])

OF_JOBS = ("partition", "qos", "time", "mem")


def batch_options(command: F) -> F:
    """Options of everything that may be submitted. [STEP=]VALUE: for all jobs, or for the one of a step."""
    for option in (
        click.option("--cancel-on-interrupt", is_flag=True, help="Ctrl-C cancels the jobs; else they go on."),
        click.option("--no-wait", is_flag=True, help="Submit and leave; `recipe status` judges later."),
        click.option("--dependency", metavar="WHEN", default="", help="The first job waits, e.g. for afterok:JOBID."),
        click.option("--mem", metavar="SIZE", multiple=True, help="Memory of a node, instead of the estimate."),
        click.option("--time", metavar="LIMIT", multiple=True, help="Time limit: minutes or HH:MM:SS."),
        click.option("--qos", metavar="NAME", multiple=True, help="Quality of service."),
        click.option("--partition", metavar="NAME", multiple=True, help="Partition; [STEP=]NAME, as the next ones."),
        click.option("--submit", is_flag=True, help="As Slurm jobs, and follow them to the verdict."),
    ):
        command = option(command)
    return command


def shape_options(command: F) -> F:
    """Options that say how many ranks there are."""
    for option in (
        click.option("--gpus", metavar="G", type=click.IntRange(1), help="Devices of each node, as ranks count them."),
        click.option("--nodes", metavar="N", type=click.IntRange(1), help="Nodes."),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of `batch_options`, as click gives them."""

    submit: bool
    no_wait: bool
    cancel_on_interrupt: bool
    dependency: str
    account: str = ""
    of_jobs: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def take(
        cls, options: dict[str, Any], *, account: str | None, shape: tuple[int | None, int | None] = (None, None)
    ) -> Asked:
        """Take them out of a command's options; raises ConfigError for those of jobs where nothing is submitted.

        `shape`: the values of --nodes and --gpus, where they are for jobs alone.
        """
        of_jobs = {name: options.pop(name) for name in OF_JOBS}
        names = ("submit", "no_wait", "cancel_on_interrupt", "dependency")
        asked = cls(**{name: options.pop(name) for name in names}, account=account or "", of_jobs=of_jobs)
        if not asked.submit:
            said = [name for name, value in of_jobs.items() if value]
            said += [name for name, value in zip(("nodes", "gpus"), shape, strict=True) if value is not None]
            said += [name.replace("_", "-") for name in names[1:] if getattr(asked, name)]
            if said:
                message = f"--{said[0]} is for jobs"
                raise ConfigError(Finding(code="usage", message=message, fix="add --submit, or leave it out"))
        return asked


def check_site(site: Site, *, asked: Asked) -> None:
    """Raise where jobs cannot be submitted at all: no scheduler there, no account said."""
    if site.scheduler.kind == "none":
        message = f"'{site.name}' has no batch system: nothing can be submitted there"
        raise UnsupportedError(Finding(code="no-scheduler", message=message, fix="leave --submit out"))
    if site.scheduler.account == "required" and not asked.account:
        message = f"'{site.name}' wants to know the account that a job is charged to, and it is never guessed"
        form = site.scheduler.account_form or "NAME"
        fix = f"give --account={form}, or set SBATCH_ACCOUNT"
        raise ConfigError(Finding(code="job-account", message=message, at=Place(key="--account"), fix=fix))


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


def submit_plan(what: Submission, *, asked: Asked, progress: Progress) -> Ledger:
    """Try and submit the jobs of a plan's steps, as a chain; those before them that have no job run here first.

    Raises StepError or SmokeError when one of those failed, with its report written.
    """
    folder, output = what.folder.resolve(), what.output.resolve()
    slurm, signals, environment = Slurm(what.options.environment), Signals(), what.options.environment
    with signals.caught(), hold(folder):
        skipped, steps = choose_steps(what.plan, what.options)
        check_skipped(skipped, folder)
        check_output(what.plan, output, force=what.options.force, kept=kept_image(what.plan, steps, folder))
        here, steps = split_steps(what.plan, steps, folder=folder, environment=environment)
        names = [step.name for step in steps]
        wishes = read_wishes(asked.of_jobs, steps=names, account=asked.account, dependency=asked.dependency)
        batch = Batch(
            kind=what.kind,
            output=output,
            site_options=what.site.scheduler.submit,
            wishes=wishes,
            environment=environment,
            variables=what.variables,
            command=what.command,
        )
        # Before anything is built here: a job that is refused is known at once.
        check_jobs(what.plan, steps, batch=batch, folder=folder, slurm=slurm)
        done = Lead()
        if here:
            forget_ledger(folder)
            work = Work(
                plan=what.plan, steps=here, folder=folder, output=output, options=what.options, progress=progress
            )
            done = lead(work, signals=signals, total=len(here) + len(steps))
        return submit(what.plan, steps, batch=batch, folder=folder, slurm=slurm, undisturbed=signals.held, lead=done)


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

    `show` gets the report, `tell` what else is worth a line. Raises StepError or SmokeError for a bad verdict.
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


def teller(*, quiet: bool) -> Callable[[str], None]:
    """What says a line to the user, or nothing."""
    return lambda text: None if quiet else click.echo(text, err=True)
