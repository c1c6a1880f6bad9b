"""SITE... ENV...: which arguments are sites, and which are environment files.

A missing argument is found where there is only one choice; the choice is printed.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

import click

from builder.cli.file_kinds import find_kind, list_environments
from builder.cli.inputs import find_sites_folder
from builder.cli.settings import find_default_site
from builder.cli.typed import add_argument, make_typed_line
from builder.model.finding import BuilderError, ConfigError, Finding, find_nearest, suggest_name
from builder.model.recipe import STDIN
from builder.model.site import Site
from builder.model.text import exists, sanitize
from builder.parse.site import find_site_files, load_site
from builder.parse.yaml import USUAL, find_near_path

F = TypeVar("F", bound=Callable[..., object])
Kind = Literal["site", "file", ""]
Without = Literal["this machine's", "all"]  # the sites where none is named

FILES = (".yml", ".yaml", ".json", ".toml", ".txt", ".in")
LOCAL = "local"  # the site of any machine
ALL = "all"  # not the name of a site


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
    return click.argument("words", nargs=-1, metavar="[SITE]... ENV...")(command)


def read_words(words: Sequence[str], *, without: Without = "this machine's") -> Selection:
    """Tell sites from files; raises ConfigError with every unexpected argument.

    Without a site the one of the settings is meant, else all sites, or the one of this machine. The word `all` names
    all sites where they may be left out.
    """
    known = list(find_site_files(find_sites_folder()))
    every = without == "all" and words[:1] == (ALL,) and ALL not in known and not Path(ALL).exists()
    words = words[1:] if every else words
    if "" in words:
        raise _empty(words, known=known)
    kinds = _find_kinds(words, known=known)
    faults = [fault for word, kind in zip(words, kinds, strict=True) if (fault := _find_fault(word, kind, known=known))]
    sites = [word for word, kind in zip(words, kinds, strict=True) if kind == "site"]
    files = [word for word, kind in zip(words, kinds, strict=True) if kind == "file"]
    if faults and not files:
        faults = _complete(faults, words, kinds, known=known)
    faults = faults or [*_check_files(sites, files), *_check_order(words, kinds), *_check_repeated(words)]
    if faults:
        raise ConfigError(*faults)
    note = ""
    if not sites and (default := None if every else find_default_site(known)):
        sites, note = [default.value], f"site: {default.value}, by {default.source}"
    elif not sites and without == "all":
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
    if word == STDIN:
        return "file"
    path = Path(word)
    if path.is_file():
        return "site" if path.suffix in (".yml", ".yaml") and is_site_file(path) else "file"
    return "file" if "/" in word or word.endswith(FILES) or path.is_dir() else ""


def is_site_file(path: Path) -> bool:
    """Whether a YAML file has keys of a site, and none of an environment."""
    return find_kind(path) == "a site file"


def find_own_site(word: str) -> str:
    """The path of a site's file of that name in the current folder, "" where there is none."""
    names = (f"./{word}{suffix}" for suffix in (".yaml", ".yml")) if "/" not in word else ()
    return next((name for name in names if Path(name).is_file() and is_site_file(Path(name))), "")


def _find_fault(word: str, kind: Kind, *, known: Sequence[str]) -> Finding | None:
    if kind:
        return None
    message = f"'{sanitize(word)}' is neither a known site nor a file"
    if own := find_own_site(word):
        fix = f"name the site's file: {sanitize(own)}"
        return Finding(code="site-unknown", message=message, fix=fix)
    parts = [part for part in word.split(",") if part]
    if len(parts) > 1 and {*parts} <= {*known}:
        fix = f"name several sites with blanks between them: {' '.join(parts)}"
        return Finding(code="site-unknown", message=message, fix=fix)
    fix = f"{suggest_name(word, known=known, noun='known sites')}; a site of your own is a file: docs/own-site.md"
    return Finding(code="site-unknown", message=message, fix=fix)


def _complete(
    faults: Sequence[Finding], words: Sequence[str], kinds: Sequence[Kind], *, known: Sequence[str]
) -> list[Finding]:
    """The faults of sites on a line without a file, with the whole line where each site has a near one."""
    near = [
        word if kind else find_own_site(word) or find_nearest(word, known=known)
        for word, kind in zip(words, kinds, strict=True)
    ]
    file = next(iter(list_environments()), "")
    if not (file and all(near)):
        return list(faults)
    line = make_typed_line([*dict.fromkeys(near), file])
    return [replace(fault, fix=f"{fault.fix}; `{line}`") for fault in faults]


