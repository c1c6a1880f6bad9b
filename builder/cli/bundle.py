"""recipe bundle: one file that builds an image on a machine without a network and without recipe."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from builder.cli.help import GroupedCommand
from builder.cli.input_options import add_input_options, read_choice
from builder.cli.inputs import (
    add_decision_options,
    add_ignore_option,
    add_locked_option,
    add_verbosity,
    find_sites_folder,
    make_context,
)
from builder.cli.options import check_tmpdir, make_printer
from builder.cli.output import emit
from builder.cli.paths import OutputFile
from builder.cli.targets import add_words_argument, read_words
from builder.cli.terminal import Terminal
from builder.cli.typed import quote
from builder.execute.build_options import ExecutionOptions
from builder.execute.bundle import BundlePart, check_bundle, find_suffix, list_parts, write_bundle
from builder.execute.uv_values import check_uv_values
from builder.model.finding import BuilderError, ConfigError, Finding, Location
from builder.parse.lock_files import read_lock
from builder.parse.recipe import name_index
from builder.pipeline.build import plan_builds
from builder.pipeline.request import Build, BuildRequest

NEEDS = "Python 3.10 or newer, apptainer or singularity, squashfs-tools 4.4 or newer"

ARCHIVE = re.compile(rb"\x28\xb5\x2f\xfd|\x1f\x8b|[\s\S]{257}ustar")  # zstd, gzip, tar


@click.command("bundle", cls=GroupedCommand)
@add_words_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The file: .tar.zst, .tar.gz or .tar; default: NAME.tar.zst.",
)
@click.option("-f", "--force", is_flag=True, help="Replace an output that exists.")
@click.option("-n", "--dry-run", "dry_run", is_flag=True, help="Print what it will hold, and write nothing.")
@click.option(
    "--tmpdir", type=click.Path(path_type=Path), help="Temporary folder.", envvar="RECIPE_TMPDIR", show_envvar=True
)
@add_ignore_option
@add_locked_option
@add_input_options
@add_decision_options
@add_verbosity
def run_command(
    words: tuple[str, ...], output: Path | None, force: bool, dry_run: bool, tmpdir: Path | None, verbose: int,
    quiet: bool, ignored: tuple[str, ...], **chosen: Any,
) -> None:  # fmt: skip
    """Pack the plan, base image, packages and programs of ENV for SITE into one file.

    It builds the image on a machine without any network and without recipe: `tar xf FILE`, `bash NAME/build.sh`.
    Only the backend `layers` can do it. Everything is downloaded for the bundle alone, and tried without a network.
    """
    named = read_words(words)
    tell = make_printer(quiet=quiet)
    if named.note:
        tell(named.note)
    check_tmpdir(tmpdir)
    check_uv_values(os.environ)
    request = BuildRequest(
        sites=named.sites,
        files=named.files,
        choice=read_choice(named.files),
        sites_folder=find_sites_folder(),
        context=replace(make_context(**chosen), ignored=ignored),
        options=ExecutionOptions(environment=dict(os.environ), tmpdir=tmpdir),
    )
    found = _plan_one(request)
    target = output or Path(f"{Path(found.plan.image).stem}.tar.zst")
    find_suffix(target)
    _check_output(target, recipe=Path(found.recipe.file), force=force)
    check_bundle(found.plan, backends=found.site.build.backends, output=target)
    terminal = Terminal(verbose=bool(verbose), quiet=quiet)
    terminal.report_plan(found.plan.target, found)
    _announce(found, target, tell=tell)
    if dry_run:
        return
    _write(found, target, options=request.options, terminal=terminal, tell=tell)


def _write(found: Build, target: Path, *, options: ExecutionOptions, terminal: Terminal, tell: Any) -> None:
    size = write_bundle(
        found.plan,
        target,
        backends=found.site.build.backends,
        recipe_folder=found.home,
        options=options,
        progress=terminal.choose_progress(),
        tell=tell,
    )
    tell(f"{target}: {size / 2**20:.0f} MB")
    emit(str(target))
    name = target.name.removesuffix(find_suffix(target))
    tell(f"next: tar xf {quote(target.name)} && bash {quote(f'{name}/build.sh')}")


def _plan_one(request: BuildRequest) -> Build:
    """The plan of the one build; raises ConfigError for several, and what refuses it."""
    planned = plan_builds(request, what="bundles")
    if len(planned) != 1:
        message = f"a bundle is of one recipe for one site, and these are {len(planned)}"
        raise ConfigError(Finding(code="usage", message=message, fix="name one SITE and one ENV, and run it for each"))
    (found,) = planned.values()
    if isinstance(found, BuilderError):
        raise found
    return found


def _is_archive(head: bytes) -> bool:
    return ARCHIVE.match(head) is not None


def _check_output(target: Path, *, recipe: Path, force: bool) -> None:
    """Raise ConfigError for a file that is no bundle, and without `force` for one that is."""
    file = OutputFile(path=target, what="a bundle", is_own=_is_archive, option="-o", inputs=[("the recipe", recipe)])
    file.check()
    if target.exists() and not force:
        message, at = f"'{target}' is already there", Location(file=str(target))
        fix = "add --force to replace it, or choose another file with -o"
        raise ConfigError(Finding(code="output-exists", message=message, at=at, fix=fix))


def _announce(found: Build, target: Path, *, tell: Any) -> None:
    tell(f"{target} will hold:")
    lock = read_lock(name_index(Path(found.recipe.file)), found.site.name)
    packages = sum([*(one.size for one in lock.conda), *(one.size for one in lock.pip)]) if lock else None
    for part in list_parts(found.plan, packages=packages):
        tell(f"  {_format_size(part):>9}  {part.what}")
    tell(f"where it is unpacked it needs {found.site.node.arch}, {NEEDS}")


def _format_size(part: BundlePart) -> str:
    if part.size is None:
        return "unknown"
    return f"{part.size / 2**20:.1f} MB" if part.size >= 1 << 19 else f"{part.size / 2**10:.0f} kB"
