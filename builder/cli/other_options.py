"""Options that a command does not have and another one has: whether a value follows, and what does the same here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

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
