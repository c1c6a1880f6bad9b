"""recipe diff: compare two images, two locks, or an image and its lock by packages."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Union

import click

from builder.cli.inputs import add_plain_verbosity
from builder.cli.json_documents import emit_document, format_option, json_option
from builder.cli.output import echo, format_columns
from builder.inspect.image import read_contents
from builder.model.contents import (
    Change,
    Contents,
    InstalledPackage,
    compare_packages,
    list_locked_packages,
    select_own_packages,
)
from builder.model.finding import ConfigError, Finding, Location
from builder.model.lock import Lock
from builder.model.text import exists
from builder.parse.lock_files import name_index, read_index, read_lock

Side = Union[Contents, Lock]  # noqa: UP007 - used at run time on Python 3.10


@click.command("diff")
@click.argument("before", type=click.Path(path_type=Path), metavar="A")
@click.argument("after", type=click.Path(path_type=Path), metavar="B")
@click.option(
    "--site", "sites", multiple=True, metavar="SITE", help="The site of a lock; of both locks where it is given twice."
)
@format_option
@json_option
@add_plain_verbosity
@click.pass_context
def run_command(
    context: click.Context, before: Path, after: Path, sites: tuple[str, ...], shape: str, as_json: bool
) -> None:
    """Compare A and B package by package; exits with 0 if they are the same and with 1 if they differ.

    A and B are images (see `recipe inspect`) or locks: NAME.lock.yml, or its environment file. Of an image and a
    lock only the locked environment is compared, not the base image's packages.
    """
    one, two = _read_side(before, sites[:1]), _read_side(after, sites[-1:])
    # The site of a lock is that of the image, where there is one.
    left = one if isinstance(one, (Contents, Lock)) else _lock(one, _find_site(two))
    right = two if isinstance(two, (Contents, Lock)) else _lock(two, _find_site(one))
    changes = compare_packages(_select_packages(left, right), _select_packages(right, left))
    if as_json or shape == "json":
        rows = [{**dataclasses.asdict(change), "what": change.what} for change in changes]
        emit_document({"same": not changes, "changes": rows})
    elif changes:
        echo(format_columns([_make_row(change) for change in changes]))
    context.exit(1 if changes else 0)


def _make_row(change: Change) -> tuple[str, str, str, str]:
    sign = {"added": "+", "removed": "-", "changed": "~"}[change.what]
    told = [", ".join(versions) or "-" for versions in (change.before, change.after)]
    versions = f"{told[0]} -> {told[1]}" if change.what == "changed" else "".join(told).strip("-")
    return sign, change.kind, change.name, versions


def _read_side(path: Path, sites: tuple[str, ...]) -> Side | Path:
    """Read an image or a lock; the index of a lock whose site is not known yet."""
    if path.suffix not in (".yml", ".yaml", ".txt") or path.is_dir():
        return read_contents(path)
    index = path if path.name.endswith(".lock.yml") else name_index(path)
    if not exists(index):
        message, fix = f"there is no lock '{index}'", "make it with `recipe lock SITE ENV`, or check the path"
        raise ConfigError(Finding(code="lock-missing", message=message, fix=fix, at=Location(file=str(path))))
    return _lock(index, sites[0]) if sites else index


def _find_site(side: Side | Path) -> str:
    if isinstance(side, Lock):
        return side.site
    return side.labels.get("recipe.site", "") if isinstance(side, Contents) else ""


def _lock(index: Path, site: str) -> Lock:
    """The lock of a site, or the only one if no site is known."""
    found = read_index(index)
    names = sorted(found.sites) if found else []
    chosen = site if site in names or not site else ""
    chosen = chosen or (names[0] if len(names) == 1 and not site else "")
    lock = read_lock(index, chosen) if chosen else None
    if lock is None:
        message = f"the lock '{index}' has no site '{site}'" if site else f"the lock '{index}' has several sites"
        fix = f"name one of them with --site: {', '.join(names)}"
        raise ConfigError(Finding(code="lock-site", message=message, fix=fix, at=Location(file=str(index))))
    return lock


def _select_packages(side: Side, other: Side) -> tuple[InstalledPackage, ...]:
    """The packages of a side that are compared with the other's."""
    if isinstance(side, Lock):
        return list_locked_packages(side)
    return select_own_packages(side, other) if isinstance(other, Lock) else side.packages
