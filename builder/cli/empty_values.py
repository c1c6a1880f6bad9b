"""Empty values on the command line, as of a shell variable that is not set, are refused, not left out in silence."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from builder.model.finding import ConfigError, Finding

WITH_MEANING = ("account",)  # --account '' is no account, whatever SBATCH_ACCOUNT says


def refuse_empty_values(command: click.Command) -> None:
    """Make a command and those below it refuse an empty path, and an empty text after an option."""
    for below in getattr(command, "commands", {}).values():
        refuse_empty_values(below)
    for param in command.params:
        guarded = getattr(param.callback, "func", None) is _refuse_text
        text = isinstance(param, click.Option) and param.type is click.STRING and param.name not in WITH_MEANING
        if text and not guarded:
            param.callback = partial(_refuse_text, param.callback)
        if isinstance(param.type, click.Path) and "convert" not in vars(param.type):
            param.type.convert = partial(_refuse_path, param.type.convert)  # type: ignore[method-assign]


def _refuse_path(convert: Any, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
    """Refuse an empty path, which pathlib takes for the current folder."""
    if value == "":
        raise click.BadParameter("a path is expected, and it is empty", ctx=ctx, param=param)
    return convert(value, param, ctx)


def _refuse_text(callback: Any, ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    given = ctx.get_parameter_source(str(param.name)) == click.core.ParameterSource.COMMANDLINE
    if given and "" in (value if isinstance(value, tuple) else (value,)):
        option = param.opts[0]
        fix = f"set the variable that it comes from, or leave '{option}' out"
        raise ConfigError(Finding(code="usage", message=f"the value of '{option}' is empty", fix=fix))
    return callback(ctx, param, value) if callback else value
