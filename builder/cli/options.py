"""Options that several commands share: those of jobs, and former names."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, get_args

import click
from click.core import ParameterSource

from builder.cli.inputs import account_option, add_here_option, add_trust_option, add_verbosity, find_source
from builder.cli.output import echo
from builder.cli.settings import list_accounts
from builder.cli.typed import remove_options
from builder.execute.build_options import find_wrong_values
from builder.model.finding import BuilderError, ConfigError, Finding, Location, UnsupportedError
from builder.model.site import LAUNCHER_NAMES, GpuVisibility, Site
from builder.model.text import sanitize
from builder.pipeline.prepare import make_no_scheduler
from builder.pipeline.request import SlurmOptions

F = TypeVar("F", bound=Callable[..., object])

OF_JOBS = ("partition", "qos", "time", "mem")
SUBMITTING = (*OF_JOBS, "no-wait", "cancel-on-interrupt", "dependency")  # options that only jobs have


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


def add_launch_options(command: F) -> F:
    """Add the options for the number of ranks, and those that replace how a site starts them and what they see."""
    for option in (
        click.option("--gpus", metavar="G", type=click.IntRange(1), help="Devices of each node, one for each rank."),
        click.option("--nodes", metavar="N", type=click.IntRange(1), help="Nodes."),
        click.option(
            "--gpu-visibility",
            type=click.Choice(get_args(GpuVisibility)),
            help="A rank sees all devices of its node (LOCAL_RANK selects one), or one of its own, device 0.",
        ),
        click.option(
            "--launcher",
            type=click.Choice([*LAUNCHER_NAMES]),
            help="A task for each rank, or one a node that starts torchrun; default: the site's.",
        ),
    ):
        command = option(command)
    return command


def add_run_options(command: F) -> F:
    """Add what `recipe run` and `recipe smoke` share: whose files are trusted, where it runs, and what is printed."""
    for add in (
        add_verbosity, account_option, add_launch_options, add_batch_options, add_here_option, add_trust_option
    ):  # fmt: skip
        command = add(command)
    return command


def make_launch_variables(options: Mapping[str, Any]) -> dict[str, str]:
    """Make the variables by which the choice of the command line outweighs that of the environment."""
    chosen = options["gpu_visibility"]
    return {"RECIPE_GPU_VISIBILITY": chosen} if chosen else {}


@contextmanager
def add_wrong_values(options: Mapping[str, Any]) -> Iterator[None]:
    """Add the values of job options that cannot be one to what is wrong with the arguments, all at once."""
    try:
        yield
    except ConfigError as error:
        wrong = find_wrong_values({name: options[name] for name in OF_JOBS}, dependency=options["dependency"])
        raise ConfigError(*wrong, *error.findings) from None


def take_slurm_options(
    options: dict[str, Any],
    *,
    account: str | None,
    sites: Sequence[Site],
    shape: tuple[int | None, int | None] = (None, None),
) -> SlurmOptions:
    """Take Slurm's options out of a command's; raises ConfigError for options of jobs without --submit.

    `shape`: the values of --nodes and --gpus where only jobs have them. Raises UnsupportedError where none of the sites
    has jobs.
    """
    of_jobs = {name: options.pop(name) for name in OF_JOBS}
    names = ("submit", "no_wait", "cancel_on_interrupt", "dependency")
    slurm = SlurmOptions(**{name: options.pop(name) for name in names}, account=account or "", of_jobs=of_jobs)
    if account is None:
        slurm = replace(slurm, accounts=dict(list_accounts()))
    said = [name for name, value in of_jobs.items() if value]
    said += [name for name, value in zip(("nodes", "gpus"), shape, strict=True) if value is not None]
    said += [name.replace("_", "-") for name in names[1:] if getattr(slurm, name)]
    context = click.get_current_context(silent=True)
    jobless = bool(sites) and all(site.scheduler.kind == "none" for site in sites)
    if jobless and slurm.account and context and context.get_parameter_source("account") == ParameterSource.COMMANDLINE:
        said.append("account")  # the variable of a shell may be for other sites
    if not (slurm.submit or said):
        return slurm
    if jobless:
        typed = context.params if context else {}
        said += [name for name in ("nodes", "launcher") if typed.get(name) and name not in said]  # refused there, too
        raise _without_jobs(sites, [f"--{name}" for name in said], submit=slurm.submit)
    if wrong := find_wrong_values(of_jobs, dependency=slurm.dependency):
        raise ConfigError(*wrong)
    if not slurm.submit:
        given = [f"--{name}" for name in said]
        fix = f"add --submit, or leave {'it' if len(given) == 1 else 'them'} out: `{remove_options(given)}`"
        raise ConfigError(Finding(code="usage", message=f"{_joined(given)} for jobs", fix=fix))
    return slurm


def refuse_account(sites: Sequence[Site]) -> None:
    """Raise ConfigError for an account that is typed where none of the sites has jobs."""
    context = click.get_current_context()
    typed = context.get_parameter_source("account") == ParameterSource.COMMANDLINE
    if typed and context.params["account"] and all(site.scheduler.kind == "none" for site in sites):
        raise _without_jobs(sites, ["--account"], submit=False)


def _without_jobs(sites: Sequence[Site], given: Sequence[str], *, submit: bool) -> BuilderError:
    """What to say of options of jobs for sites that have none: the line without all of them."""
    gone = [*(["--submit"] if submit else []), *given]
    line = remove_options(gone)
    fix = f"leave {_and(gone)} out: `{line}`"
    if submit:
        return UnsupportedError(replace(make_no_scheduler(sites[0]), fix=fix))
    message = f"{_joined(given)} for jobs, and '{sites[0].name}' has no batch system"
    return ConfigError(Finding(code="usage", message=message, fix=fix))


def _joined(options: Sequence[str]) -> str:
    return f"{_and(options)} {'is' if len(options) == 1 else 'are'}"


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def check_tmpdir(folder: Path | None, *, jobs: bool = False) -> None:
    """Raise ConfigError where --tmpdir, or its variable, names a folder that cannot be used.

    With `jobs` it is one of the nodes: nothing is known of it here.
    """
    if folder is None or jobs:
        return
    name = find_source("tmpdir")
    shown, word = sanitize(str(folder), limit=400), shlex.quote(str(folder))
    if not os.path.lexists(folder):
        what, fix = "does not exist", f"make it: `mkdir -p {word}`"
    elif not folder.is_dir():
        what, fix = "is not a folder", f"name a folder: `mkdir -p {word}.tmp` makes one"
    elif not os.access(folder, os.W_OK | os.X_OK):
        own = folder.stat().st_uid == os.getuid()
        what, fix = "may not be written to", f"`chmod u+rwx {word}`" if own else "name a folder of your own"
    else:
        return
    message = f"the temporary folder '{shown}' {what}"
    raise ConfigError(Finding(code="no-tmpdir", message=message, at=Location(key=name), fix=fix))


def make_printer(*, quiet: bool) -> Callable[[str], None]:
    """Make the function that prints a line, or none with -q."""
    return lambda text: None if quiet else echo(text, err=True)
