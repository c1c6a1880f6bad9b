"""Options of the commands that submit jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from builder.cli.output import echo
from builder.model.finding import ConfigError, Finding
from builder.pipeline.request import SlurmOptions

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


def take_slurm_options(
    options: dict[str, Any], *, account: str | None, shape: tuple[int | None, int | None] = (None, None)
) -> SlurmOptions:
    """Take them out of a command's options; raises ConfigError for those of jobs where nothing is submitted.

    `shape`: the values of --nodes and --gpus, where they are for jobs alone.
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
    """What says a line to the user, or nothing."""
    return lambda text: None if quiet else echo(text, err=True)
