"""recipe convert: make a SIF from a docker-archive, or a folder of wrappers from an image or a folder."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from builder.cli.help import GroupedCommand
from builder.cli.image_arguments import read_image_words
from builder.cli.inputs import (
    account_option,
    add_here_option,
    add_trust_option,
    add_verbosity,
    find_sites_folder,
    make_context,
)
from builder.cli.options import add_batch_options, add_wrong_values, check_tmpdir, make_printer, take_slurm_options
from builder.cli.output import emit
from builder.cli.settings import choose_account
from builder.cli.terminal import Terminal
from builder.compile.image_plans import make_convert_plan, make_image_target
from builder.execute.build_options import ExecutionOptions
from builder.execute.plan_executor import execute, raise_on_failure
from builder.execute.plan_folder import lock_plan_folder
from builder.execute.preflight import GIB, check_output, find_programs
from builder.execute.progress import SingleProgress
from builder.execute.report_file import explain_not_current, find_current_result
from builder.model.finding import ConfigError, Finding, Location, UnsupportedError
from builder.model.plan import Plan
from builder.model.site import Site
from builder.parse.site import find_site_files, load_site
from builder.pipeline.batch import Submission, submit_and_follow
from builder.pipeline.own_inputs import check_not_inputs
from builder.pipeline.prepare import check_here, check_jobs_ended, check_jobs_possible
from builder.pipeline.request import SlurmOptions
from builder.system.layout import plan_folder


@click.command("convert", cls=GroupedCommand)
@click.argument("words", nargs=-1, metavar="[SITE] ARCHIVE")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The image; default: NAME.sif here; of wrappers the folder NAME-tykky.",
)
@click.option(
    "--wrap",
    "programs",
    metavar="BIN",
    multiple=True,
    help="Make wrappers (tykky) that start BIN of an image or folder: a program, or all of a folder of it.",
)
@click.option("-f", "--force", is_flag=True, help="Replace an output that exists.")
@click.option("--tmpdir", type=click.Path(path_type=Path), help="Temporary folder.", envvar="RECIPE_TMPDIR")
@add_trust_option
@add_here_option
@add_batch_options
@account_option
@add_verbosity
def run_command(
    words: tuple[str, ...], output: Path | None, programs: tuple[str, ...], force: bool, tmpdir: Path | None,
    here: bool, verbose: int, quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Convert ARCHIVE, which `docker save` wrote, to a SIF image: here, or with --submit as a job of SITE.

    With --wrap an image or a folder, such as a conda environment made elsewhere, becomes a folder whose bin/ starts its
    programs in a container.
    """
    with add_wrong_values(options):
        named = read_image_words(words, what="image" if programs else "archive", quiet=quiet)
    slurm = take_slurm_options(options, account=options["account"], sites=[named.site])
    check_tmpdir(tmpdir, jobs=slurm.submit)
    kind = "archive" if not programs else "folder" if named.path.is_dir() else "image"
    image = output or Path(f"{_name(named.path)}-tykky" if programs else f"{named.path.stem}.sif")
    check_not_inputs([(f"the {kind}", named.path)], image=image, folder=plan_folder(image))
    make = partial(_make_wrap_plan, programs=programs) if programs else _make_plan
    plan = make(named.site, named.path, account=options["account"])
    folder = plan_folder(image)
    wanted = ExecutionOptions(environment=dict(os.environ), force=force, tmpdir=tmpdir)
    if slurm.submit:
        check_jobs_possible(named.site, slurm=slurm)
    else:
        check_here(named.site, here=here, what="a conversion")
    check_jobs_ended(folder, environment=wanted.environment)
    of = {"folder": folder.resolve(), "output": image, "recipe_folder": folder}
    if not force and find_current_result(plan, **of, no_smoke=True) is not None:
        make_printer(quiet=quiet)(f"nothing to do: {image} was made from this {kind}; --force makes it again")
        emit(str(image))
        return
    why = partial(explain_not_current, plan, **of)
    check_output(plan, image.resolve(), force=force, kept=None, folder=of["folder"], named=image, why=why)
    if not slurm.submit:
        find_programs(plan.steps, environment=wanted.environment)  # before there is a plan folder
    click.get_current_context().with_resource(
        lock_plan_folder(plan, folder, recipe_folder=folder, force=force, check_jobs=check_jobs_ended)
    )
    what = Submission(plan=plan, site=named.site, kind="convert", folder=folder, output=image, options=wanted)
    _carry_out(what, slurm=slurm, terminal=Terminal(verbose=bool(verbose), quiet=quiet), quiet=quiet)


def _carry_out(what: Submission, *, slurm: SlurmOptions, terminal: Terminal, quiet: bool) -> None:
    """Run the step here or as a job, and say what came of it; raises StepError."""
    if slurm.submit:
        display = SingleProgress(terminal.choose_progress())
        report = submit_and_follow(what, jobs=slurm, display=display, tell=make_printer(quiet=quiet))
        if report is None:
            return
    else:
        progress = terminal.choose_progress()
        report = execute(what.plan, folder=what.folder, output=what.output, options=what.options, progress=progress)
    terminal.report("", report)
    raise_on_failure(report)
    emit(str(what.output))


def _make_plan(site: Site, archive: Path, *, account: str | None) -> Plan:
    """The plan of a conversion; raises ConfigError for an archive whose path the engine takes for another's."""
    if ":" in str(archive) or not str(archive).isprintable():
        message = f"the archive's path '{archive}' contains a colon, which separates a tag"
        at = Location(file=str(archive))
        raise ConfigError(Finding(code="archive-path", message=message, at=at, fix="rename it"))
    target = make_image_target(
        site, image=str(archive), context=make_context(account=choose_account(account, site=site.name))
    )
    return make_convert_plan(target, archive=str(archive), archive_gib=archive.stat().st_size / GIB)


def _make_wrap_plan(site: Site, path: Path, *, programs: tuple[str, ...], account: str) -> Plan:
    """The plan of wrappers; raises ConfigError, and UnsupportedError for a site without tykky."""
    from builder.compile.wrap_plans import WrapSource, make_wrap_plan
    from builder.inspect.wrap_source import check_plain, check_programs, read_installation

    _check_site(site)
    programs = tuple(dict.fromkeys(one for word in programs for one in word.split(",") if one))
    for what, word in [("what is wrapped", str(path)), *(("a program", word) for word in programs)]:
        check_plain(word, what=what)
    wrapped = WrapSource(path=str(path), programs=programs, gib=path.stat().st_size / GIB)
    if path.is_dir():
        found = read_installation(path, programs=programs)
        wrapped = replace(wrapped, folder=True, prefixes=found.prefixes, python=found.python, gib=found.gib)
    else:
        check_programs(path, programs=programs)
    target = make_image_target(site, image=str(path), context=make_context(account=account), folder=True)
    named = replace(target.recipe, name=_name(path))
    return make_wrap_plan(replace(target, recipe=named), wrapped)


def _check_site(site: Site) -> None:
    if "tykky" in site.build.backends:
        return
    known = find_site_files(find_sites_folder())
    able = [name for name in known if "tykky" in load_site(name, folder=find_sites_folder()).build.backends]
    message = f"the site '{site.name}' has no tykky, which makes wrappers"
    fix = f"name a site that has it: {', '.join(able)}" if able else "add it to `build.backends` of a site of your own"
    raise UnsupportedError(Finding(code="backend", message=message, fix=fix))


def _name(path: Path) -> str:
    return path.name if path.is_dir() else path.stem
