"""SITE... ENV...: which arguments are sites, and which are environment files.

A missing argument is found where there is only one choice; the choice is printed.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import click

from builder.cli.inputs import find_sites_folder
from builder.cli.usage import make_typed_line
from builder.model.finding import BuilderError, ConfigError, Finding, suggest_name
from builder.model.text import sanitize
from builder.parse.site import find_site_files, load_site
from builder.parse.yaml import USUAL

F = TypeVar("F", bound=Callable[..., object])
Kind = Literal["site", "file", ""]
Without = Literal["this machine's", "all"]  # the sites where none is named

FILES = (".yml", ".yaml", ".txt", ".in")
READ = 65_536  # characters of a file that say what it is
# Keys that every site file of a user's has, and that no environment file has.
_SITE = re.compile(r"^(?:extends|scheduler|base_images)\s*:", re.MULTILINE)
_ENVIRONMENT = re.compile(r"^(?:dependencies|channels)\s*:", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """At least one site and one file; `note` names the site that was found, and why."""

    sites: tuple[str, ...]
    files: tuple[Path, ...]
    note: str = ""

    @property
    def single(self) -> bool:
        """Whether there is only one build."""
        return len(self.sites) == len(self.files) == 1


def add_words_argument(command: F) -> F:
    """One site and one environment file, or several of either."""
    return click.argument("words", nargs=-1, metavar="SITE... ENV...")(command)


def read_words(words: Sequence[str], *, without: Without = "this machine's") -> Selection:
    """Tell sites from files; raises ConfigError with every unexpected argument.

    Without a site all sites are meant, or the one of this machine.
    """
    if "" in words:
        message, fix = (
            "a site or a file is expected, and the argument is empty",
            "check the variable that should hold it",
        )
        raise ConfigError(Finding(code="usage", message=message, fix=fix))
    known = list(find_site_files(find_sites_folder()))
    kinds = _find_kinds(words, known=known)
    faults = [fault for word, kind in zip(words, kinds, strict=True) if (fault := _find_fault(word, kind, known=known))]
    sites = [word for word, kind in zip(words, kinds, strict=True) if kind == "site"]
    files = [word for word, kind in zip(words, kinds, strict=True) if kind == "file"]
    faults = faults or [*_check_files(sites, files), *_check_order(words, kinds), *_check_repeated(words)]
    if faults:
        raise ConfigError(*faults)
    note = ""
    if not sites and without == "all":
        sites = known
    elif not sites:
        site = find_this_site(known, files=files)
        sites, note = [site], f"site: {site}, by the name of this machine"
    return Selection(sites=tuple(sites), files=tuple(map(Path, files)), note=note)


def _find_kinds(words: Sequence[str], *, known: Sequence[str]) -> list[Kind]:
    """Find what each argument is; of two, the one that is not clear is what the other is not."""
    kinds = [_find_kind(word, known=known) for word in words]
    if len(words) == 2 and kinds == ["site", "site"] and Path(words[1]).is_file():
        return ["site", "file"]
    if len(words) == 2 and kinds == ["site", ""]:
        return ["site", "file"]
    return kinds


def _find_kind(word: str, *, known: Sequence[str]) -> Kind:
    if word in known:
        return "site"
    path = Path(word)
    if path.is_file():
        return "site" if path.suffix in (".yml", ".yaml") and is_site_file(path) else "file"
    return "file" if "/" in word or word.endswith(FILES) or path.is_dir() else ""


def is_site_file(path: Path) -> bool:
    """Whether a YAML file has keys of a site, and none of an environment."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(READ)
    except OSError:
        return False
    return _SITE.search(text) is not None and _ENVIRONMENT.search(text) is None


def _find_fault(word: str, kind: Kind, *, known: Sequence[str]) -> Finding | None:
    if kind:
        return None
    message = f"'{sanitize(word)}' is neither a known site nor a file"
    fix = f"{suggest_name(word, known=known, noun='known sites')}; a site of your own is a file: docs/own-site.md"
    return Finding(code="site-unknown", message=message, fix=fix)


def _check_files(sites: Sequence[str], files: Sequence[str]) -> list[Finding]:
    if files:
        return []
    here = [name for name in USUAL if Path(name).is_file()]
    site = sites[-1] if sites else "SITE"
    message = f"no environment file is named: '{sanitize(site)}' is a site"
    if not sites:
        message = "no site and no environment file is named"
    example = make_typed_line([*(sites or [site]), here[0] if here else "environment.yml"])
    fix = f"`{example}`" + ("" if here else "; `recipe init` writes an example file")
    return [Finding(code="usage", message=message, fix=fix)]


def find_this_site(known: Sequence[str], *, files: Sequence[str]) -> str:
    """The one site whose node names match this machine; raises ConfigError if none or several do."""
    host = os.uname().nodename.partition(".")[0]
    fits = []
    for name in known:
        try:
            site = load_site(name, folder=find_sites_folder())
        except BuilderError:
            continue  # a faulty file of the user's is said where it is named
        if any(fnmatch.fnmatchcase(host, form) for form in site.hostnames):
            fits.append(name)
    if len(fits) == 1:
        return fits[0]
    why = f"this machine, '{host}', may be {' or '.join(fits)}" if fits else f"'{sanitize(files[0])}' is a file"
    fix = f"write a site before it: {', '.join(fits or known)}"
    raise ConfigError(Finding(code="usage", message=f"no site is named: {why}", fix=fix))


def _check_order(words: Sequence[str], kinds: Sequence[Kind]) -> list[Finding]:
    """Raise ConfigError for a site after a file: it may be a misspelt file."""
    if "file" not in kinds:
        return []
    first = kinds.index("file")
    late = [word for word, kind in zip(words[first:], kinds[first:], strict=True) if kind == "site"]
    if not late:
        return []
    ordered = [word for kind in ("site", "file") for word, found in zip(words, kinds, strict=True) if found == kind]
    line = make_typed_line(ordered)
    message = f"the site '{sanitize(late[0])}' comes after the file '{sanitize(words[first])}'"
    fix = f"write the sites first: `{line}`; a file that has a site's name as ./NAME"
    return [Finding(code="usage", message=message, fix=fix)]


def _check_repeated(words: Sequence[str]) -> list[Finding]:
    twice = sorted({word for word in words if words.count(word) > 1})
    return [Finding(code="usage", message=f"'{sanitize(word)}' is named twice", fix="name it once") for word in twice]
