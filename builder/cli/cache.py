"""recipe cache: list, check and shrink the cache of layers."""

from __future__ import annotations

import math
import os
import time
from copy import copy

import click

from builder.cli.inputs import add_plain_verbosity
from builder.cli.output import color_verdict, color_word, echo, emit_document, format_option
from builder.execute.cache_maintenance import (
    COMPILED,
    check_files,
    explain_no_locks,
    is_layer_cache_missing,
    list_foreign,
    measure_downloads,
    open_cache,
    prune,
    prune_downloads,
)
from builder.layers.cache import CacheEntry
from builder.layers.private_folders import find_cache_folder
from builder.model.text import escape_line

SMALL = 50_000  # bytes: uv's marks in a folder that is as good as empty
SHOWN = 6  # files that are not recipe's in a message


@click.group("cache")
def run_command() -> None:
    """List, check or shrink the cache that builds with layers share (RECIPE_CACHE_DIR)."""


@run_command.command("ls", short_help="List its files, least recently used first.")
@format_option
@add_plain_verbosity
def list_entries(shape: str) -> None:
    """List the files of the cache, least recently used first."""
    rows = () if is_layer_cache_missing(os.environ) else open_cache(os.environ).list_entries()
    if shape == "json":
        fetched_bytes = {name: size for name, size in measure_downloads(os.environ).items() if size > SMALL}
        total = sum(row.size for row in rows)
        emit_document({"bytes": total, "files": [describe_entry(row) for row in rows], "downloads": fetched_bytes})
        return
    for row in rows:
        echo(format_entry(row))
    total = sum(row.size for row in rows)
    if rows or not is_layer_cache_missing(os.environ):
        echo(f"{len(rows)} files, {total / 1e6:.1f} MB", err=True)
    else:
        echo(f"there is no cache in '{find_cache_folder(os.environ)}' yet", err=True)
    fetched = ", ".join(
        f"{size / 1e6:.1f} MB by {name}" for name, size in measure_downloads(os.environ).items() if size > SMALL
    )
    if fetched:
        echo(f"downloaded: {fetched} (`recipe cache prune --downloads` removes it)", err=True)


@run_command.command("check", short_help="Check every file and remove altered ones.")
@add_plain_verbosity
def check() -> int:
    """Check the SHA-256 of every file and remove altered ones; exits with 5 if there were any."""
    if is_layer_cache_missing(os.environ):
        echo(color_verdict("ok    there is no cache yet", err=True), err=True)
        return 0
    store = open_cache(os.environ)
    altered, stray = check_files(store)
    for row in altered:
        what = "altered, still there" if os.path.lexists(row.path) else "altered, removed"
        echo(color_verdict(f"{what}: {format_entry(row)}"))
    for path in stray:
        echo(f"belongs to nothing, removed: {escape_line(str(path))}")
    echo(color_word("the cache is whole" if not altered else "builds make again what was altered", err=True), err=True)
    if said := explain_no_locks(store):
        echo(f"note: {said}", err=True)
    return 5 if altered else 0


former = copy(check)  # its name before: works, and is not in the help
former.name, former.hidden = "verify", True
run_command.add_command(former)


def _refuse_nan(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """Refuse `nan`, which is in every range."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("'nan' is not a number of GiB.")
    return value


@run_command.command("prune", short_help="Remove the least recently used files.")
@click.option(
    "--gib",
    type=click.FloatRange(min=0, max=2**40, max_open=True),
    callback=_refuse_nan,
    metavar="NUMBER",
    help="Size to shrink to; default: RECIPE_CACHE_GIB, else 40.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Print what it would remove, and remove nothing.")
@click.option("--downloads", "fetched", is_flag=True, help="Remove downloads and what was compiled from them, too.")
@add_plain_verbosity
def shrink(gib: float | None, fetched: bool, dry_run: bool) -> None:
    """Remove the least recently used files until the rest fits; files in use stay, and files of your own."""
    if is_layer_cache_missing(os.environ) and not any(measure_downloads(os.environ).values()):
        echo("there is no cache yet", err=True)
        return
    store, word = open_cache(os.environ), "would be removed" if dry_run else "removed"
    gone = prune(store, os.environ, gib=gib, dry_run=dry_run)
    for row in gone:
        echo(f"{word}: {format_entry(row)}")
    echo(f"{len(gone)} files, {sum(row.size for row in gone) / 1e6:.1f} MB {word}", err=True)
    if said := explain_no_locks(store):
        echo(f"note: {said}", err=True)
    if fetched:
        sizes = prune_downloads(store, without=gone, dry_run=dry_run)
        parts = ", ".join(
            f"{size / 1e6:.1f} MB {'compiled from them' if name == COMPILED else f'by {name}'}"
            for name, size in sizes.items()
            if size > SMALL
        )
        echo(f"{sum(sizes.values()) / 1e6:.1f} MB of downloads {word}{parts and f': {parts}'}", err=True)
    if foreign := list_foreign(store):
        more = f" and {len(foreign) - SHOWN} more" if len(foreign) > SHOWN else ""
        echo(escape_line(f"note: not made by recipe, kept: {', '.join(foreign[:SHOWN])}{more}"), err=True)


def describe_entry(row: CacheEntry) -> dict[str, object]:
    """One file of the cache as data; `used` is a time in seconds since 1970."""
    names = ("kind", "title", "key", "size", "used")
    return {**{name: getattr(row, name) for name in names}, "file": str(row.path)}


def format_entry(row: CacheEntry) -> str:
    """Write one file of the cache as a line."""
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.used))
    return escape_line(f"{row.kind:8}  {row.key[:12]}  {row.size / 1e6:9.1f} MB  {used}  {row.title}")
