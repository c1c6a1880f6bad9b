"""Options that several commands share: those of jobs, and former names."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from builder.cli.output import echo
from builder.model.finding import ConfigError, Finding
from builder.pipeline.request import SlurmOptions

F = TypeVar("F", bound=Callable[..., object])

OF_JOBS = ("partition", "qos", "time", "mem")


def add_former_flag(old: str, *, new: str) -> Callable[[F], F]:
    """Make a decorator that accepts a flag under its former name too, which the help does not show."""

    def decorate(command: F) -> F:
        @click.option(old, f"former_{new}", is_flag=True, hidden=True)
        @wraps(command)
        def accept_both(*arguments: Any, **options: Any) -> object:
            former = options.pop(f"former_{new}")
            options[new] = options[new] or former
            return command(*arguments, **options)

        return accept_both  # type: ignore[return-value]

    return decorate


def add_batch_options(command: F) -> F:
    """Add the options of commands that submit jobs. [STEP=]VALUE: for all jobs, or for the job of a step."""
    for option in (
        click.option("--cancel-on-interrupt", is_flag=True, help="Ctrl-C cancels the jobs; without it they continue."),
        click.option("--no-wait", is_flag=True, help="Submit and exit; `recipe status` shows the result later."),
        click.option(
            "--dependency", metavar="WHEN", default="", help="Dependency of the first job, e.g. afterok:JOBID."
        ),
        click.option("--mem", metavar="SIZE", multiple=True, help="Memory of a node, instead of the estimate."),
        click.option("--time", metavar="LIMIT", multiple=True, help="Time limit: minutes or HH:MM:SS."),
        click.option("--qos", metavar="NAME", multiple=True, help="Quality of service."),
        click.option(
            "--partition", metavar="NAME", multiple=True, help="Partition; [STEP=]NAME, also for the next options."
        ),
        click.option("--submit", is_flag=True, help="Run as Slurm jobs and wait for the result."),
    ):
        command = option(command)
    return command


def add_shape_options(command: F) -> F:
    """Add the options for the number of ranks."""
    for option in (
        click.option("--gpus", metavar="G", type=click.IntRange(1), help="Devices of each node, one for each rank."),
        click.option("--nodes", metavar="N", type=click.IntRange(1), help="Nodes."),
    ):
        command = option(command)
    return command


def take_slurm_options(
    options: dict[str, Any], *, account: str | None, shape: tuple[int | None, int | None] = (None, None)
) -> SlurmOptions:
    """Take Slurm's options out of a command's; raises ConfigError for options of jobs without --submit.

    `shape`: the values of --nodes and --gpus where only jobs have them.
    """
    of_jobs = {name: options.pop(name) for name in OF_JOBS}
    names = ("submit", "no_wait", "cancel_on_interrupt", "dependency")
    slurm = SlurmOptions(**{name: options.pop(name) for name in names}, account=account or "", of_jobs=of_jobs)
    if not slurm.submit:
        said = [name for name, value in of_jobs.items() if value]
        said += [name for name, value in zip(("nodes", "gpus"), shape, strict=True) if value is not None]
        said += [name.replace("_", "-") for name in names[1:] if getattr(slurm, name)]
        if said:
            message = f"--{said[0]} is for jobs"
            raise ConfigError(Finding(code="usage", message=message, fix="add --submit, or leave it out"))
    return slurm


def make_printer(*, quiet: bool) -> Callable[[str], None]:
    """Make the function that prints a line, or none with -q."""
    return lambda text: None if quiet else echo(text, err=True)
