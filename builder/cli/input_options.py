"""Options that say what an environment file is, and what of a project is taken."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from builder.model.recipe import STDIN, InputChoice, InputKind
from builder.parse.recipe import UV_LOCK

CHOICE = "recipe.choice"  # in the context of a command: what was chosen
F = TypeVar("F", bound=Callable[..., object])


def add_input_options(command: F) -> F:
    """Add the options of commands that read environment files; `read_choice` returns what was given."""
    # uv reads a lock of its own by its name alone.
    names = [kind for kind in get_args(InputKind) if kind != "uv-lock"]
    kinds = {"type": click.Choice(names), "metavar": "KIND"}
    what = f"What ENV is, where its name does not say it: {', '.join(names)}."
    for name, field, text, more in (
        ("--input-kind", "kind", what, kinds),
        ("--install-project", "project", "Install the project of a pyproject.toml, too.", {"is_flag": True}),
        ("--environment", "environment", "Environment of a pixi workspace.", {"metavar": "NAME"}),
        ("--group", "groups", "Dependency group of a pyproject.toml or a lock; may be repeated.", {"metavar": "NAME"}),
        ("--extra", "extras", "Extra of a pyproject.toml or a lock; may be repeated.", {"metavar": "NAME"}),
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
    chosen = click.get_current_context().meta.get(CHOICE, {})
    if Path(STDIN) in files:
        from builder.cli.standard_input import read_standard_input

        stdin = read_standard_input()
    choice = InputChoice(stdin=stdin, **chosen)
    locks = [path for path in files if path.name == UV_LOCK and path.is_file()]
    if not locks:
        return choice
    from builder.lock.uv_export import export_lock  # few environments are a lock of uv

    exports = {str(path): export_lock(path, choice=choice, environment=os.environ) for path in locks}
    return replace(choice, exports=exports)
