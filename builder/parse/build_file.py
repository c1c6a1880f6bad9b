"""What a Dockerfile and a definition file have in common: steps in their order, each with its line."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from builder.model.text import VARIABLE

SIZE_LIMIT = 128 * 1024  # characters of a file; a long one has a tenth
StepKind = Literal["run", "variable", "argument", "label", "copy", "folder", "left"]
VALUE_LIMIT = 32 * 1024  # characters of a value in which others are
ONLY_PACKAGES = "of this stage only the packages for Python are taken"
REFERENCE = re.compile(
    r"\\\$|\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?::?(?P<sign>[-+])(?P<other>[^{}$]*))?\})"
)


@dataclass(frozen=True, kw_only=True)
class Script:
    """Shell text; `places` has for each of its parts where it begins in the text, and its line in the file."""

    text: str
    places: tuple[tuple[int, int], ...]

    def find_line(self, start: int) -> int:
        """Find the line in the file of a place in the text."""
        index = bisect_right(self.places, (start, 10**9)) - 1
        return self.places[max(index, 0)][1]


@dataclass(frozen=True, kw_only=True)
class BuildStep:
    """One step. `text` is how the file has it; `left`: no recipe has such a step, `why` says so.

    `packages`: of another stage, of which only packages for Python are taken.
    """

    kind: StepKind
    line: int
    text: str
    script: Script | None = None  # run
    name: str = ""  # variable, argument, label
    value: str = ""  # the same; folder
    sources: tuple[str, ...] = ()  # copy
    target: str = ""  # copy
    why: str = ""
    packages: bool = False


@dataclass(frozen=True, kw_only=True)
class BuildFile:
    """A file that builds an image. `alone`: each run is a shell of its own, which begins in the last folder."""

    file: str
    what: str
    base: str  # as the file names it, with its scheme where it has one
    base_line: int
    steps: tuple[BuildStep, ...]
    alone: bool
    values: Mapping[str, str] = field(default_factory=dict)  # of the arguments before the first stage


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace $NAME, ${NAME}, ${NAME:-other} and ${NAME:+other}; a name without a value stays.

    A text that would become too long stays, too.
    """

    def replace(match: re.Match[str]) -> str:
        name = match["plain"] or match["name"]
        if name is None:
            return "$"
        value, sign, other = values.get(name), match["sign"], match["other"] or ""
        if sign == "+":
            return other if value else ""
        if value is None and sign is None:
            return match[0]
        return value if value else other

    found = REFERENCE.sub(replace, text)
    return found if len(found) <= VALUE_LIMIT else text


def has_variable(text: str) -> bool:
    """Whether a text still depends on a shell."""
    return "$" in text or "`" in text


def is_variable(name: str) -> bool:
    return VARIABLE.fullmatch(name) is not None
