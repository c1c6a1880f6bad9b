"""recipe plan: write the plan folder (the kit) and run nothing."""

from __future__ import annotations

from pathlib import Path

import click

from builder.cli.batch import shape_options
from builder.cli.build import describe
from builder.cli.inputs import choices, context_of, env_argument, load_inputs, locked_option, make_plan, site_argument
from builder.cli.show import show_findings
from builder.execute.folder import write_plan
from builder.model.finding import ConfigError, Finding, did_you_mean


@click.command("plan")
@site_argument
@env_argument
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The folder to write.")
@click.option("--show", is_flag=True, help="Print what the plan does, and write nothing.")
@click.option(
    "--print",
    "name",
    metavar="FILE",
    help="Print one file of the plan (Dockerfile, def, run/gpu.sbatch ...), and write nothing.",
)
@locked_option
@shape_options
@choices
def command(
    site: str,
    env: Path,
    output: Path | None,
    show: bool,
    name: str | None,
    nodes: int | None,
    gpus: int | None,
    **chosen: str | bool | None,
) -> None:
    """Write everything that building ENV for SITE needs into a folder.

    The folder runs by hand, also where this tool is not installed and nothing can be downloaded. With --nodes or
    --gpus the suite over so many is one job script more.
    """
    context = context_of(**chosen)
    loaded, recipe = load_inputs(site, env)
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
        click.echo(texts[path], nl=False)
        return
    show_findings(plan.findings)
    if show:
        click.echo(describe(plan, image=Path(plan.image), folder=folder))
        return
    write_plan(plan, folder, recipe_folder=Path(recipe.folder))
    click.echo(str(folder))
