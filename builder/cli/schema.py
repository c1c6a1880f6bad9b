"""recipe schema: the JSON Schema of a file, for editors and for checks without recipe."""

from __future__ import annotations

import os
from pathlib import Path

import click

from builder.cli.inputs import add_plain_verbosity
from builder.cli.output import echo, emit
from builder.model.finding import ConfigError, Finding, find_nearest
from builder.parse.site import PACKAGE
from builder.system.files import write_atomic

FOLDER = PACKAGE / "data" / "schema"
KINDS = ("environment", "site", "config")
LINE = "# yaml-language-server: $schema={}\n"


@click.command("schema")
@click.argument("kind", required=False, metavar="KIND")
@add_plain_verbosity
def run_command(kind: str | None) -> None:
    """Print the JSON Schema (draft 2020-12) of a KIND of file: environment, site or config.

    An editor completes and checks the keys of a YAML file by it. `recipe init` writes it next to the file, with the
    line by which the YAML language server of editors finds it.
    """
    if kind not in KINDS:
        near = find_nearest(kind or "", known=KINDS) or KINDS[0]
        message = f"there is no schema '{kind}'" if kind else "no kind of file is named"
        others = " or ".join(f"`recipe schema {name}`" for name in KINDS if name != near)
        raise ConfigError(Finding(code="usage", message=message, fix=f"`recipe schema {near}`, {others}"))
    emit(_read(kind), end="")


def add_schema(text: str, *, kind: str, target: Path) -> str:
    """Write the schema next to a file, where nothing has its name, and return the text with a line that names it.

    It is the second line, below the comment that says what the file is: the YAML language server reads the comments
    before the first key and no others. The name is relative, so that both files can be moved, shared and committed
    together. Raises OSError.
    """
    place = target.parent / f".recipe-{kind}.schema.json"
    if not os.path.lexists(place):
        write_atomic(place, _read(kind))
        echo(f"{place} is for your editor, which completes and checks the keys with it", err=True)
    head, _, rest = text.partition("\n")
    return f"{head}\n{LINE.format(place.name)}{rest}"


def _read(kind: str) -> str:
    return (FOLDER / f"{kind}.json").read_text(encoding="utf-8")
