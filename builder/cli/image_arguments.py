"""[SITE] IMAGE ...: the arguments of commands that use an existing image; a missing site is found."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import click

from builder.cli.file_kinds import find_kind, list_archives, list_environments, list_images
from builder.cli.inputs import find_sites_folder
from builder.cli.options import SUBMITTING
from builder.cli.output import echo, show_findings
from builder.cli.paths import check_existing, explain_kind, replace_image, suggest_image, suggest_whole_image
from builder.cli.settings import find_default_site
from builder.cli.targets import choose_site, find_this_site, is_site_file, match_machine, suggest_sites
from builder.cli.typed import (
    TypedLine,
    add_argument,
    add_words,
    count_before_command,
    make_typed_line,
    quote,
    replace_argument,
)
from builder.execute.machine import is_elsewhere
from builder.inspect.image import check_archive, check_image, has_torch
from builder.model.contents import Contents
from builder.model.finding import BuilderError, ConfigError, Finding, UnsupportedError, find_nearest
from builder.model.site import Site
from builder.model.text import escape_line, exists, sanitize
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
    known = list(find_site_files(find_sites_folder()))
    _refuse_options(words[: 3 if words and _is_site(words[0], known=known) else 2])
    before = count_before_command() if more else None  # what comes after `--` is no site and no image
    own = words if before is None else words[:before]
    if "" in own[:2]:
        raise _empty(own, what=what)
    first = words[0] if words else ""
    if not own or _is_site(first, known=known) or not _is_there(first, what=what):
        if len(own) < 2:
            raise _missing(own, known=known, what=what, more="" if words[len(own) :] else more)
        if len(own) > 2 and words[1] in known and not Path(words[1]).exists():
            message = f"'{words[1]}' is a site, and one is named before it"
            raise _make_usage_error(message, make_typed_line([first, *words[2:]]))
        site, rest = load_site(first, folder=find_sites_folder()), words[2:]
        path = _check_image(Path(words[1]), what=what)
        if what == "image" and not quiet:
            show_findings(list(_warn_of_other_site(path, site=site, image=words[1], rest=rest, known=known)))
    else:
        if len(own) > 1 and (more or len(words) == 2) and _is_site(words[1], known=known):
            raise _explain_late_site(words, what=what, more=more)
        if len(own) > 1 and not more:
            raise _unexpected(words[1], first, known=known, what=what)
        path, rest = _check_image(Path(first), what=what), words[1:]
        try:
            site = _find_missing_site(path, named=first, known=known, what=what, quiet=quiet)
        except ConfigError:
            if rest or not more:
                raise
            raise _no_site_and_command(first, more=more if before is None else more.removeprefix("-- ")) from None
    if more and not rest:
        raise _no_command(before is not None)
    if not more and rest:
        message = f"'{sanitize(rest[0])}' is an unexpected argument"
        raise _make_usage_error(message, make_typed_line([first, words[1]]))
    return OfImage(site=site, path=path, rest=tuple(rest))


def _warn_of_other_site(
    path: Path, *, site: Site, image: str, rest: Sequence[str], known: Sequence[str]
) -> Iterator[Finding]:
    """Warn that an image was built for another site than it is used for, by its label."""
    label = _read_site_label(path)
    if label in ("", site.name) or label not in known:
        return
    message = f"'{sanitize(image, limit=400)}' was built for '{label}', and '{site.name}' is named"
    typed, other = TypedLine.read(), load_site(label, folder=find_sites_folder())
    line = make_typed_line([label, image, *rest], without=list(_list_refused(other, path=path)))
    starts = any(param.name == "here" for param in click.get_current_context().command.params)
    chosen = {"--here", "--submit"} & {*typed.words[: typed.mark]}
    away = starts and not chosen and is_elsewhere(other, environment=os.environ)
    line = line.replace(typed.path, f"{typed.path} --here", 1) if away else line
    fix = f"`{line}` uses it as '{label}' does; or build one for '{site.name}'"
    yield Finding(code="image-site", message=message, fix=fix, level="warning")


def _list_refused(site: Site, *, path: Path) -> Iterator[str]:
    """List the options of the command that a site refuses, whatever their values."""
    context = click.get_current_context(silent=True)
    if context is None:
        return
    launcher = str(context.params.get("launcher") or "")
    if site.gpu is None:
        yield "--gpu-visibility"
    if site.scheduler.kind == "none":
        yield from ("--submit", "--launcher", "--nodes", *(f"--{name}" for name in SUBMITTING))
        if context.info_name == "run" and context.params.get("gpus") and not has_torch(path):
            yield "--gpus"
    elif launcher:
        from builder.compile.launch.shape import choose_launch  # few lines need it

        try:
            choose_launch(site, launcher=launcher)
        except UnsupportedError:
            yield "--launcher"


def _unexpected(word: str, image: str, *, known: Sequence[str], what: What) -> ConfigError:
    """The error for one argument too many behind an image without a site, with the line of both."""
    label = _read_site_label(Path(image)) if what == "image" else ""
    fix = f"`{make_typed_line([image])}`"
    if label not in known and len(match_machine(known)) != 1:
        fix = suggest_sites(lambda site: make_typed_line([site, image]))
    return ConfigError(Finding(code="usage", message=f"'{sanitize(word)}' is an unexpected argument", fix=fix))


def _explain_late_site(words: Sequence[str], *, what: What, more: str) -> ConfigError:
    message = f"the site '{sanitize(words[1])}' comes after the {what} '{sanitize(words[0])}'"
    line = make_typed_line([words[1], words[0], *words[2:]])
    return _make_usage_error(message, line, more="" if words[2:] else more)


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
    found = check_existing(path, what=what)
    try:
        check_image(path) if what == "image" else check_archive(path)
    except ConfigError as error:
        raise ConfigError(*(_explained(finding, path, what=what) for finding in error.findings)) from None
    return found


def _explained(finding: Finding, path: Path, *, what: What) -> Finding:
    """A finding on a file of another kind, with the line that has one of the right kind."""
    here = list_images() if what == "image" else list_archives()
    kind, word = find_kind(path), str(path)
    if finding.code == "image-unreadable" and kind == "an image":
        return replace(finding, fix=suggest_whole_image(path))
    lines = [replace_image(path, name) for name in here if name != word]
    shown, end = sanitize(word, limit=400), f", and not an {what}"
    fix = f"`{lines[0]}`" if lines else _how_to_make(what)
    if what == "image" and kind == "an archive":
        fix = f"convert it first: `recipe convert {choose_site()} {quote(word)}`"
    elif what == "image" and kind == "an environment file" and not lines:
        fix = f"build it first: `recipe build {choose_site()} {quote(word)}`"
    elif what == "archive" and kind == "an image":
        fix = f"it needs no conversion: `recipe inspect {quote(word)}` shows what is in it; --wrap makes wrappers"
    elif kind is None or kind == f"an {what}" or (kind == "a folder" and not lines):
        return finding
    return replace(finding, message=f"'{shown}' is {kind}{end}", fix=fix)


def _find_missing_site(path: Path, *, named: str, known: Sequence[str], what: What, quiet: bool) -> Site:
    """Find the missing site and print which one it is."""
    label = _read_site_label(path) if what == "image" else ""
    default = None if label in known else find_default_site(known)
    name = label if label in known else default.value if default else find_this_site(known, files=[named])
    why = default.source if default else "the label of the image" if label == name else "the name of this machine"
    if not quiet:
        echo(f"site: {name}, by {why}", err=True)
    return load_site(name, folder=find_sites_folder())


def read_image(path: Path, *, command: str, takes: str = "an image") -> Contents:
    """Read what is inside an image; raises ConfigError, which names one of this folder, where the path is not one."""
    from builder.inspect.image import read_contents

    try:
        return read_contents(path)
    except ConfigError as error:
        if not exists(path):
            fix = suggest_image(path)
            raise ConfigError(*(replace(finding, fix=fix) for finding in error.findings)) from None
        if find_kind(path) == "an image":
            fix = suggest_whole_image(path)
            raise ConfigError(*(replace(_as_typed(finding, path), fix=fix) for finding in error.findings)) from None
        explain = partial(
            explain_kind, path=path, command=command, takes=takes, here=list_images(), but=("an image", "an archive")
        )
        raise ConfigError(*(_as_typed(explain(finding), path) for finding in error.findings)) from None


def warn_of_unknown(contents: Contents) -> None:
    """Warn that an image has parts that could not be read: what is in them is missing from every list."""
    if contents.unknown:
        more = f", and {len(contents.unknown) - 1} more" if len(contents.unknown) > 1 else ""
        message = f"not all of '{contents.image}' could be read, and what is there is not listed: "
        message += f"{escape_line(contents.unknown[0])}{more}"
        fix = "`recipe inspect` lists all that is not known; copy or build a damaged image again"
        show_findings([Finding(code="image-unreadable", message=message, fix=fix, level="warning")])


def _as_typed(finding: Finding, path: Path) -> Finding:
    """A finding whose place is the path as it was typed."""
    at = finding.at
    if at is None or at.file != str(path.absolute()):
        return finding
    return replace(finding, at=replace(at, file=str(path)))


def _read_site_label(path: Path) -> str:
    """The site that an image was built for, "" if unknown; images of layers have the label outside their files too."""
    from builder.inspect.image import read_contents
    from builder.sif.bounded import parse_json
    from builder.sif.sif import INSPECT, SifError, read_object, read_sif

    with suppress(SifError, OSError, ValueError, KeyError, TypeError):
        item = next(item for item in (*read_sif(path).objects, None) if item is None or item.label == INSPECT)
        if item is not None:
            return str(parse_json(read_object(path, item))["data"]["attributes"]["labels"]["recipe.site"])
    try:
        return read_contents(path).labels.get("recipe.site", "")
    except BuilderError:
        return ""


def _missing(words: Sequence[str], *, known: Sequence[str], what: What, more: str) -> ConfigError:
    """The error where no image or archive is named, with one of this folder."""
    found = list_images() if what == "image" else list_archives()
    name = found[0] if found else "image.sif" if what == "image" else "image.tar"
    end = f" {more}" if more else ""
    if not words:
        fix = suggest_sites(lambda site: f"{add_argument(site, name, at=0)}{end}")
        return ConfigError(Finding(code="usage", message=f"no site and no {what} is named", fix=fix))
    first = words[0]
    near = first if first in known else find_nearest(first, known=known)
    said = "is a site" if first in known else f"is neither a site nor an {what}"
    message = f"no {what} is named: '{sanitize(first)}' {said}"
    line = add_argument(name, at=1, instead={first: near or choose_site()})
    fix = f"`{line}{end}`" + ("" if found else f"; there is no {what} in this folder: {_how_to_make(what)}")
    return ConfigError(Finding(code="usage", message=message, fix=fix))


def _no_site_and_command(image: str, *, more: str) -> ConfigError:
    message = f"no site and no command is named: '{sanitize(image)}' is an image"
    fix = suggest_sites(lambda site: f"{add_argument(site, at=0)} {more}")
    return ConfigError(Finding(code="usage", message=message, fix=fix))


def _no_command(marked: bool) -> ConfigError:
    """The error where `recipe run` has no command; `marked`: the `--` before it was typed."""
    words = ["python3", *(sorted(path.name for path in Path().glob("[!.]*.py"))[:1] or ["--version"])]
    fix = f"`{add_words(*([] if marked else ['--']), *words)}`, or another command after the `--`"
    return ConfigError(Finding(code="usage", message="no command is named", fix=fix))


def _empty(words: Sequence[str], *, what: What) -> ConfigError:
    """The error for an empty argument: which one it is, and the line with what belongs there."""
    at = list(words).index("")
    message = f"argument {at + 1} of {len(words)} is empty" + (f", after '{sanitize(words[at - 1])}'" if at else "")
    found = list_images() if what == "image" else list_archives()
    is_site = at == 0 and len(words) > 1
    word = choose_site() if is_site else found[0] if found else "image.sif" if what == "image" else "image.tar"
    line = replace_argument("", word)
    if not is_site and at == 0:
        line = add_argument(choose_site(), at=0, instead={"": word})
    fix = f"a variable there has no value: set it, or write the word itself, as in `{line}`"
    return ConfigError(Finding(code="usage", message=message, fix=fix))


def _how_to_make(what: What) -> str:
    if what == "archive":
        return "`docker save NAME -o image.tar` writes one"
    file = next(iter(list_environments()), "")
    return (
        f"`recipe build {choose_site()} {quote(file)}` makes one"
        if file
        else "`recipe build --help` says how to make one"
    )


def _make_usage_error(message: str, line: str, *, more: str = "") -> ConfigError:
    return ConfigError(Finding(code="usage", message=message, fix=f"`{' '.join(filter(None, [line, more]))}`"))
