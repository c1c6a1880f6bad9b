"""recipe module: a folder with a module of an image, for Lmod and Tcl modules, and scripts that start its programs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import click

from builder.cli.help import GroupedCommand
from builder.cli.output import echo, emit
from builder.cli.start_folder import add_start_options, read_start_target, write_start_folder
from builder.cli.typed import quote
from builder.compile.image_files import slugify
from builder.compile.start_plans import MODULES, make_module_plan
from builder.inspect.image_programs import list_programs
from builder.inspect.wrap_source import check_programs
from builder.model.finding import ConfigError, Finding, Location
from builder.model.text import escape_line, sanitize

PROGRAMS = ("python", "python3", "torchrun")  # those of them that the image has
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*(?<!\.lua)(?:/[A-Za-z0-9][A-Za-z0-9._+-]*(?<!\.lua))?")
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@%-]*")
SYSTEMS = ("LMOD_CMD", "MODULESHOME", "LOADEDMODULES")  # a shell with the command `module` has one of these


@click.command("module", cls=GroupedCommand)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The folder; default: NAME-module, here.")
@click.option("--name", metavar="NAME[/VERSION]", help="Name of the module; default: the image's, and the site.")
@click.option(
    "--wrap", "wrapped", metavar="BIN", multiple=True, help="More programs: one of the image, or all of a folder of it."
)
@add_start_options
def run_command(
    words: tuple[str, ...], output: Path | None, name: str | None, wrapped: tuple[str, ...], force: bool
) -> None:
    """Write a module whose programs start in IMAGE as SITE runs it: `module load`, then `python3`.

    The folder has a module file for Lmod and one for Tcl modules, and in bin/ python, python3 and torchrun where the
    image has them, and NAME-exec, which runs any command in the image.
    """
    target = read_start_target(words)
    image = Path(target.recipe.file)
    first, _, last = _choose_name(name, image=image, site=target.site.name).partition("/")
    programs = dict(_list_wrapped(image, wrapped)) | {f"{first}-exec": ""}
    plan = make_module_plan(target, name=first, version=last, programs=programs)
    folder = write_start_folder(plan, output or Path(f"{first}-module"), what="module", force=force)
    emit(str(output or Path(f"{first}-module")))
    line = f"module use {quote(str(folder / MODULES))} && module load {first}/{last}"
    if not any(name in os.environ for name in SYSTEMS):
        echo("note: this shell has no modules; there it is the line with PATH", err=True)
        echo(f"next: export PATH={quote(str(folder / 'bin'))}:$PATH", err=True)
    echo(f"next: {line}", err=True)
    echo(f"next: {'python3 --version' if 'python3' in programs else f'{first}-exec sh'}", err=True)
    echo(escape_line(f"note: the folder may be moved; the image stays at {image}"), err=True)


def _choose_name(given: str | None, *, image: Path, site: str) -> str:
    """The module's name and version: those given, else the image's name and the site."""
    slug = slugify(image.stem).removesuffix(f"-{slugify(site)}") or "image"
    name = slug if given is None else given
    if not NAME.fullmatch(name):
        message = f"'{sanitize(name)}' cannot be the name of a module"
        fix = f"write letters, digits and any of ._+-, as in --name {slug}/{slugify(site)}"
        raise ConfigError(Finding(code="option-value", message=message, at=Location(key="--name"), fix=fix))
    return name if "/" in name else f"{name}/{slugify(site)}"


def _list_wrapped(image: Path, wrapped: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The names on PATH, each with its command: the usual ones that the image has, and those of --wrap."""
    known = list_programs(image)
    found = frozenset[str]().union(*known.values()) if known else None
    yield from ((name, name) for name in PROGRAMS if (name in found if found is not None else name == "python3"))
    if image.is_dir() and wrapped:
        message = f"'{sanitize(image.name)}' is an installation with wrappers of its own"
        fix = f"leave --wrap out: `export PATH={quote(str(image / 'bin'))}:$PATH` has them all"
        raise ConfigError(Finding(code="wrap-done", message=message, fix=fix))
    check_programs(image, programs=wrapped)
    for path in wrapped:
        yield from _list_below(image, path, known=known or {})


def _list_below(image: Path, path: str, *, known: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, str]]:
    """One program of the image, or all of a folder; raises ConfigError for a name that no script can have."""
    whole = PurePosixPath(path)
    names = known.get(str(whole).strip("/"))
    if names is not None:
        yield from ((name, str(whole / name)) for name in sorted(names) if PLAIN.fullmatch(name))
        return
    if not PLAIN.fullmatch(whole.name):
        message = f"'{sanitize(path)}' of '{sanitize(image.name)}' cannot be the name of a script"
        fix = "name a program of letters, digits and any of ._+@%-"
        raise ConfigError(Finding(code="wrap-path", message=message, at=Location(key="--wrap"), fix=fix))
    yield whole.name, str(whole)
