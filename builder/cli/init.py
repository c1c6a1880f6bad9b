"""recipe init: an example environment file to start from."""

from __future__ import annotations

import os
from pathlib import Path

import click

from builder.cli.inputs import add_plain_verbosity
from builder.cli.output import echo, emit
from builder.cli.typed import quote
from builder.model.finding import ConfigError, Finding, find_nearest
from builder.parse.site import find_data_folder
from builder.system.files import write_atomic

RECIPES = find_data_folder("recipes")


@click.command("init")
@click.argument("example", default="mnist")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The file to write; default: the example's name, here."
)
@click.option("--list", "listed", is_flag=True, help="List the examples.")
@click.option("-f", "--force", is_flag=True, help="Replace a file that exists.")
@add_plain_verbosity
def run_command(example: str, output: Path | None, listed: bool, force: bool) -> None:
    """Write the example environment file EXAMPLE (default: mnist)."""
    found = {path.stem: path for path in sorted(RECIPES.iterdir()) if path.suffix in (".yml", ".txt")}
    if listed:
        for name, path in found.items():
            first = path.read_text(encoding="utf-8").splitlines()[0]
            echo(f"{name}: {first.removeprefix('# ')}")
        return
    if example not in found:
        near = find_nearest(example, known=found)
        fix = f"did you mean `recipe init {near}`?" if near else f"`recipe init {next(iter(found))}`"
        fix += f"{'' if near else ';'} examples: {', '.join(sorted(found))}"
        raise ConfigError(Finding(code="init-unknown", message=f"there is no example '{example}'", fix=fix))
    source = found[example]
    target = output or Path(source.name)
    if os.path.lexists(target) and (target.is_dir() or not force):
        free = _free(target / source.name if target.is_dir() else target)
        line = f"`recipe init {example} -o {quote(str(free))}`"
        fix = line if target.is_dir() else f"{line}, or add --force to replace it"
        message = f"'{target}' is a folder" if target.is_dir() else f"'{target}' exists already"
        raise ConfigError(Finding(code="init-exists", message=message, fix=fix))
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
        raise OSError(error.errno, error.strerror, str(target)) from None  # not the draft, which is ours


def _free(target: Path) -> Path:
    """A name that nothing has yet: the file's own, else NAME-2.yml ..."""
    number, found = 1, target
    while os.path.lexists(found):
        number += 1
        found = target.with_name(f"{target.stem}-{number}{target.suffix or '.yml'}")
    return found
