"""SITE... ENV...: which of the words of a command line are sites, and which are environment files."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import click

from builder.cli.inputs import sites_folder
from builder.model.catalog import site_files
from builder.model.finding import ConfigError, Finding, did_you_mean
from builder.model.safe import shown

F = TypeVar("F", bound=Callable[..., object])
Kind = Literal["site", "file", ""]

FILES = (".yml", ".yaml", ".txt")
READ = 65_536  # characters of a file that say what it is
# Keys that every site file of a user's has, and that no environment file has.
_SITE = re.compile(r"^(?:extends|scheduler|base_images)\s*:", re.MULTILINE)
_ENVIRONMENT = re.compile(r"^(?:dependencies|channels)\s*:", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Named:
    """What was named: at least one site and one file."""

    sites: tuple[str, ...]
    files: tuple[Path, ...]

    @property
    def single(self) -> bool:
        """Whether it is one build."""
        return len(self.sites) == len(self.files) == 1


def words_argument(command: F) -> F:
    """One site and one environment file, or several of either."""
    return click.argument("words", nargs=-1, required=True, metavar="SITE... ENV...")(command)


def read_words(words: Sequence[str]) -> Named:
    """Tell sites from files; raises ConfigError with every word that is in no place of its own.

    Two words are a site and a file, whatever they look like, unless they cannot be.
    """
    known = site_files(sites_folder())
    kinds = [_kind(word, known=list(known)) for word in words]
    if len(words) == 2 and not _two_of_a_kind(words, kinds):
        return Named(sites=(words[0],), files=(Path(words[1]),))
    faults = [_unknown(word, known=list(known)) for word, kind in zip(words, kinds, strict=True) if not kind]
    if faults:
        raise ConfigError(*faults)
    sites = [word for word, kind in zip(words, kinds, strict=True) if kind == "site"]
    files = [word for word, kind in zip(words, kinds, strict=True) if kind == "file"]
    faults = [*_missing(sites, files, known=list(known)), *_order(words, kinds), *_twice(words)]
    if faults:
        raise ConfigError(*faults)
    return Named(sites=tuple(sites), files=tuple(map(Path, files)))


def _two_of_a_kind(words: Sequence[str], kinds: Sequence[Kind]) -> bool:
    """Whether two words are two sites, or two environment files, and nothing else can be meant."""
    if kinds[0] == kinds[1] == "site":
        return not Path(words[1]).exists()
    return kinds[0] == kinds[1] == "file" and _holds(Path(words[0]), _ENVIRONMENT)


def _kind(word: str, *, known: Sequence[str]) -> Kind:
    if word in known:
        return "site"
    path = Path(word)
    if path.is_file():
        return "site" if path.suffix in (".yml", ".yaml") and _holds(path, _SITE) else "file"
    return "file" if "/" in word or word.endswith(FILES) else ""


def _holds(path: Path, key: re.Pattern[str]) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return key.search(file.read(READ)) is not None
    except OSError:
        return False


def _unknown(word: str, *, known: Sequence[str]) -> Finding:
    message = f"'{shown(word)}' is neither a known site nor a file"
    return Finding(code="site-unknown", message=message, fix=did_you_mean(word, known=known, noun="known sites"))


def _missing(sites: Sequence[str], files: Sequence[str], *, known: Sequence[str]) -> list[Finding]:
    if not sites:
        message = f"no site is named: '{shown(files[0])}' is a file"
        return [Finding(code="usage", message=message, fix=f"write a site before it: {', '.join(known)}")]
    if not files:
        message = f"no environment file is named: '{shown(sites[-1])}' is a site"
        return [Finding(code="usage", message=message, fix="write the file after the sites; `recipe init` makes one")]
    return []


def _order(words: Sequence[str], kinds: Sequence[Kind]) -> list[Finding]:
    """A site after a file may be a file that is meant: nothing is guessed."""
    if "file" not in kinds:
        return []
    first = kinds.index("file")
    return [
        Finding(
            code="usage",
            message=f"the site '{shown(word)}' stands after the file '{shown(words[first])}'",
            fix="write the sites first, then the files; a file that has a site's name as ./NAME",
        )
        for word, kind in zip(words[first:], kinds[first:], strict=True)
        if kind == "site"
    ]


def _twice(words: Sequence[str]) -> list[Finding]:
    twice = sorted({word for word in words if words.count(word) > 1})
    return [Finding(code="usage", message=f"'{shown(word)}' is named twice", fix="name it once") for word in twice]
