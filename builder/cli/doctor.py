"""recipe doctor: what this machine has of what a build or a run needs."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from builder.cli.documents import emit_document, format_option
from builder.cli.inputs import plain_verbosity, sites_folder
from builder.cli.show import columns, echo, painted
from builder.execute.doctor import examine
from builder.model.catalog import load_site


@click.command("doctor")
@click.argument("site", required=False)
@format_option
@plain_verbosity
def command(site: str | None, shape: str) -> None:
    """Check engines, kernel features, space and GPU drivers of this machine, and what SITE needs.

    On a GPU node it reads the driver and compares it with the one that SITE's file names. Exits with 4 when something
    that SITE needs is missing.
    """
    loaded = load_site(site, folder=sites_folder()) if site else None
    readings = examine(loaded, environment=os.environ)
    if shape == "json":
        emit_document({"site": site, "readings": [asdict(reading) for reading in readings]})
    else:
        word = {"ok": "ok", "bad": "BAD", "none": "-"}
        echo(columns([[painted(word[reading.state]), reading.name, reading.says] for reading in readings]))
        for reading in readings:
            if reading.fix:
                echo(f"{reading.name}: {reading.fix}", err=True)
    if any(reading.state == "bad" for reading in readings):
        raise click.exceptions.Exit(4)
