"""recipe plan: write the plan folder and run nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from builder.cli.help import GroupedCommand
from builder.cli.input_options import add_input_options, read_choice
from builder.cli.inputs import (
    add_compile_options,
    add_ignore_option,
    add_locked_option,
    add_trust_option,
    add_verbosity,
    find_sites_folder,
    make_context,
)
from builder.cli.options import add_launch_options, refuse_account
from builder.cli.output import echo, emit
from builder.cli.targets import add_words_argument, load_sites, read_words
from builder.cli.terminal import Terminal
from builder.execute.build_options import ExecutionOptions
from builder.execute.plan_folder import check_plan_folder, write_plan
from builder.inspect.origin import compute_plan_digest, read_image_plan, read_plan_digest
from builder.model.finding import BuilderError, ConfigError, Finding, Location, suggest_name
from builder.pipeline.build import Planned, plan_builds
from builder.pipeline.own_inputs import check_own_inputs
from builder.pipeline.prepare import Refusals, check_base_file, check_jobs_ended, make_folder
from builder.pipeline.request import Build, BuildRequest, Outcome, Outcomes, make_failure


@click.command("plan", cls=GroupedCommand)
@add_words_argument
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The folder to write; of several, where they lie."
)
@click.option("--show", is_flag=True, help="Print what the plan does, and write nothing.")
@click.option(
    "--print",
    "name",
    metavar="FILE",
    help="Print one file of the plan (Dockerfile, def, run/gpu.sbatch ...), and write nothing.",
)
@click.option("-j", "--jobs", metavar="N", type=click.IntRange(1), help="Tasks at a time, in arrays of many files.")
@click.option(
    "-f",
    "--force",
    is_flag=True,
    help="Write over a plan folder that was changed by hand or that an image was built from.",
)
@add_locked_option
@add_launch_options
@add_ignore_option
@add_trust_option
@add_input_options
@add_compile_options
@add_verbosity
def run_command(
    words: tuple[str, ...], output: Path | None, show: bool, name: str | None, nodes: int | None, gpus: int | None,
    jobs: int | None, force: bool, quiet: bool, ignored: tuple[str, ...], **chosen: Any,
) -> None:  # fmt: skip
    """Write everything needed to build ENV for SITE into a folder.

    Its scripts run by hand, also where this tool is not installed and nothing can be downloaded. --nodes or --gpus add
    a job script with the whole smoke suite. Several sites or files get a folder each, several files also the Slurm
    arrays that run them all.
    """
    named = read_words(words)
    if named.note:
        echo(named.note, err=True)
    if name is not None and not named.single:
        raise ConfigError(Finding(code="usage", message="--print is for one plan", fix="name one site and one file"))
    refuse_account(load_sites(named.sites))
    request = BuildRequest(
        sites=named.sites,
        files=named.files,
        choice=read_choice(named.files),
        sites_folder=find_sites_folder(),
        context=replace(make_context(**chosen), ignored=ignored),
        options=ExecutionOptions(environment=os.environ, force=force),
        shape=(nodes, gpus),
        launch=(chosen["launcher"], chosen["gpu_visibility"]),
        output=output,
    )
    planned = plan_builds(request, what="plan folders")
    if name is not None:
        emit(_read_plan_file(planned, name), end="")
        return
    terminal = Terminal(single=named.single, quiet=quiet, notes=True)
    if not (show or named.single or output is None):
        make_folder(output)
    written, refused = _write_plans(planned, request=request, terminal=terminal, show=show)
    paths = [build.folder for build in written.values()]
    if written and len(named.files) > 1:
        from builder.pipeline.batch import write_arrays

        paths += write_arrays(written, place=output or Path(), most=jobs)
    for path in () if quiet else paths:
        emit(str(path))
    terminal.conclude(Outcomes(outcomes=refused), rows=False)


def _check_plan(build: Build, *, request: BuildRequest, writes: bool) -> None:
    """Raise all reasons to refuse a plan: its base image, and what is in the place where it `writes` one."""
    refusals = Refusals()
    if writes:
        with refusals.collect():
            check_own_inputs(build, request=request, image=False)
        with refusals.collect():
            if not (request.options.force or refusals.errors):
                check_plan_folder(build.plan, build.folder, recipe_folder=build.home, force=False)
                _check_image_of(build)
    with refusals.collect():
        check_base_file(build, environment=os.environ)
    if refusals.errors:
        raise refusals.merge()


def _write_plans(
    planned: Planned, *, request: BuildRequest, terminal: Terminal, show: bool
) -> tuple[dict[str, Build], dict[str, Outcome]]:
    """Write a folder for each plan, or with `show` print what it does; the builds, and why others were refused."""
    written: dict[str, Build] = {}
    refused: dict[str, Outcome] = {}
    for key, found in planned.items():
        try:
            build = _get_build(found, output=request.output if request.single else None)
            _check_plan(build, request=request, writes=not show)
            terminal.report_plan(key, build)
            if show:
                terminal.describe_build(build)
            else:
                force, home = request.options.force, build.home
                write_plan(build.plan, build.folder, recipe_folder=home, force=force, check_jobs=check_jobs_ended)
                written[key] = build
        except BuilderError as error:
            refused[key] = make_failure(key, error)
    return written, refused


def _check_image_of(build: Build) -> None:
    """Refuse to write over the plan folder that an image next to it was built from; raises ConfigError."""
    if build.at is not None or not build.image.exists():
        return
    made_of = read_image_plan(build.image)
    if made_of and made_of == read_plan_digest(build.folder) and made_of != compute_plan_digest(build.plan):
        message = f"the image '{build.image}' was built from the plan in '{build.folder}', and this is another plan"
        fix = "write it elsewhere with -o, or give --force to write over the folder: the image stays"
        raise ConfigError(Finding(code="folder-taken", message=message, at=Location(file=str(build.folder)), fix=fix))


def _get_build(found: Build | BuilderError, *, output: Path | None) -> Build:
    """The build of a single plan folder; raises the reason if there is none."""
    if isinstance(found, BuilderError):
        raise found
    return found if output is None else replace(found, image=Path(found.plan.image), at=output)


def _read_plan_file(planned: Planned, name: str) -> str:
    """The text of a file of the only plan; raises ConfigError for an unknown name."""
    (found,) = planned.values()
    texts = {file.path: file.text for file in _get_build(found, output=None).plan.files}
    ends = (f"/{name}", f".{name}")
    path = name if name in texts else next((path for path in texts if path.endswith(ends)), "")
    if not path:
        fix = suggest_name(name, known=texts, noun="its files")
        raise ConfigError(Finding(code="plan-file", message=f"the plan has no file '{name}'", fix=fix))
    return texts[path]
