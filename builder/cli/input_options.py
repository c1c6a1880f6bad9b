"""Options that say what an environment file is, and what of a project is taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from builder.model.recipe import STDIN, InputChoice, InputKind

CHOICE = "recipe.choice"  # in the context of a command: what was chosen
F = TypeVar("F", bound=Callable[..., object])


def add_input_options(command: F) -> F:
    """Add the options of commands that read environment files; `read_choice` returns what was given."""
    kinds = click.Choice(get_args(InputKind))
    for name, field, text, more in (
        ("--input-kind", "kind", "What ENV is, where its name does not say it.", {"type": kinds}),
        ("--install-project", "project", "Install the project of a pyproject.toml, too.", {"is_flag": True}),
        ("--environment", "environment", "Environment of a pixi workspace.", {"metavar": "NAME"}),
        ("--group", "groups", "Dependency group of a pyproject.toml; may be repeated.", {"metavar": "NAME"}),
        ("--extra", "extras", "Extra of a pyproject.toml; may be repeated.", {"metavar": "NAME"}),
    ):
        several = field in ("groups", "extras")
        command = click.option(name, field, help=text, multiple=several, expose_value=False, callback=_keep, **more)(
            command
        )
    return command


def _keep(context: click.Context, param: click.Parameter, value: Any) -> Any:
    if param.name == "environment" and value and (Path(value).is_file() or value.endswith((".yml", ".yaml"))):
        raise click.NoSuchOption("--environment", ctx=context)  # ENV is an argument
    if value:
        context.meta.setdefault(CHOICE, {})[param.name] = value
    return value


def read_choice(files: Sequence[Path]) -> InputChoice:
    """What the options of the command chose; standard input is read where it is one of the files."""
    stdin = None
    if Path(STDIN) in files:
        from builder.cli.standard_input import read_standard_input

        stdin = read_standard_input()
    return InputChoice(stdin=stdin, **click.get_current_context().meta.get(CHOICE, {}))
