"""recipe fetch: what a build needs from elsewhere, downloaded and compiled ahead of it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from builder.cli.inputs import choices, context_of, load_inputs, locked_option, verbosity
from builder.cli.one_build import ImageBuild, planned
from builder.cli.show import use_color
from builder.cli.words import Named, read_words, words_argument
from builder.execute.options import Options
from builder.execute.progress import Progress, choose_progress
from builder.model.finding import BuilderError
from builder.model.target import Context


@click.command("fetch")
@words_argument
@click.option(
    "--tmpdir", type=click.Path(path_type=Path), help="Temporary folder.", envvar="RECIPE_TMPDIR", show_envvar=True
)
@locked_option
@choices
@verbosity
def command(words: tuple[str, ...], tmpdir: Path | None, verbose: int, quiet: bool, **chosen: Any) -> None:
    """Get what images of ENV for SITE are made of: base image, conda and Python packages, downloaded and compiled.

    `recipe build --offline` then asks no server: fetch on a login node, build in a job on nodes without a network. Both
    need the same RECIPE_CACHE_DIR. It is for layers (--backend layers): other engines download while they build.
    """
    named, context = read_words(words), context_of(**chosen)
    progress = choose_progress(
        sys.stderr, verbose=bool(verbose), quiet=quiet, color=use_color(), environment=os.environ
    )
    options = Options(environment=dict(os.environ), tmpdir=tmpdir)
    if named.single:
        _fetch(
            planned(*load_inputs(named.sites[0], named.files[0]), context=context), options=options, progress=progress
        )
        return
    _fetch_several(named, context=context, options=options, progress=progress, quiet=quiet)


def _fetch(build: ImageBuild, *, options: Options, progress: Progress) -> None:
    from builder.execute.fetch import fetch

    fetch(build.plan, recipe_folder=build.home, options=options, progress=progress)


def _fetch_several(named: Named, *, context: Context, options: Options, progress: Progress, quiet: bool) -> None:
    """One after the other: they share what they download; one that fails stops no other."""
    from builder.cli.several import Ending, Shown, conclude, plan_several, refusal_of

    endings = []
    for name, build in plan_several(named, context=context, shape=(None, None), folder=None, kits=True).items():
        started = time.monotonic()
        try:
            if isinstance(build, BuilderError):
                raise build
            _fetch(build, options=options, progress=progress)
        except BuilderError as error:
            endings.append(refusal_of(name, error, seconds=time.monotonic() - started))
        else:
            endings.append(Ending(name=name, word="fetched", seconds=time.monotonic() - started))
    conclude(endings, shown=Shown(quiet=quiet))
