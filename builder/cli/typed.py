"""The line that was typed, so that a suggested line keeps its options."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import click

from builder.model.text import sanitize

WORDS = "recipe.words"  # in the context of a command: the words after it
LIMIT = 400  # characters of a suggested line


def make_typed_line(arguments: Sequence[str]) -> str:
    """The line again with other arguments: each takes the place of one, more come after the last, options stay."""
    context = click.get_current_context(silent=True)
    if context is None:
        return sanitize(f"recipe build {shlex.join(arguments)}", limit=LIMIT)
    words = list(context.meta.get(WORDS, ()))
    places = list(find_arguments(context.command, words))
    rest, found = list(arguments), list[str]()
    if not places:
        found, rest = rest, []
    for at, word in enumerate(words):
        if at not in places:
            found.append(word)
            continue
        count = len(rest) if at == places[-1] else 1
        found += rest[:count]
        del rest[:count]
    return sanitize(f"{context.command_path} {shlex.join(found)}", limit=LIMIT)


def find_arguments(command: click.Command, words: Sequence[str]) -> Iterator[int]:
    """The positions of the words that are neither an option nor the value of one."""
    takes = {name for param in command.params if _takes_value(param) for name in param.opts}
    value = options = False
    for at, word in enumerate(words):
        if value:
            value = False
        elif word == "--" and not options:
            options = True  # all that follows is an argument
        elif options or word == "-" or not word.startswith("-"):
            yield at
        elif word.startswith("--"):
            value = word in takes
        else:
            value = next((not word[end:] for end in range(2, len(word) + 1) if f"-{word[end - 1]}" in takes), False)


def _takes_value(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and not (param.is_flag or param.count)
