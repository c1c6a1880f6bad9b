"""recipe sites: list the sites, or show one with the source of every fact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import click

from builder.cli.inputs import add_plain_verbosity, find_sites_folder
from builder.cli.output import echo, emit_document, format_columns, format_option, show_findings
from builder.model.finding import BuilderError, Finding
from builder.model.site import Site
from builder.parse.site import find_site_files, load_site


@click.command("sites")
@click.argument("site", required=False)
@format_option
@add_plain_verbosity
def run_command(site: str | None, shape: str) -> None:
    """List the sites, or show all facts about SITE with their sources.

    Your own sites are in the folders of $RECIPE_SITES (a list as PATH), in ~/.config/recipe/sites and in
    /etc/xdg/recipe/sites, one YAML file each; `extends: NAME` inherits from another one.
    """
    if site is not None:
        loaded = load_site(site, folder=find_sites_folder())
        if shape == "json":
            emit_document(asdict(loaded))
        else:
            echo(_format_site(loaded))
        return
    found, faults = list[Site](), list[Finding]()
    for name in find_site_files(find_sites_folder()):
        try:
            found.append(load_site(name, folder=find_sites_folder()))
        except BuilderError as error:
            faults += error.findings
    show_findings(faults)
    if shape == "json":
        rows = [{"name": item.name, "vendor": item.vendor, "backends": item.build.backends} for item in found]
        emit_document({"sites": rows, **({"findings": [asdict(finding) for finding in faults]} if faults else {})})
        return
    table = [["site", "GPU", "what it is"], *([item.name, item.vendor, item.description] for item in found)]
    echo(format_columns(table))


def _format_site(site: Site) -> str:
    lines = [f"{site.name}: {site.title}, {site.description}", ""]
    for field in fields(site):
        value = getattr(site, field.name)
        if field.name in ("name", "title", "description", "sources") or value in (None, (), {}, ""):
            continue
        lines += [f"{field.name.replace('_', ' ')}", *[f"  {line}" for line in _format_lines(value)], ""]
    lines.append("sources")
    lines += [f"  {name} ({source.checked}): {source.what}" for name, source in site.sources.items()]
    return "\n".join(lines)


def _format_lines(value: Any) -> list[str]:
    if is_dataclass(value):
        lines = []
        for field in fields(value):
            item = getattr(value, field.name)
            if item in ((), {}, ""):
                continue
            if is_dataclass(item) or (isinstance(item, (Mapping, tuple)) and field.name != "source"):
                lines += [f"{field.name.replace('_', ' ')}:", *[f"  {line}" for line in _format_lines(item)]]
            else:
                lines.append(f"{field.name.replace('_', ' ')}: {_format_value(item)}")
        return lines
    if isinstance(value, Mapping):
        lines = []
        for name, item in value.items():
            lines += (
                [f"{name}: {_format_value(item)}"]
                if isinstance(item, (str, int))
                else [f"{name}:", *[f"  {line}" for line in _format_lines(item)]]
            )
        return lines
    if isinstance(value, tuple):
        return [
            line
            for item in value
            for line in (_format_lines(item) if is_dataclass(item) else [f"- {_format_value(item)}"])
        ]
    return [_format_value(value)]


def _format_value(value: Any) -> str:
    if value is None:
        return "unknown"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
