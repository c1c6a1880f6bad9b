"""recipe doctor: what this machine has of what a build or a run needs."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

import click

from builder.cli.inputs import sites_folder
from builder.cli.show import columns, echo, emit
from builder.execute.doctor import examine
from builder.model.catalog import load_site


@click.command("doctor")
@click.argument("site", required=False)
@click.option("--format", "shape", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(site: str | None, shape: str) -> None:
    """Say what is here of engines, kernel features, space and GPU drivers, and what SITE would need.

    On a GPU node it reads the driver and compares it with the one that SITE's file names. Leaves with 4 when something
    that SITE needs is missing.
    """
    loaded = load_site(site, folder=sites_folder()) if site else None
    readings = examine(loaded, environment=os.environ)
    if shape == "json":
        emit(json.dumps([asdict(reading) for reading in readings], indent=2))
    else:
        word = {"ok": "ok", "bad": "BAD", "none": "-"}
        echo(columns([[word[reading.state], reading.name, reading.says] for reading in readings]))
        for reading in readings:
            if reading.fix:
                echo(f"{reading.name}: {reading.fix}", err=True)
    if any(reading.state == "bad" for reading in readings):
        raise click.exceptions.Exit(4)
