"""recipe plan: write the plan folder (the kit) and run nothing."""

from __future__ import annotations

from pathlib import Path

import click

from builder.cli.batch import shape_options
from builder.cli.build import describe
from builder.cli.help import Grouped
from builder.cli.inputs import choices, context_of, load_inputs, locked_option, make_plan, trust_option, verbosity
from builder.cli.show import echo, emit, show_findings
from builder.cli.words import Named, read_words, words_argument
from builder.execute.folder import write_plan
from builder.model.finding import BuilderError, ConfigError, Finding, did_you_mean
from builder.model.target import Context


@click.command("plan", cls=Grouped)
@words_argument
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
@click.option("-f", "--force", is_flag=True, help="Write over a plan folder that was changed by hand.")
@locked_option
@shape_options
@trust_option
@choices
@verbosity
def command(
    words: tuple[str, ...],
    output: Path | None,
    show: bool,
    name: str | None,
    nodes: int | None,
    gpus: int | None,
    jobs: int | None,
    verbose: int,
    force: bool,
    quiet: bool,
    **chosen: str | bool | None,
) -> None:
    """Write everything that building ENV for SITE needs into a folder.

    The folder runs by hand, also where this tool is not installed and nothing can be downloaded. With --nodes or
    --gpus the suite over so many is one job script more. Of several sites or files it writes a folder
    each, and of several files the Slurm arrays that run them all.
    """
    del verbose
    named, context = read_words(words), context_of(**chosen)
    if not named.single:
        if name is not None:
            raise ConfigError(
                Finding(code="usage", message="--print is for one plan", fix="name one site and one file")
            )
        shape = (nodes, gpus)
        _several(named, context=context, shape=shape, folder=output, most=jobs, show=show, force=force, quiet=quiet)
        return
    loaded, recipe = load_inputs(named.sites[0], named.files[0])
    plan = make_plan(loaded, recipe, context=context, nodes=nodes, devices=gpus)
    folder = output or Path(f"{plan.image.removesuffix('.sif')}.plan")
    if name is not None:
        texts = {file.path: file.text for file in plan.files}
        path = (
            name if name in texts else next((found for found in texts if found.endswith((f"/{name}", f".{name}"))), "")
        )
        if not path:
            fix = did_you_mean(name, known=texts, noun="its files")
            raise ConfigError(Finding(code="plan-file", message=f"the plan has no file '{name}'", fix=fix))
        emit(texts[path], end="")
        return
    if not quiet:
        show_findings(plan.findings)
    if show:
        echo(describe(plan, image=Path(plan.image), folder=folder))
        return
    write_plan(plan, folder, recipe_folder=Path(recipe.folder), force=force)
    if not quiet:
        emit(str(folder))


def _several(
    named: Named,
    *,
    context: Context,
    shape: tuple[int | None, int | None],
    folder: Path | None,
    most: int | None,
    show: bool,
    force: bool,
    quiet: bool,
) -> None:
    """A plan folder for each, and the arrays of many; one that is refused stops no other."""
    from builder.cli.many_jobs import write_arrays
    from builder.cli.one_build import ImageBuild
    from builder.cli.several import Ending, conclude, make_folder, plan_several, refusal_of, show_of

    def tell(line: str) -> None:
        if not quiet:
            echo(line)

    plans = plan_several(named, context=context, shape=shape, folder=folder, kits=True)
    if not show and folder is not None:
        make_folder(folder)
    refused: list[Ending] = []
    written: dict[str, ImageBuild] = {}
    for name, build in plans.items():
        try:
            if isinstance(build, BuilderError):
                raise build
            if not quiet:
                show_of(name, build.plan.findings)
            if show:
                echo(describe(build.plan, image=build.image, folder=build.folder))
            else:
                write_plan(build.plan, build.folder, recipe_folder=build.home, force=force)
                written[name] = build
                tell(str(build.folder))
        except BuilderError as error:
            refused.append(refusal_of(name, error))
    if written and len(named.files) > 1:
        for path in write_arrays(written, place=folder or Path(), most=most):
            tell(str(path))
    conclude(refused, table=False)