def _check_files(sites: Sequence[str], files: Sequence[str]) -> list[Finding]:
    if files:
        return []
    file = next(iter(list_environments()), "")
    end = "" if file else "; `recipe init` writes an example file"
    file = file or "environment.yml"
    if sites:
        message = f"no environment file is named: '{sanitize(sites[-1])}' is a site"
        return [Finding(code="usage", message=message, fix=f"`{make_typed_line([*sites, file])}`{end}")]
    fix = suggest_sites(lambda site: make_typed_line([site, file])) + end
    return [Finding(code="usage", message="no site and no environment file is named", fix=fix)]


def _empty(words: Sequence[str], *, known: Sequence[str]) -> ConfigError:
    """The error for an empty argument: which one it is, and the line with what belongs there."""
    at = list(words).index("")
    message = f"argument {at + 1} of {len(words)} is empty" + (f", after '{sanitize(words[at - 1])}'" if at else "")
    left = [word for word in words if word]
    kinds = _find_kinds(left, known=known)
    sites = [word for word, kind in zip(left, kinds, strict=True) if kind == "site"] or [choose_site()]
    files = [word for word in left if word not in sites] or [name_environment()]
    line = make_typed_line([*sites, *files])
    fix = f"a variable there has no value: set it, or write the word itself, as in `{line}`"
    return ConfigError(Finding(code="usage", message=message, fix=fix))


def load_sites(names: Sequence[str]) -> list[Site]:
    """The sites that can be loaded: what is wrong with another one is printed where all files are read."""
    found = []
    for name in names:
        with suppress(BuilderError):
            found.append(load_site(name, folder=find_sites_folder()))
    return found


def match_machine(known: Sequence[str]) -> list[str]:
    """The sites whose node names match this machine."""
    host = os.uname().nodename.partition(".")[0]
    # A faulty file of the user's is reported where it is named.
    return [site.name for site in load_sites(known) if any(fnmatch.fnmatchcase(host, form) for form in site.hostnames)]


def name_environment() -> str:
    """An environment file of this folder, else the usual name of one."""
    return next(iter(list_environments()), USUAL[0])


def choose_site() -> str:
    """The site of the settings or of this machine; the one for any machine where neither says so."""
    known = list(find_site_files(find_sites_folder()))
    default = find_default_site(known)
    return default.value if default else next(iter(match_machine(known)), LOCAL)


def suggest_sites(line: Callable[[str], str]) -> str:
    """The fix for a missing site: the line with the most likely one, and the others."""
    known = list(find_site_files(find_sites_folder()))
    fits, default = match_machine(known), find_default_site(known)
    first = default.value if default else fits[0] if fits else LOCAL
    others = [name for name in fits or known if name != first]
    return f"`{line(first)}`" + (f", or another site in the place of '{first}': {', '.join(others)}" if others else "")


def find_this_site(known: Sequence[str], *, files: Sequence[str]) -> str:
    """The one site whose node names match this machine; raises ConfigError if none or several do."""
    host, fits = os.uname().nodename.partition(".")[0], match_machine(known)
    missing = {
        file: near
        for file in map(str, files)
        if file != STDIN and not exists(Path(file)) and (near := find_near_path(Path(file)))
    }
    absent = next((str(file) for file in files if str(file) != STDIN and not exists(Path(file))), "")
    if absent and Path(absent).stem in known and len(files) > 1:
        rest = [str(file) for file in files if str(file) != absent]
        message, site = f"no site is named, and '{sanitize(absent)}' does not exist", Path(absent).stem
        fix = f"a site is named without its ending: `{make_typed_line([site, *rest])}`"
        raise ConfigError(Finding(code="usage", message=message, fix=fix))
    if absent and absent not in missing and (here := [name for name in list_environments() if name not in files]):
        missing[absent] = here[0]
    if len(fits) == 1:
        return fits[0]
    message = f"no site is named: '{sanitize(str(files[0]))}' is a file"
    if absent:
        message = f"no site is named, and '{sanitize(absent)}' does not exist"
    elif fits:
        message = f"no site is named: this machine, '{sanitize(host)}', may be {' or '.join(fits)}"
    fix = suggest_sites(lambda site: add_argument(site, at=0, instead=missing))
    raise ConfigError(Finding(code="usage", message=message, fix=fix))


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
