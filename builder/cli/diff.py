"""recipe diff: compare two images, two locks, or an image and its lock by packages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Union

import click

from builder.cli.file_kinds import IMAGES, find_kind, list_environments, list_images
from builder.cli.image_arguments import read_image, warn_of_unknown
from builder.cli.inputs import add_plain_verbosity
from builder.cli.output import echo, emit_document, format_columns, format_option, json_option
from builder.cli.paths import find_image_of, suggest_image, write_line
from builder.cli.targets import choose_site, name_environment
from builder.cli.typed import make_typed_line, quote
from builder.model.contents import (
    Change,
    Contents,
    InstalledPackage,
    compare_packages,
    list_locked_packages,
    select_own_packages,
)
from builder.model.finding import BuilderError, ConfigError, Finding, Location, find_nearest
from builder.model.lock import Lock
from builder.model.text import exists, sanitize
from builder.parse.lock_files import read_index, read_lock
from builder.parse.recipe import load_recipe, name_index
from builder.parse.yaml import suggest_path
from builder.system.files import check_reachable

Side = Union[Contents, Lock]  # noqa: UP007 - used at run time on Python 3.10


@click.command("diff")
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, metavar="A B")
@click.option(
    "--site", "sites", multiple=True, metavar="SITE", help="The site of a lock; of both locks where it is given twice."
)
@format_option
@json_option
@add_plain_verbosity
@click.pass_context
def run_command(
    context: click.Context, paths: tuple[Path, ...], sites: tuple[str, ...], shape: str, as_json: bool
) -> None:
    """Compare A and B package by package; exits with 0 if they are the same and with 1 if they differ.

    Where an image could be read in part only and what was read is the same, nothing is known of the rest: exits with 2.

    A and B are images (see `recipe inspect`) or locks: NAME.lock.yml, or its environment file. Of an image and a
    lock only the locked environment is compared, not the base image's packages.
    """
    if len(paths) != 2:
        raise _not_two(paths)
    one, two = _sides(paths, sites=sites)
    # The site of a lock is that of the image, where there is one.
    left = one if isinstance(one, (Contents, Lock)) else _lock(one, _find_site(two))
    right = two if isinstance(two, (Contents, Lock)) else _lock(two, _find_site(one))
    partial = bool(isinstance(left, Contents) and left.unknown), bool(isinstance(right, Contents) and right.unknown)
    changes = compare_packages(_select_packages(left, right), _select_packages(right, left), partial=partial)
    if as_json or shape == "json":
        rows = [
            {"kind": one.kind, "name": one.name, "before": one.before, "after": one.after, "what": one.what}
            for one in changes
        ]
        emit_document({"same": None if any(partial) and not changes else not changes, "changes": rows})
    elif changes:
        echo(format_columns([_make_row(change) for change in changes]))
    elif not any(partial):
        echo("no difference", err=True)
    if any(partial) and not changes:
        path = paths[partial.index(True)]
        message = f"it is not known whether they are the same: not all of '{sanitize(str(path))}' could be read"
        fix = "compare images that can be read whole, or each with the lock of its build"
        raise ConfigError(Finding(code="image-unreadable", message=message, fix=fix))
    context.exit(1 if changes else 0)


def _make_row(change: Change) -> tuple[str, str, str, str]:
    sign = {"added": "+", "removed": "-", "changed": "~", "unknown": "?"}[change.what]
    lacks = "unknown" if change.unknown else "-"
    told = [", ".join(versions) or lacks for versions in (change.before, change.after)]
    versions = f"{told[0]} -> {told[1]}" if change.what in ("changed", "unknown") else "".join(told).strip("-")
    return sign, change.kind, change.name, versions


def _not_two(paths: Sequence[Path]) -> ConfigError:
    """The error for one path, for none or for too many, with the line that has two."""
    given = [str(path) for path in paths]
    said = {0: "no path is named", 1: f"only '{sanitize(given[0])}' is named" if given else ""}
    if len(given) == 1 and not exists(paths[0]):
        said[1] += ", which does not exist"
    message = f"diff compares two images or locks, and {said.get(len(given), f'{len(given)} are named')}"
    return ConfigError(Finding(code="usage", message=message, fix=_complete(given)))


def _complete(given: Sequence[str]) -> str:
    """The line with two paths that can be compared, or the one that makes such a file."""
    fit = [name for name in given if _is_comparable(name)]
    found = [*list_images(), *list_environments(), *sorted(str(path) for path in Path().glob("*.lock.yml"))]
    here = [name for name in found if _is_comparable(name, alone=True)]
    two = list(dict.fromkeys([*fit, *here]))[:2]
    lock = next((name for name in [*given, *list_environments()] if exists(Path(name)) and _is_lockable(name)), "")
    if len(two) == 2 and (len(fit) == len(given) or len(given) > 2):
        return f"`{make_typed_line(two)}`"
    if len(given) == 1 and not fit and exists(Path(given[0])) and _is_lockable(given[0]):
        then = f"then `{make_typed_line([*given, two[0]])}`" if two else "then name an image or another lock, too"
        return f"lock it first: `recipe lock {choose_site()} {quote(given[0])}`; {then}"
    if len(two) == 2:
        return f"'{sanitize(given[0])}' is neither an image nor a lock here: `{make_typed_line(two)}`"
    if given and given[0].endswith(IMAGES) and not exists(Path(given[0])):
        return f"{suggest_image(Path(given[0]))}; then name another to compare it with, too"
    build = f"`recipe build {choose_site()} {quote(lock or name_environment())}` builds an image"
    make = f"`recipe lock {choose_site()} {quote(lock)}` makes a lock, and {build}" if lock else build
    return f"there is nothing to compare{' it with' if given else ''} in this folder: {make}"


def _is_comparable(name: str, *, alone: bool = False) -> bool:
    """Whether a path is an image, a lock, or an environment file with one; `alone`: without an option, too."""
    kind = find_kind(Path(name))
    if kind not in ("an environment file", "a lock"):
        return kind in ("an image", "an archive")
    index = Path(name) if kind == "a lock" else name_index(Path(name))
    with suppress(BuilderError):
        return exists(index) and bool(_lock(index, "") if alone else read_index(index))
    return False


def _is_lockable(name: str) -> bool:
    """Whether a path is an environment file without a fault."""
    if find_kind(Path(name)) != "an environment file":
        return False
    with suppress(BuilderError):
        return bool(load_recipe(Path(name)).digest)
    return False


def _sides(paths: Sequence[Path], *, sites: tuple[str, ...]) -> list[Side | Path]:
    """Read both; raises ConfigError with the faults of both."""
    found, faults = list[Side | Path](), list[Finding]()
    for path, site in zip(paths, (sites[:1], sites[-1:]), strict=True):
        try:
            check_reachable(path)
            found.append(_read_side(path, site))
        except ConfigError as error:
            faults += error.findings
    if sites and found and all(isinstance(side, Contents) for side in found):
        message = "--site names the site of a lock, and both are images"
        raise ConfigError(Finding(code="usage", message=message, fix="leave out --site"))
    if faults:
        raise ConfigError(*(_of_plans(finding, paths) for finding in dict.fromkeys(faults)))
    return found


def _of_plans(finding: Finding, paths: Sequence[Path]) -> Finding:
    """A finding on plan folders, with the line that compares their images, or what was measured of them."""
    if not all(find_kind(path) == "a plan folder" for path in paths):
        return finding
    images = [image for path in paths if (image := find_image_of(path))]
    command, names = ("diff", images) if len(images) == len(paths) else ("report", list(paths))
    end = "" if command == "diff" else " compares what was measured"
    return dataclasses.replace(finding, fix=f"{write_line(command, list(map(str, names)))}{end}")


def _read_side(path: Path, sites: tuple[str, ...]) -> Side | Path:
    """Read an image or a lock; the index of a lock whose site is not known yet."""
    if not exists(path) and (near := _find_near_lock(path)):
        message, fix = f"'{sanitize(str(path), limit=400)}' does not exist", f"did you mean '{sanitize(near)}'?"
        raise ConfigError(Finding(code="path-missing", message=message, fix=fix, at=Location(file=str(path))))
    if path.suffix not in (".yml", ".yaml", ".txt") or path.is_dir():
        contents = read_image(path, command="diff", takes="an image or a lock")
        warn_of_unknown(contents)
        return contents
    index = path if path.name.endswith(".lock.yml") else name_index(path)
    if not exists(index):
        of = next((name for name in list_environments() if name_index(Path(name)) == index), "")
        file = str(path) if path != index and exists(path) else of
        message, fix = f"there is no lock '{index}'", f"make it: `recipe lock {_site(sites)} {quote(file)}`"
        if not file:
            message, fix = f"'{path}' does not exist", suggest_path(path)
        raise ConfigError(Finding(code="lock-missing", message=message, fix=fix, at=Location(file=str(path))))
    return _lock(index, sites[0]) if sites else index


def _find_near_lock(path: Path) -> str:
    """The lock that is meant by a path with the ending of one; "" where none is near."""
    if ".lock" not in path.name or not path.parent.is_dir():
        return ""
    locks = {one.name: str(one) for one in path.parent.glob("*.lock.yml")}
    return locks.get(f"{path.name}.yml", "") or locks.get(find_nearest(path.name, known=locks), "")


def _site(sites: Sequence[str]) -> str:
    return sites[0] if sites else choose_site()


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
