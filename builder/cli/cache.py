"""recipe cache: list, check and shrink the cache of layers."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from copy import copy
from dataclasses import asdict

import click

from builder.cli.inputs import add_plain_verbosity
from builder.cli.json_documents import emit_document, format_option
from builder.cli.output import color_verdict, color_word, echo
from builder.execute.layer_cache import (
    CacheItem,
    check_files,
    explain_no_locks,
    is_layer_cache_missing,
    list_items,
    measure_downloads,
    open_cache,
    prune,
    prune_downloads,
)
from builder.layers.cache_folders import find_cache_folder
from builder.model.text import escape_line

SMALL = 50_000  # bytes: uv's marks in a folder that is as good as empty


@click.group("cache")
def run_command() -> None:
    """List, check or shrink the cache that builds with layers share (RECIPE_CACHE_DIR)."""


@run_command.command("ls", short_help="List its files, least recently used first.")
@format_option
@add_plain_verbosity
def list_entries(shape: str) -> None:
    """List the files of the cache, least recently used first."""
    rows = () if is_layer_cache_missing(os.environ) else list_items(open_cache(os.environ))
    if shape == "json":
        fetched_bytes = {name: size for name, size in measure_downloads(os.environ).items() if size > SMALL}
        total = sum(row.size for row in rows)
        emit_document({"bytes": total, "files": [asdict(row) for row in rows], "downloads": fetched_bytes})
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
        what = "altered, still there" if os.path.lexists(row.file) else "altered, removed"
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


@run_command.command("prune", short_help="Remove the least recently used files.")
@click.option(
    "--gib",
    type=click.FloatRange(min=0),
    metavar="NUMBER",
    help="Size to shrink to; default: RECIPE_CACHE_GIB, else 40.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Print what it would remove, and remove nothing.")
@click.option("--downloads", "fetched", is_flag=True, help="Remove downloads and what was compiled from them, too.")
@add_plain_verbosity
def shrink(gib: float | None, fetched: bool, dry_run: bool) -> None:
    """Remove the least recently used files until the rest fits; files in use stay."""
    if is_layer_cache_missing(os.environ):
        echo("there is no cache yet", err=True)
        return
    store = open_cache(os.environ)
    if dry_run:
        _show_surplus(prune(store, os.environ, gib=gib, dry_run=True), fetched=fetched)
        return
    gone = prune(store, os.environ, gib=gib)
    for row in gone:
        echo(f"removed: {format_entry(row)}")
    echo(f"{len(gone)} files, {sum(row.size for row in gone) / 1e6:.1f} MB removed", err=True)
    if said := explain_no_locks(store):
        echo(f"note: {said}", err=True)
    if fetched:
        echo(f"{prune_downloads(store, os.environ) / 1e6:.1f} MB of downloads removed", err=True)


def _show_surplus(rows: Sequence[CacheItem], *, fetched: bool) -> None:
    """Print what would be removed."""
    for row in rows:
        echo(f"would be removed: {format_entry(row)}")
    echo(f"{len(rows)} files, {sum(row.size for row in rows) / 1e6:.1f} MB would be removed", err=True)
    if fetched:
        size = sum(measure_downloads(os.environ).values())
        echo(f"{size / 1e6:.1f} MB of downloads, and what was compiled from them, would be removed", err=True)


def format_entry(row: CacheItem) -> str:
    """Write one file of the cache as a line."""
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.used))
    return escape_line(f"{row.kind:8}  {row.key[:12]}  {row.size / 1e6:9.1f} MB  {used}  {row.title}")
