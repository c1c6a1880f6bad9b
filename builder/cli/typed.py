"""The line that was typed, so that a suggested line keeps its options."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import click

from builder.model.text import sanitize

WORDS = "recipe.words"  # in the context of a command: the words after it
LIMIT = 400  # characters of a suggested line
OWN = ("output", "jobs", "force", "trust", "quiet", "verbose")  # options that mean another thing, or say nothing, there


@dataclass(frozen=True, kw_only=True)
class TypedLine:
    """A command with its path, and the words after it; `places` are those of its arguments, `mark` that of `--`."""

    path: str
    words: tuple[str, ...]
    places: tuple[int, ...]
    mark: int
    takes: frozenset[str]  # options with a value

    @classmethod
    def read(cls) -> TypedLine:
        """What was typed; outside a command a build without words."""
        context = click.get_current_context(silent=True)
        if context is None:
            return cls(path="recipe build", words=(), places=(), mark=0, takes=frozenset())
        words = tuple(context.meta.get(WORDS, ()))
        places = tuple(find_arguments(context.command, words))
        mark = next((at for at, word in enumerate(words) if word == "--" and at not in places), len(words))
        takes = frozenset(name for param in context.command.params if _takes_value(param) for name in param.opts)
        return cls(path=context.command_path, words=words, places=places, mark=mark, takes=takes)

    def write(self, *words: str) -> str:
        """The line with these words."""
        return sanitize(f"{self.path} {shlex.join(words)}".strip(), limit=LIMIT)


def make_typed_line(arguments: Sequence[str], *, without: Sequence[str] = ()) -> str:
    """The line again with other arguments: each takes the place of one, more come after the last.

    Options stay, but for those in `without` and their values.
    """
    typed = TypedLine.read()
    gone = set(_find_options(typed, without))
    rest, found = list(arguments), list[str]()
    if not typed.places:
        found, rest = rest, []
    for at, word in enumerate(typed.words):
        if at not in typed.places:
            found += [] if at in gone else [word]
            continue
        count = len(rest) if at == typed.places[-1] else 1
        found += rest[:count]
        del rest[:count]
    return typed.write(*found)


def quote(*words: str) -> str:
    """Words for a suggested line, as a shell takes them."""
    return sanitize(shlex.join(words), limit=LIMIT)


def write_path(path: object) -> str:
    """A path as a word of a suggested line: one that begins with a dash is no option there."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def add_argument(*more: str, at: int, instead: Mapping[str, str] | None = None) -> str:
    """The line again with more arguments: before the one at that place, else after the last one before `--`.

    `instead`: words that take the place of others.
    """
    typed = TypedLine.read()
    own = [place for place in typed.places if place < typed.mark]
    place = own[at] if at < len(own) else own[-1] + 1 if own else typed.mark
    words = [(instead or {}).get(one, one) for one in typed.words]
    return typed.write(*words[:place], *more, *words[place:])


def has_no_site(image: str) -> bool:
    """Whether the line of a command that takes SITE IMAGE begins with that image."""
    typed = TypedLine.read()
    takes = typed.path.rpartition(" ")[2] in ("smoke", "run", "shell", "module", "kernel", "convert")
    return takes and bool(typed.places) and typed.words[typed.places[0]] == image


def replace_argument(old: str, new: str) -> str:
    """The line again with another word in the place of an argument."""
    typed = TypedLine.read()
    at = next((at for at in typed.places if typed.words[at] == old), len(typed.words))
    return typed.write(*typed.words[:at], new, *typed.words[at + 1 :])


def add_words(*words: str) -> str:
    """The line again with more at its end."""
    typed = TypedLine.read()
    return typed.write(*typed.words, *words)


def remove_options(options: Sequence[str]) -> str:
    """The line again without options of the command and their values."""
    typed = TypedLine.read()
    gone = set(_find_options(typed, options))
    return typed.write(*(word for at, word in enumerate(typed.words) if at not in gone))


def _find_options(typed: TypedLine, options: Sequence[str]) -> Iterator[int]:
    """The positions of options of the command, and those of their values."""
    value = False
    for at, word in enumerate(typed.words[: typed.mark]):
        if value:
            yield at
            value = False
        elif word.partition("=")[0] in options:
            yield at
            value = word in typed.takes


def make_other_line(command: str, *arguments: str) -> str:
    """Another command with these arguments and the options that were typed and that decide about its result, too."""
    context, typed = click.get_current_context(), TypedLine.read()
    root = context.find_root()
    assert isinstance(root.command, click.Group)
    other = root.command.get_command(root, command)
    known = {name for param in other.params if param.name not in OWN for name in param.opts} if other else set()
    kept, words = list[str](), iter(typed.words[: typed.mark])
    for word in words:
        name, equals, _ = word.partition("=")
        value = [next(words, "")] if name in typed.takes and not equals else []
        kept += [word, *value] if name in known else []
    return sanitize(f"{root.info_name} {command} {shlex.join([*arguments, *kept])}", limit=LIMIT)


def count_before_command() -> int | None:
    """How many arguments come before `--`; None where there is none."""
    typed = TypedLine.read()
    return sum(place < typed.mark for place in typed.places) if typed.mark < len(typed.words) else None


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
