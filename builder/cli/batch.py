"""What the commands that submit jobs have in common: options, and what is said of them; submission.py submits."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from builder.cli.show import echo
from builder.execute.machine import check_sbatch
from builder.model.finding import ConfigError, Finding, Place, UnsupportedError
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
    """Raise where jobs cannot be submitted at all: no scheduler there, none here, no account said."""
    check_scheduler(site)
    check_sbatch(site, environment=os.environ)
    check_account(site, asked=asked)


def check_scheduler(site: Site) -> None:
    """Raise UnsupportedError where a site has no batch system."""
    if site.scheduler.kind == "none":
        message = f"'{site.name}' has no batch system: nothing can be submitted there"
        raise UnsupportedError(Finding(code="no-scheduler", message=message, fix="leave --submit out"))


def check_account(site: Site, *, asked: Asked) -> None:
    """Raise ConfigError where an account has to be said and is not."""
    if site.scheduler.account == "required" and not asked.account:
        message = f"'{site.name}' wants to know the account that a job is charged to, and it is never guessed"
        form = site.scheduler.account_form or "NAME"
        fix = f"give --account={shlex.quote(form)}, or set SBATCH_ACCOUNT"
        raise ConfigError(Finding(code="job-account", message=message, at=Place(key="--account"), fix=fix))


def teller(*, quiet: bool) -> Callable[[str], None]:
    """What says a line to the user, or nothing."""
    return lambda text: None if quiet else echo(text, err=True)
