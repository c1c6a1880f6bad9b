"""Findings and the exceptions that carry them. Exit codes are defined here only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, kw_only=True)
class Location:
    """The location of a finding: file, line (from 1) and path of keys, each as far as known."""

    file: str = ""
    line: int | None = None
    key: str = ""

    def __str__(self) -> str:
        where = self.file + (f":{self.line}" if self.line is not None else "")
        return f"{where}: {self.key}" if where and self.key else where or self.key


@dataclass(frozen=True, kw_only=True)
class Edit:
    """The fix of a finding as an exact change of one line: `old`, which occurs once, is replaced by `new`.

    With `below` the whole item moves from its line to the list of that name (`container`: key and value move to that
    section; `items`: they move below the items that follow the line). `old` without `new` removes the line.
    """

    file: str
    line: int | None
    old: str
    new: str = ""
    below: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem or a fact worth knowing: what, where, and how to fix it."""

    code: str
    message: str
    fix: str
    at: Location | None = None
    level: Level = "error"
    edit: Edit | None = None


class BuilderError(Exception):
    """An expected failure: printed as findings, never as a traceback."""

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
    """Jobs are still pending or running: there is no result yet."""

    exit_code = 7


class DifferentError(BuilderError):
    """The image was built and tested, but differs from a second build of it or from its attestations."""

    exit_code = 8


def make_edit(at: Location | None, old: str, new: str = "", *, below: str = "") -> Edit | None:
    """Make the edit of one line; None if the location or the old text is unknown."""
    if at is None or at.line is None or not old or (not new and not below and old != "-"):
        return None
    return Edit(file=at.file, line=at.line, old=old, new=new, below=below)


def remove_edits(value: Any) -> Any:
    """Remove the edits from findings as plain data: an edit is valid only for the file as it was read."""
    if isinstance(value, dict):
        own = {"code", "message", "fix", "edit"} <= set(value)
        return {key: remove_edits(item) for key, item in value.items() if not (own and key == "edit")}
    return [remove_edits(item) for item in value] if isinstance(value, (list, tuple)) else value


def suggest_name(word: str, *, known: Iterable[str], noun: str = "known keys") -> str:
    """Write the fix for an unknown name: the closest known name, if any, and all known names."""
    names = sorted(known)
    near = find_nearest(word, known=names)
    listed = f"{noun}: {', '.join(names)}" if names else f"{noun}: none"
    return f"did you mean '{near}'? {listed}" if near else listed


def find_nearest(word: str, *, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the known name closest to `word`, ignoring case; "" if none is close."""
    from difflib import get_close_matches  # for messages alone

    names = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), names, n=1, cutoff=cutoff)
    return names[close[0]] if close else ""


def find_near_name(name: str, *, known: Sequence[str]) -> str:
    """Return the known file name nearest to `name`; one that has one more suffix first (demo.lock.yml of demo.lock)."""
    longer = [other for other in known if name and other.rpartition(".")[0].lower() == name.lower()]
    text = (".yml", ".yaml", ".txt")  # of environment files and locks, before what is made of them
    first = min(longer, default="", key=lambda other: (not other.endswith(text), other))
    return first or find_nearest(name, known=known, cutoff=0.75)


def find_typo(word: str, *, known: Iterable[str]) -> str:
    """Return the one known name that `word` misspells by a single slip, "" if there is none or more than one.

    Only such a name may replace the word in a file; a name that is merely similar can have another effect.
    """
    found = [name for name in known if _is_slip(_fold(word), _fold(name))]
    return found[0] if len(found) == 1 else ""


def _fold(word: str) -> str:
    return word.lower().replace("_", "-")


def _is_slip(one: str, other: str) -> bool:
    """Whether two words are equal, or differ by two swapped letters or by one that is missing, added or replaced."""
    if one == other:
        return True
    if min(len(one), len(other)) < 3 or max(len(one), len(other)) < 4:
        return False  # gpu and cpu
    start = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    rests = one[start:], other[start:]
    if len(one) != len(other):
        return rests[0][1:] == rests[1] or rests[0] == rests[1][1:]
    swapped = rests[0][:2] == rests[1][:2][::-1] and rests[0][2:] == rests[1][2:]
    return swapped or (len(one) > 4 and rests[0][1:] == rests[1][1:])


def select_errors(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Select the findings of level `error`."""
    return tuple(finding for finding in findings if finding.level == "error")
