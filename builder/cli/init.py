"""recipe init: an example environment file to start from."""

from __future__ import annotations

import os
from pathlib import Path

import click

from builder.cli.inputs import add_plain_verbosity
from builder.cli.output import echo, emit
from builder.model.bundled import find_data_folder
from builder.model.finding import ConfigError, Finding, suggest_name
from builder.system.files import write_atomic

RECIPES = find_data_folder("recipes")


@click.command("init")
@click.argument("example", default="mnist")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The file to write; default: the example's name, here."
)
@click.option("--list", "listed", is_flag=True, help="List the examples.")
@add_plain_verbosity
def run_command(example: str, output: Path | None, listed: bool) -> None:
    """Write the example environment file EXAMPLE (default: mnist)."""
    found = {path.stem: path for path in sorted(RECIPES.iterdir()) if path.suffix in (".yml", ".txt")}
    if listed:
        for name, path in found.items():
            first = path.read_text(encoding="utf-8").splitlines()[0]
            echo(f"{name}: {first.removeprefix('# ')}")
        return
    if example not in found:
        fix = suggest_name(example, known=found, noun="examples")
        raise ConfigError(Finding(code="init-unknown", message=f"there is no example '{example}'", fix=fix))
    source = found[example]
    target = output or Path(source.name)
    if os.path.lexists(target):
        fix = "choose another name with -o"
        raise ConfigError(Finding(code="init-exists", message=f"'{target}' exists already", fix=fix))
    _copy(source, target)
    for extra in RECIPES.glob(f"{source.stem}-*.*style"):
        if not os.path.lexists(target.parent / extra.name):
            _copy(extra, target.parent / extra.name)
    emit(str(target))


def _copy(source: Path, target: Path) -> None:
    """Copy an example, whole or not at all; raises OSError."""
    try:
        write_atomic(target, source.read_text(encoding="utf-8"))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from None
