"""recipe doctor: check this machine for the tools and resources that recipe needs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

import click

from builder.cli.inputs import add_plain_verbosity, find_sites_folder, make_context
from builder.cli.json_documents import emit_document, format_option
from builder.cli.output import StyledText, color_word, echo, format_columns
from builder.cli.variables import find_wrong, suggest_value
from builder.execute.doctor import examine, examine_sites
from builder.execute.doctor_readings import Reading
from builder.model.finding import BuilderError
from builder.model.text import sanitize
from builder.parse.site import find_site_files, load_site

WORDS = {"ok": "ok", "bad": "BAD", "none": "-"}


@click.command("doctor")
@click.argument("site", required=False)
@click.option("--offline", is_flag=True, help="Ask no server.")
@format_option
@add_plain_verbosity
def run_command(site: str | None, offline: bool, shape: str) -> None:
    """Check whether this machine can build for SITE, and what is missing.

    It looks at engines, kernel, places, network, Slurm and GPU driver, and changes nothing. On a GPU node it compares
    the driver with the one of SITE's file. The exit code is 4 when SITE's default backend cannot work here, or a
    RECIPE_* variable is wrong. Without SITE it prints which of all sites could be built here.
    """
    loaded = load_site(site, folder=find_sites_folder()) if site else None
    readings = list(examine(loaded, environment=os.environ, offline=offline))
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


def _check_variables(environment: Mapping[str, str]) -> Iterator[Reading]:
    """A reading for each variable whose value a command would refuse."""
    for name, wrong in find_wrong(environment).items():
        says = f"'{sanitize(environment[name], limit=200)}': {wrong}"
        yield Reading(name=name, state="bad", says=says, fix=suggest_value(name), group="variables")
    try:
        make_context()  # reads the ones that are no option
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
