"""recipe doctor: check this machine for the tools and resources that recipe needs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from builder.cli.config import describe_file
from builder.cli.file_kinds import find_kind
from builder.cli.inputs import add_plain_verbosity, find_sites_folder, make_context
from builder.cli.output import StyledText, color_word, echo, emit_document, format_columns, format_option
from builder.cli.settings import get_settings, list_config_paths
from builder.cli.typed import make_typed_line
from builder.cli.variables import find_wrong, show_value, suggest_value
from builder.execute.doctor import examine, examine_sites
from builder.execute.doctor_readings import Reading
from builder.execute.uv_values import find_uv_faults
from builder.model.finding import BuilderError, ConfigError, Finding
from builder.parse.recipe import load_recipe
from builder.parse.site import find_site_files, load_site

WORDS = {"ok": "ok", "bad": "BAD", "none": "-"}


@click.command("doctor")
@click.argument("words", metavar="[SITE] [ENV]", nargs=-1)
@click.option("--offline", is_flag=True, help="Ask no server.")
@format_option
@add_plain_verbosity
def run_command(words: tuple[str, ...], offline: bool, shape: str) -> None:
    """Check whether this machine can build for SITE, and what is missing.

    It looks at engines, kernel, places, network, Slurm and GPU driver, and changes nothing. On a GPU node it compares
    the driver with the one of SITE's file. The exit code is 4 when SITE's default backend cannot work here, or a
    RECIPE_* variable is wrong. Without SITE it prints which of all sites could be built here. With ENV it asks the
    indexes that the file names, too.
    """
    site, file = _read_words(words)
    loaded = load_site(site, folder=find_sites_folder()) if site else None
    recipe = load_recipe(file) if file else None
    tell = partial(echo, err=True)
    readings = list(examine(loaded, environment=os.environ, offline=offline, recipe=recipe, tell=tell))
    readings += _list_config_files(os.environ)
    readings += _check_variables(os.environ)
    if loaded is None:
        sites = {name: load_site(name) for name in find_site_files()}
        readings += examine_sites(sites, environment=os.environ, known=readings)
    if shape == "json":
        emit_document({"site": site, "readings": [asdict(reading) for reading in readings]})
    else:
        _show(readings)
    if any(reading.state == "bad" for reading in readings):
        raise click.exceptions.Exit(4)


def _read_words(words: Sequence[str]) -> tuple[str | None, Path | None]:
    """The site and the environment file, each None where it is not named; raises ConfigError for anything else."""
    known = find_site_files(find_sites_folder())
    is_file = bool(words) and words[0] not in known and find_kind(Path(words[0])) == "an environment file"
    late = words[1] if len(words) > 1 and words[1] in known else ""
    if len(words) > 2 or late or (is_file and len(words) == 2):
        line = make_typed_line([late, words[0]] if is_file and late else words[: 1 if late or is_file else 2])
        message = "'doctor' takes one site and, after it, one environment file"
        raise ConfigError(Finding(code="usage", message=message, fix=f"`{line}`"))
    if is_file:
        return None, Path(words[0])
    return (words[0] if words else None), (Path(words[1]) if len(words) == 2 else None)


def _list_config_files(environment: Mapping[str, str]) -> Iterator[Reading]:
    """A reading for each file of settings: `recipe config` shows what is in it."""
    settings = get_settings()
    for path, owner in list_config_paths(environment):
        state = describe_file(path, settings)
        says = f"{path}, {state}" + ("; see `recipe config`" if state == "not used" else "")
        yield Reading(name=f"{owner} file", state="ok" if state == "read" else "none", says=says, group="settings")


def _check_variables(environment: Mapping[str, str]) -> Iterator[Reading]:
    """A reading for each variable whose value a command would refuse."""
    for name, wrong in find_wrong(environment).items():
        says = f"'{show_value(environment[name])}': {wrong}"
        yield Reading(name=name, state="bad", says=says, fix=suggest_value(name), group="variables")
    for finding in find_uv_faults(environment):
        name = finding.at.key if finding.at else ""
        yield Reading(name=name, state="bad", says=finding.message, fix=finding.fix, group="variables")
    try:
        make_context(account=environment.get("SBATCH_ACCOUNT"))  # reads the ones that are no option
    except BuilderError as error:
        for finding in error.findings:
            name = finding.at.key if finding.at else ""
            yield Reading(name=name, state="bad", says=finding.message, fix=finding.fix, group="variables")


def _show(readings: Sequence[Reading]) -> None:
    """Print the readings by group, each with its fix below."""
    width = max(len(reading.name) for reading in readings)
    for group in dict.fromkeys(reading.group for reading in readings):
        echo(group)
        for reading in (one for one in readings if one.group == group):
            word = color_word(WORDS[reading.state]) + " " * (3 - len(WORDS[reading.state]))
            echo(format_columns([["", StyledText(word), reading.name.ljust(width), reading.says]]))
            if reading.fix:
                echo(f"    fix: {reading.fix}")
