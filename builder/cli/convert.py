"""recipe convert: make a SIF from a docker-archive."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import click

from builder.cli.help import GroupedCommand
from builder.cli.image_arguments import read_image_words
from builder.cli.inputs import account_option, add_here_option, add_trust_option, add_verbosity, make_context
from builder.cli.options import add_batch_options, add_wrong_values, check_tmpdir, make_printer, take_slurm_options
from builder.cli.output import emit
from builder.cli.terminal import Terminal
from builder.compile.image_plans import make_convert_plan, make_image_target
from builder.execute.build_options import ExecutionOptions
from builder.execute.plan_executor import execute, raise_on_failure
from builder.execute.plan_folder import lock_plan_folder
from builder.execute.preflight import GIB, check_output
from builder.execute.progress import SingleProgress
from builder.execute.report_file import explain_not_current, find_current_result
from builder.model.finding import ConfigError, Finding, Location
from builder.model.plan import Plan
from builder.model.site import Site
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
    words: tuple[str, ...], output: Path | None, force: bool, tmpdir: Path | None, here: bool, verbose: int,
    quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Convert ARCHIVE, which `docker save` wrote, to a SIF image: here, or with --submit as a job of SITE."""
    with add_wrong_values(options):
        named = read_image_words(words, what="archive", quiet=quiet)
    slurm = take_slurm_options(options, account=options["account"], sites=[named.site])
    check_tmpdir(tmpdir, jobs=slurm.submit)
    image = output or Path(f"{named.path.stem}.sif")
    check_not_inputs([("the archive", named.path)], image=image, folder=plan_folder(image))
    plan = _make_plan(named.site, named.path, account=options["account"])
    folder = plan_folder(image)
    wanted = ExecutionOptions(environment=dict(os.environ), force=force, tmpdir=tmpdir)
    if slurm.submit:
        check_jobs_possible(named.site, slurm=slurm)
    else:
        check_here(named.site, here=here, what="a conversion")
    check_jobs_ended(folder, environment=wanted.environment)
    of = {"folder": folder.resolve(), "output": image, "recipe_folder": folder}
    if not force and find_current_result(plan, **of, no_smoke=True) is not None:
        make_printer(quiet=quiet)(f"nothing to do: {image} was converted from this archive; --force converts it again")
        emit(str(image))
        return
    check_output(plan, image.resolve(), force=force, kept=None, why=partial(explain_not_current, plan, **of))
    click.get_current_context().with_resource(
        lock_plan_folder(plan, folder, recipe_folder=folder, force=force, check_jobs=check_jobs_ended)
    )
    terminal = Terminal(verbose=bool(verbose), quiet=quiet)
    if slurm.submit:
        what = Submission(plan=plan, site=named.site, kind="convert", folder=folder, output=image, options=wanted)
        display = SingleProgress(terminal.choose_progress())
        report = submit_and_follow(what, jobs=slurm, display=display, tell=make_printer(quiet=quiet))
        if report is None:
            return
    else:
        report = execute(plan, folder=folder, output=image, options=wanted, progress=terminal.choose_progress())
    terminal.report("", report)
    raise_on_failure(report)
    emit(str(image))


def _make_plan(site: Site, archive: Path, *, account: str) -> Plan:
    """The plan of a conversion; raises ConfigError for an archive whose path the engine takes for another's."""
    if ":" in str(archive) or not str(archive).isprintable():
        message = f"the archive's path '{archive}' contains a colon, which separates a tag"
        at = Location(file=str(archive))
        raise ConfigError(Finding(code="archive-path", message=message, at=at, fix="rename it"))
    target = make_image_target(site, image=str(archive), context=make_context(account=account))
    return make_convert_plan(target, archive=str(archive), archive_gib=archive.stat().st_size / GIB)
