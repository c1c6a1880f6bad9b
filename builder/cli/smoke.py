"""recipe smoke: the smoke test in an image that exists."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click

from builder import __version__
from builder.cli.inputs import sites_folder, verbosity
from builder.cli.show import use_color
from builder.compile.plan import smoke_plan
from builder.execute.folder import write_plan
from builder.execute.progress import choose_progress
from builder.execute.smoke import test_image
from builder.model.catalog import load_site
from builder.model.finding import ConfigError, Finding, SmokeError
from builder.model.recipe import Workload
from builder.model.report import SmokeCheck


@click.command("smoke")
@click.argument("site")
@click.argument("image", type=click.Path(path_type=Path))
@click.option("--data", type=click.Path(path_type=Path), help="Folder with MNIST's IDX files; default: drawn digits.")
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    type=click.Choice(["mnist", "ddp"]),
    help="Only this one; may be repeated.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder for scripts, logs and results; default: none is kept.",
)
@verbosity
def command(
    site: str,
    image: Path,
    data: Path | None,
    workloads: tuple[Workload, ...],
    output: Path | None,
    verbose: int,
    quiet: bool,
    no_color: bool,
) -> None:
    """Train in IMAGE on this machine, as SITE would run it, and judge the numbers.

    Leaves with 6 when the test fails. On a machine without the site's GPUs it trains on the CPU, and says so.
    """
    loaded = load_site(site, folder=sites_folder())
    environment = dict(os.environ)
    environment["RECIPE_IMAGE"] = str(_existing(image, what="image"))
    if data is not None:
        environment["RECIPE_MNIST"] = str(_existing(data, what="data folder"))
    plan = smoke_plan(
        loaded,
        image=environment["RECIPE_IMAGE"],
        tool=f"recipe {__version__}",
        folder_image=image.is_dir() and (image / "bin").is_dir(),
        workloads=workloads or ("mnist", "ddp"),
    )
    progress = choose_progress(
        sys.stderr, verbose=bool(verbose), quiet=quiet, color=use_color(wanted=not no_color), environment=environment
    )
    with tempfile.TemporaryDirectory(prefix="recipe-smoke-") as scratch:
        folder = output or Path(scratch) / "plan"
        write_plan(plan, folder, recipe_folder=folder)
        checks = test_image(plan, folder=folder, environment=environment, progress=progress)
    for line in check_lines(checks):
        click.echo(line)
    bad = [check for check in checks if not check.ok]
    click.echo("verdict: " + ("pass" if not bad else "FAIL"))
    if bad:
        message = f"the image '{image}' failed: {'; '.join(f'{check.name}: {check.measured}' for check in bad)}"
        raise SmokeError(
            Finding(code="smoke-failed", message=message, fix="read the lines above; keep the logs with -o")
        )


def check_lines(checks: tuple[SmokeCheck, ...]) -> list[str]:
    """One line a check."""
    return [
        f"{'ok  ' if check.ok else 'FAIL'}  {check.name}: {check.measured} (expected {check.expected})"
        for check in checks
    ]


def _existing(path: Path, *, what: str) -> Path:
    if not path.exists():
        raise ConfigError(
            Finding(code="path-missing", message=f"the {what} '{path}' does not exist", fix="check the path")
        )
    return path.resolve()
