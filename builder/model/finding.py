"""Findings (what a check has to say) and the errors that carry them; the exit codes live here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, kw_only=True)
class Location:
    """Where a finding is: a file, a line counted from 1 and the path of keys, each as far as known."""

    file: str = ""
    line: int | None = None
    key: str = ""

    def __str__(self) -> str:
        where = self.file + (f":{self.line}" if self.line is not None else "")
        return f"{where}: {self.key}" if where and self.key else where or self.key


@dataclass(frozen=True, kw_only=True)
class Edit:
    """The fix of a finding as an exact change of a line: `old`, which stands there once, becomes `new`.

    With `below` the whole item goes from its line to the list of that name (`container`: the key with its value to that
    section; `items`: those after the line go below it); an `old` without `new` takes the line away.
    """

    file: str
    line: int | None
    old: str
    new: str = ""
    below: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One sentence that says what is wrong or worth knowing, where, and what to do about it."""

    code: str
    message: str
    fix: str
    at: Location | None = None
    level: Level = "error"
    edit: Edit | None = None


class BuilderError(Exception):
    """An expected failure: it is printed as findings, never as a traceback."""

    exit_code = 1

    def __init__(self, *findings: Finding) -> None:
        self.findings: tuple[Finding, ...] = findings
        super().__init__("; ".join(finding.message for finding in findings))


class ConfigError(BuilderError):
    """A recipe, a site file or the command line is faulty."""

    exit_code = 2


class UnsupportedError(BuilderError):
    """This recipe cannot run on that site."""

    exit_code = 3


class ToolError(BuilderError):
    """A program is missing or too old, or a resource such as disk space is short."""

    exit_code = 4


class StepError(BuilderError):
    """A step of the plan failed."""

    exit_code = 5


class SmokeError(BuilderError):
    """The image was built, but the smoke test failed in it."""

    exit_code = 6


class GpuError(BuilderError):
    """What is installed cannot use the GPU of the site, by what its files say."""

    exit_code = 6


class UnfinishedError(BuilderError):
    """Jobs still wait or run: there is no verdict yet."""

    exit_code = 7


class DifferentError(BuilderError):
    """The image was built and tested, but it is not the same as another build of it, or as its papers say."""

    exit_code = 8


def make_edit(at: Location | None, old: str, new: str = "", *, below: str = "") -> Edit | None:
    """The edit of a place; None where the place or the words are not known."""
    if at is None or at.line is None or not old or (not new and not below and old != "-"):
        return None
    return Edit(file=at.file, line=at.line, old=old, new=new, below=below)


def remove_edits(value: Any) -> Any:
    """Plain data of findings as it is kept: an edit is for the file as it was when it was read."""
    if isinstance(value, dict):
        own = {"code", "message", "fix", "edit"} <= set(value)
        return {key: remove_edits(item) for key, item in value.items() if not (own and key == "edit")}
    return [remove_edits(item) for item in value] if isinstance(value, (list, tuple)) else value


def suggest_name(word: str, *, known: Iterable[str], noun: str = "known keys") -> str:
    """Give the fix for a name nobody knows: the closest known one when there is one, and all of them."""
    names = sorted(known)
    near = find_nearest(word, known=names)
    listed = f"{noun}: {', '.join(names)}" if names else f"{noun}: none"
    return f"did you mean '{near}'? {listed}" if near else listed


def find_nearest(word: str, *, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Give the known name that a word means, whatever its case; "" when none is near."""
    names = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), names, n=1, cutoff=cutoff)
    return names[close[0]] if close else ""


def select_errors(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Only the findings that stop the work."""
    return tuple(finding for finding in findings if finding.level == "error")
