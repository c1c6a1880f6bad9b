"""recipe convert: make a SIF from a docker-archive."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from builder.cli.help import GroupedCommand
from builder.cli.image_arguments import read_image_words
from builder.cli.inputs import account_option, add_here_option, add_trust_option, add_verbosity, make_plain_context
from builder.cli.options import add_batch_options, add_wrong_values, check_tmpdir, make_printer, take_slurm_options
from builder.cli.output import emit, uses_color
from builder.cli.terminal import Terminal
from builder.compile.image_plans import make_convert_plan, make_image_target
from builder.execute.build_options import ExecutionOptions
from builder.execute.executor import execute, raise_on_failure
from builder.execute.plan_folder import lock_plan_folder
from builder.execute.preflight import GIB, check_output
from builder.execute.progress import SingleProgress, choose_progress
from builder.execute.up_to_date import explain_not_current, find_current_result
from builder.model.finding import ConfigError, Finding, Location
from builder.pipeline.batch import Submission, submit_and_follow
from builder.pipeline.own_inputs import check_not_inputs
from builder.pipeline.prepare import check_here, check_jobs_ended, check_jobs_possible
from builder.system.layout import plan_folder


@click.command("convert", cls=GroupedCommand)
@click.argument("words", nargs=-1, metavar="[SITE] ARCHIVE")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The image; default: NAME.sif here.")
@click.option("-f", "--force", is_flag=True, help="Replace an output that exists.")
@click.option("--tmpdir", type=click.Path(path_type=Path), help="Temporary folder.", envvar="RECIPE_TMPDIR")
@add_trust_option
@add_here_option
@add_batch_options
@account_option
@add_verbosity
def run_command(
    words: tuple[str, ...],
    output: Path | None,
    force: bool,
    tmpdir: Path | None,
    here: bool,
    verbose: int,
    quiet: bool,
    **options: Any,
) -> None:
    """Convert ARCHIVE, which `docker save` wrote, to a SIF image: here, or with --submit as a job of SITE."""
    with add_wrong_values(options):
        named = read_image_words(words, what="archive", quiet=quiet)
    slurm = take_slurm_options(options, account=options["account"], sites=[named.site])
    check_tmpdir(tmpdir, jobs=slurm.submit)
    loaded, path = named.site, named.path
    if ":" in str(path) or not str(path).isprintable():
        message = f"the archive's path '{path}' contains a colon, which separates a tag"
        raise ConfigError(Finding(code="archive-path", message=message, at=Location(file=str(path)), fix="rename it"))
    image = output or Path(f"{path.stem}.sif")
    check_not_inputs([("the archive", path)], image=image, folder=plan_folder(image))
    target = make_image_target(loaded, image=str(path), context=make_plain_context(options["account"]))
    plan = make_convert_plan(target, archive=str(path), archive_gib=path.stat().st_size / GIB)
    folder = plan_folder(image)
    environment = dict(os.environ)
    wanted = ExecutionOptions(environment=environment, force=force, tmpdir=tmpdir)
    progress = choose_progress(
        sys.stderr, verbose=bool(verbose), quiet=quiet, color=uses_color(), environment=environment
    )
    if slurm.submit:
        check_jobs_possible(loaded, slurm=slurm)
    else:
        check_here(loaded, here=here, what="a conversion")
    check_jobs_ended(folder, environment=environment)
    of = {"folder": folder.resolve(), "output": image, "recipe_folder": folder}
    if not force and find_current_result(plan, **of, no_smoke=True) is not None:
        make_printer(quiet=quiet)(f"nothing to do: {image} was converted from this archive; --force converts it again")
        emit(str(image))
        return
    check_output(plan, image.resolve(), force=force, kept=None, why=partial(explain_not_current, plan, **of))
    click.get_current_context().with_resource(
        lock_plan_folder(plan, folder, recipe_folder=folder, force=force, check_jobs=check_jobs_ended)
    )
    if slurm.submit:
        what = Submission(plan=plan, site=loaded, kind="convert", folder=folder, output=image, options=wanted)
        report = submit_and_follow(what, jobs=slurm, display=SingleProgress(progress), tell=make_printer(quiet=quiet))
        if report is None:
            return
    else:
        report = execute(plan, folder=folder, output=image, options=wanted, progress=progress)
    Terminal(quiet=quiet).report("", report)
    raise_on_failure(report)
    emit(str(image))
