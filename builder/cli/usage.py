"""click's usage errors as findings, with the command line to type instead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from builder.model.finding import Finding, nearest

# Other names of subcommands -> the name here.
MEANT = {"clean": "prune", "clear": "prune", "rm": "prune", "gc": "prune", "list": "ls"}
EVERYWHERE = ("-v", "--verbose", "-q", "--quiet", "--no-color")  # options of commands, not of the program


def usage_finding(error: click.ClickException, *, arguments: Sequence[str], commands: Sequence[str]) -> Finding:
    """Make the finding of a usage error."""
    context = getattr(error, "ctx", None)
    first = next((word for word in arguments if word in commands), "")
    path = context.command_path if context else f"recipe {first}".strip()
    message = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption):
        message = error.message.partition(" Did you mean")[0].rstrip(".").partition(" (")[0]
    message = re.sub(r"is not a valid (?:float|integer)( range)?$", "is not a number", message)
    message = message[:1].lower() + message[1:].partition(" Did you mean")[0].rstrip(".")
    instead = _instead(error, context=context, path=path)
    joint = " " if instead.endswith("?") else "; "
    fix = joint.join(filter(None, [instead, f"see `{path} --help`"]))
    return Finding(code="usage", message=message, fix=fix)


def _instead(error: click.ClickException, *, context: click.Context | None, path: str) -> str:
    """What to type instead, "" if unknown."""
    if isinstance(error, click.NoSuchOption):
        if context is not None and isinstance(context.command, click.Group) and error.option_name in EVERYWHERE:
            return f"write it after the command: `{path} COMMAND {error.option_name}`"
        near = nearest(error.option_name, known=error.possibilities or ())
        return f"did you mean '{near}'?" if near else ""
    if isinstance(error, click.MissingParameter) and context is not None:
        words = [word for word in context.command.collect_usage_pieces(context) if word != "[OPTIONS]"]
        return f"write `{' '.join([path, *words])}`"
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _value(error, kind=error.param.type)
    if isinstance(context.command if context else None, click.Group):
        assert context is not None
        known = [name for name, found in context.command.commands.items() if not found.hidden]  # type: ignore[attr-defined]
        word = re.search(r"'([^']*)'", error.format_message())
        name = word[1] if word else ""
        near = nearest(name, known=known) or MEANT.get(name, "")
        return f"did you mean `{path} {near}`?" if near in known else f"its commands: {', '.join(known)}"
    return ""


def _value(error: click.BadParameter, *, kind: click.ParamType[Any]) -> str:
    if isinstance(kind, click.Choice):
        word = re.match(r"'(.*?)' is not", error.message)
        near = nearest(word[1], known=map(str, kind.choices)) if word else ""
        return f"did you mean '{near}'?" if near else ""
    if isinstance(kind, (click.IntRange, click.FloatRange)) and kind.min is not None:
        return f"write {kind.min} or more"
    return ""
