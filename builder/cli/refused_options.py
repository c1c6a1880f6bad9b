"""Options that a command does not have and another one has, and values that no command takes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any

import click

from builder.model.finding import ConfigError, Finding, Location
from builder.model.text import sanitize

# The commands that write paths into scripts, records and reports, which are UTF-8, and `check`, which says what a build
# would say; the others only read.
WRITERS = (
    "build", "check", "plan", "lock", "fetch", "bundle", "smoke", "run", "shell", "module", "kernel", "convert",
    "status", "init",
)  # fmt: skip
PLACES = ("TMPDIR", "RECIPE_TMPDIR", "RECIPE_CACHE_DIR", "XDG_CACHE_HOME")
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


def check_places(command: str, words: Sequence[str]) -> None:
    """Raise ConfigError where a command would write to, or about, a path that is not UTF-8.

    Nor can a container be given each temporary folder. Links are followed: records hold the paths without them.
    """
    if command not in WRITERS:
        return
    own = words[: words.index("--")] if command == "run" and "--" in words else words  # the rest is another program's
    values = [word if word[:1] != "-" else word.partition("=")[2] if word[:2] == "--" else word[2:] for word in own]
    named = [(name, text) for name in PLACES if (text := os.environ.get(name))]
    for variable, text in [("", "."), *(("", value) for value in values), *named]:
        place, why = os.path.realpath(text.replace("\0", "")), ""
        if any("\ud800" <= letter <= "\udfff" for letter in place):
            why = "is not UTF-8 text"
        elif variable == "TMPDIR" and command in ("smoke", "run", "shell") and {":", ","} & set(place):
            # The scripts are in a folder there; the bind option of engines splits at both (Apptainer 1.4.5).
            why = "contains a colon or a comma, and no container can be given a folder in it"
        if why:
            raise _make_place_error(place, why=why, variable=variable)


def _make_place_error(place: str, *, why: str, variable: str) -> ConfigError:
    shown = sanitize(os.fsencode(place).decode(errors="backslashreplace"), limit=400)
    fix = f"set {variable} to another folder" if variable else "rename it with `mv`, or choose another place"
    at = Location(key=variable) if variable else Location(file=shown)
    return ConfigError(Finding(code="path-refused", message=f"the path '{shown}' {why}", at=at, fix=fix))


# Commands that write files without a choice of their place: where that is.
IN_PLACE = {
    "lock": "the lock is written next to ENV, as NAME.lock.yml",
    "fetch": "the files are written into the cache, which RECIPE_CACHE_DIR names",
    "cache": "it writes no file",
}
SHAPES = {".json": "json", ".sarif": "sarif"}  # ending of a file -> format


def list_value_options(root: click.Command) -> frozenset[str]:
    """The options of all commands that take a value."""
    found = set[str]()
    context = click.Context(root)
    if isinstance(root, click.Group):
        for name in root.list_commands(context):
            command = root.get_command(context, name)
            found |= list_value_options(command) if command is not None else set()
    options = (param for param in root.params if isinstance(param, click.Option))
    return frozenset(found | {name for one in options if not (one.is_flag or one.count) for name in one.opts})


def suggest_redirection(command: click.Command, *, path: str, words: Sequence[str], value: str) -> str:
    """What writes the output of a command without -o to a file; `words` are the line without the option."""
    name = path.split()[1] if " " in path else ""
    line = f"{path} {shlex.join(words)}".strip()
    if name in IN_PLACE and path != "recipe cache ls":
        return f"{IN_PLACE[name]}: `{line}`"
    known = {option: param for param in command.params for option in param.opts}
    if "--sbom" in known and value and not {"--sbom", "--gpu"} & {*words} and _is_sbom(value):
        return f"`{line} --sbom {shlex.quote(value)}` writes an SBOM"
    shape = next((shape for end, shape in SHAPES.items() if value.endswith(end)), "")
    kind = known["--format"].type if "--format" in known else None
    asked = any(word.startswith(("--format", "--json")) for word in words)
    if shape and not asked and isinstance(kind, click.Choice) and shape in kind.choices:
        line += f" --format {shape}"
    return f"it prints to standard output: `{line} > {shlex.quote(value or 'FILE')}`"


def _is_sbom(value: str) -> bool:
    return any(word in value.lower() for word in ("sbom", "cdx", "cyclonedx", "bom.json"))
