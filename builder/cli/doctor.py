"""recipe doctor: check this machine for the tools and resources that recipe needs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict

import click

from builder.cli.inputs import plain_verbosity, sites_folder
from builder.cli.json_documents import emit_document, format_option
from builder.cli.output import columns, echo, painted
from builder.execute.doctor import examine, where_to_build
from builder.execute.doctor_readings import Reading
from builder.parse.site import load_site, site_files

WORDS = {"ok": "ok", "bad": "BAD", "none": "-"}


@click.command("doctor")
@click.argument("site", required=False)
@click.option("--offline", is_flag=True, help="Ask no server.")
@format_option
@plain_verbosity
def command(site: str | None, offline: bool, shape: str) -> None:
    """Check whether this machine can build for SITE, and what is missing.

    It looks at engines, kernel, places, network, Slurm and GPU driver, and changes nothing. On a GPU node it compares
    the driver with the one of SITE's file. The exit code is 4 when SITE's default backend cannot work here. Without
    SITE it prints which of all sites could be built here.
    """
    loaded = load_site(site, folder=sites_folder()) if site else None
    readings = list(examine(loaded, environment=os.environ, offline=offline))
    if loaded is None:
        sites = {name: load_site(name) for name in site_files()}
        readings += where_to_build(sites, environment=os.environ, known=readings)
    if shape == "json":
        emit_document({"site": site, "readings": [asdict(reading) for reading in readings]})
    else:
        _show(readings)
    if any(reading.state == "bad" for reading in readings):
        raise click.exceptions.Exit(4)


def _show(readings: Sequence[Reading]) -> None:
    """Print the readings by group, each with its fix below."""
    width = max(len(reading.name) for reading in readings)
    for group in dict.fromkeys(reading.group for reading in readings):
        echo(group)
        for reading in (one for one in readings if one.group == group):
            echo(columns([["", painted(WORDS[reading.state].ljust(3)), reading.name.ljust(width), reading.says]]))
            if reading.fix:
                echo(f"    fix: {reading.fix}")
