"""recipe fetch: download and compile what a build needs before it runs."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from builder.cli.help import GroupedCommand
from builder.cli.input_options import add_input_options, read_choice
from builder.cli.inputs import (
    add_decision_options,
    add_ignore_option,
    add_locked_option,
    add_verbosity,
    find_sites_folder,
    make_context,
)
from builder.cli.options import check_tmpdir
from builder.cli.output import echo
from builder.cli.targets import add_words_argument, read_words
from builder.cli.terminal import Terminal
from builder.execute.build_options import ExecutionOptions
from builder.execute.progress import Progress
from builder.execute.uv_values import check_uv_values
from builder.model.finding import BuilderError
from builder.pipeline.build import plan_builds
from builder.pipeline.request import Build, BuildRequest, Outcome, Outcomes, make_failure


@click.command("fetch", cls=GroupedCommand)
@add_words_argument
@click.option(
    "--tmpdir", type=click.Path(path_type=Path), help="Temporary folder.", envvar="RECIPE_TMPDIR", show_envvar=True
)
@add_ignore_option
@add_locked_option
@add_input_options
@add_decision_options
@add_verbosity
def run_command(
    words: tuple[str, ...], tmpdir: Path | None, verbose: int, quiet: bool, ignored: tuple[str, ...], **chosen: Any
) -> None:
    """Download and compile what the image of ENV for SITE needs: base image, conda and Python packages.

    `recipe build --offline` then needs no server: fetch on a login node, build in a job without a network. Both
    need the same RECIPE_CACHE_DIR. Only the backend `layers` can do it: other engines download while they build.

    Exits with 6 for packages that a build would refuse.
    """
    named = read_words(words)
    if named.note:
        echo(named.note, err=True)
    check_tmpdir(tmpdir)
    check_uv_values(os.environ)
    request = BuildRequest(
        sites=named.sites,
        files=named.files,
        choice=read_choice(named.files),
        sites_folder=find_sites_folder(),
        context=replace(make_context(**chosen), ignored=ignored),
        options=ExecutionOptions(environment=dict(os.environ), tmpdir=tmpdir),
    )
    terminal = Terminal(single=request.single, verbose=bool(verbose), quiet=quiet)
    progress = terminal.choose_progress()
    # One after the other: they share what they download; one that fails does not stop the others.
    planned = plan_builds(request, what="plan folders")
    outcomes = {
        name: _fetch(name, found, options=request.options, progress=progress) for name, found in planned.items()
    }
    terminal.conclude(Outcomes(outcomes=outcomes))


def _fetch(name: str, found: Build | BuilderError, *, options: ExecutionOptions, progress: Progress) -> Outcome:
    from builder.execute.fetch import fetch

    started = time.monotonic()
    try:
        if isinstance(found, BuilderError):
            raise found
        backends = found.site.build.backends
        fetch(found.plan, backends=backends, recipe_folder=found.home, options=options, progress=progress)
    except BuilderError as error:
        return make_failure(name, error, seconds=time.monotonic() - started)
    return Outcome(name=name, word="fetched", seconds=time.monotonic() - started)
