"""recipe build: check, resolve, compile, execute and smoke-test."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from builder.cli.help import GroupedCommand
from builder.cli.input_options import add_input_options, read_choice
from builder.cli.inputs import (
    add_compile_options,
    add_here_option,
    add_ignore_option,
    add_locked_option,
    add_trust_option,
    add_verbosity,
    find_sites_folder,
    make_context,
)
from builder.cli.options import (
    add_batch_options,
    add_former_flag,
    add_launch_options,
    add_wrong_values,
    check_tmpdir,
    make_launch_variables,
    take_slurm_options,
)
from builder.cli.output import echo
from builder.cli.targets import Selection, add_words_argument, load_sites, read_words
from builder.cli.terminal import Terminal
from builder.cli.typed import make_other_line
from builder.execute.build_options import ExecutionOptions
from builder.pipeline.build import build
from builder.pipeline.request import BuildRequest, SlurmOptions

# Variables of scripts that are run by hand: a build judges its own image, with nothing of this machine in it.
SET_HERE = ("RECIPE_FETCH", "RECIPE_UPDATE", "RECIPE_RAN")  # which only recipe gives to the scripts
BY_HAND = ("RECIPE_IMAGE", "RECIPE_BINDS")


@click.command("build", cls=GroupedCommand)
@add_words_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The image, default: NAME-SITE.sif here; the folder of several builds.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Look for what it needs, print what it would do, and do nothing.")
@click.option("-f", "--force", is_flag=True, help="Replace an output that exists.")
@click.option(
    "--update",
    is_flag=True,
    help="Add what is new to the installation that is there (tykky): packages of pip, commands.",
)
@click.option("--from", "start", metavar="STEP", default="", help="Start from a step; the earlier ones are done.")
@click.option("--no-smoke", is_flag=True, help="Build without the smoke test.")
@click.option(
    "--tmpdir",
    type=click.Path(path_type=Path),
    help="Temporary folder of the build; needs the unpacked image's size.",
    envvar="RECIPE_TMPDIR",
    show_envvar=True,
)
@click.option(
    "--accept-licenses", is_flag=True, help="Accept the licences that an engine asks about (cotainr: Miniforge)."
)
@click.option("--sign", is_flag=True, help="Sign the image with the key of your keyring (`apptainer key newpair`).")
@click.option("--offline", is_flag=True, help="Use what `recipe fetch` or an earlier build got, and ask no server.")
@add_former_flag("--verify", new="reproduce")
@click.option("--reproduce", is_flag=True, help="Build a second time and compare: exit code 8 if a byte differs.")
@click.option(
    "-j", "--jobs", metavar="N", type=click.IntRange(1), help="Of several builds so many at once; default: what fits."
)
@add_ignore_option
@add_trust_option
@add_locked_option
@add_here_option
@add_batch_options
@add_launch_options
@add_input_options
@add_compile_options
@add_verbosity
def run_command(
    words: tuple[str, ...], nodes: int | None, gpus: int | None, verbose: int, quiet: bool, **options: Any
) -> None:
    """Build the image of the environment file ENV for SITE, and test it by training.

    The plan folder (scripts, logs, report.json) is next to the image and named after it. With --submit every step is a
    Slurm job that starts after the previous one; steps without a job on the site run here first. --nodes or --gpus
    add a job with the whole smoke suite. Several sites or files are built in parallel.
    """
    with add_wrong_values(options):
        named = read_words(words)
    if named.note and not quiet:
        echo(named.note, err=True)
    shape = (nodes, gpus)
    slurm = take_slurm_options(options, account=options["account"], sites=load_sites(named.sites), shape=shape)
    check_tmpdir(options["tmpdir"], jobs=slurm.submit)
    request = _make_request(named, options, slurm=slurm, shape=shape)
    notes = bool(verbose) or request.dry_run
    terminal = Terminal(single=request.single, verbose=bool(verbose), quiet=quiet, notes=notes)
    terminal.conclude(build(request, ui=terminal), rows=not request.dry_run)


def _make_request(
    named: Selection, options: dict[str, Any], *, slurm: SlurmOptions, shape: tuple[int | None, int | None]
) -> BuildRequest:
    environment = {name: value for name, value in os.environ.items() if name not in (*SET_HERE, *BY_HAND)}
    if ignored := [name for name in BY_HAND if os.environ.get(name)]:
        echo(f"note: {' and '.join(ignored)} is not used: a build tests its own image alone", err=True)
    for option, variable in (("accept_licenses", "RECIPE_ACCEPT_LICENSES"), ("offline", "RECIPE_OFFLINE")):
        if options[option]:
            environment[variable] = "yes"
    environment |= make_launch_variables(options)
    names = ("force", "tmpdir", "start", "no_smoke", "sign", "reproduce")
    return BuildRequest(
        sites=named.sites,
        files=named.files,
        choice=read_choice(named.files),
        sites_folder=find_sites_folder(),
        options=ExecutionOptions(environment=environment, **{name: options[name] for name in names}),
        slurm=slurm,
        context=replace(make_context(**options), ignored=options["ignored"]),
        shape=shape,
        launch=(options["launcher"], options["gpu_visibility"]),
        output=options["output"],
        dry_run=options["dry_run"],
        here=options["here"],
        update=options["update"],
        parallel=options["jobs"],
        write_plan_line=partial(_write_plan_line, click.get_current_context()),
    )


def _write_plan_line(context: click.Context, site: str, file: str) -> str:
    """The command that writes the plan folder alone; several builds ask in threads, which have no context."""
    with context.scope(cleanup=False):
        return make_other_line("plan", site, file)
