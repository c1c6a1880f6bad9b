"""[SITE] IMAGE ...: the arguments of commands that use an existing image; a missing site is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from builder.cli.inputs import find_sites_folder, resolve_existing
from builder.cli.output import echo
from builder.cli.targets import find_this_site, is_site_file
from builder.inspect.image import check_archive, check_image
from builder.model.finding import BuilderError, ConfigError, Finding, find_nearest
from builder.model.site import Site
from builder.model.text import sanitize
from builder.parse.site import find_site_files, load_site

What = Literal["image", "archive"]
ENDS = {"image": (".sif", ".sqsh", ".squashfs"), "archive": (".tar",)}


@dataclass(frozen=True, kw_only=True)
class OfImage:
    """The site, the image or archive, and the arguments after it."""

    site: Site
    path: Path
    rest: tuple[str, ...]


def read_image_words(words: Sequence[str], *, what: What, more: str = "", quiet: bool = False) -> OfImage:
    """Tell the site from the image; raises ConfigError if one is missing or the image is invalid.

    Without a site the one of the image's label counts, then the one of this machine. `more` is the rest of the command
    line in messages.
    """
    if "" in words[:2]:
        message = f"a site or the {what} is expected, and the argument is empty"
        raise ConfigError(Finding(code="usage", message=message, fix="check the variable that should hold it"))
    known = list(find_site_files(find_sites_folder()))
    _refuse_options(words[: 3 if words and _is_site(words[0], known=known) else 2])
    first = words[0] if words else ""
    if words and not _is_site(first, known=known) and _is_there(first, what=what):
        if (len(words) == 2 or (more and len(words) > 2)) and _is_site(words[1], known=known):
            message = f"the site '{sanitize(words[1])}' comes after the {what} '{sanitize(first)}'"
            raise _make_usage_error(message, words[1], first, more=more)
        path = _check_image(Path(first), what=what)
        site, rest = _find_missing_site(path, named=first, known=known, what=what, quiet=quiet), words[1:]
    elif len(words) < 2:
        said = f"'{sanitize(first)}' is a site" if words and first in known else f"'{sanitize(first)}' is no {what}"
        message = f"no {what} is named: {said}" if words else f"no site and no {what} is named"
        near = find_nearest(first, known=known) if words else "SITE"
        raise _make_usage_error(message, near or "SITE", _find_example(what), more=more)
    else:
        site, rest = load_site(first, folder=find_sites_folder()), words[2:]
        path = _check_image(Path(words[1]), what=what)
    if more and not rest:
        raise _make_usage_error("no command is named", site.name if first != str(path) else "", words[-1], more=more)
    if not more and rest:
        message = f"'{sanitize(rest[0])}' is an unexpected argument"
        raise _make_usage_error(message, site.name, str(path), more="")
    return OfImage(site=site, path=path, rest=tuple(rest))


def _refuse_options(words: Sequence[str]) -> None:
    """Raise NoSuchOption for an option in the place of the site, the image or the command."""
    for word in words:
        if word.startswith("-") and word != "--":
            long = word.startswith("--")
            raise click.NoSuchOption(word.partition("=")[0] if long else word[:2], ctx=click.get_current_context())


def _is_site(word: str, *, known: Sequence[str]) -> bool:
    path = Path(word)
    return word in known or (path.suffix in (".yml", ".yaml") and path.is_file() and is_site_file(path))


def _is_there(word: str, *, what: What) -> bool:
    return "/" in word or word.endswith(ENDS[what]) or Path(word).exists()


def _check_image(path: Path, *, what: What) -> Path:
    found = resolve_existing(path, what=what)
    check_image(found) if what == "image" else check_archive(found)
    return found


def _find_missing_site(path: Path, *, named: str, known: Sequence[str], what: What, quiet: bool) -> Site:
    """Find the missing site and print which one it is."""
    label = _read_site_label(path) if what == "image" else ""
    name = label if label in known else find_this_site(known, files=[named])
    if not quiet:
        echo(f"site: {name}, by {'the label of the image' if label == name else 'the name of this machine'}", err=True)
    return load_site(name, folder=find_sites_folder())


def _read_site_label(path: Path) -> str:
    """The site that an image was built for, "" if unknown."""
    from builder.inspect.image import read_contents

    try:
        return read_contents(path).labels.get("recipe.site", "")
    except BuilderError:
        return ""


def _find_example(what: What) -> str:
    """The name of a file in this folder for an example."""
    found = sorted(path.name for end in ENDS[what] for path in Path().glob(f"*{end}"))
    return found[0] if found else what.upper()


def _make_usage_error(message: str, *words: str, more: str) -> ConfigError:
    command = click.get_current_context().command_path
    line = " ".join(word for word in (command, *map(sanitize, words), more) if word)
    return ConfigError(Finding(code="usage", message=message, fix=f"`{line}`"))
