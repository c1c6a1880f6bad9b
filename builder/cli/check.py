"""recipe check: what would become of an environment on one site, several or all."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from builder.cli.inputs import choices, context_of, make_plan, sites_folder
from builder.cli.show import columns, show_findings
from builder.model.catalog import load_site, site_files
from builder.model.finding import BuilderError, ConfigError, Finding, UnsupportedError, errors
from builder.model.load import load_recipe
from builder.model.recipe import Recipe
from builder.model.target import Context


@click.command("check")
@click.argument("words", nargs=-1, required=True, metavar="[SITE]... ENV")
@click.option("--format", "shape", type=click.Choice(["text", "json"]), default="text", show_default=True)
@choices
def command(
    words: tuple[str, ...],
    shape: str,
    account: str | None,
    backend: str | None,
    base: str | None,
    torch_index: str | None,
) -> None:
    """Say what would become of ENV on each SITE; without a site, on all of them.

    Leaves with 3 when it cannot run on one of the sites that were named.
    """
    *sites, env = words
    context = context_of(account=account, backend=backend, base=base, torch_index=torch_index)
    recipe = load_recipe(Path(env))
    names = sites or list(site_files(sites_folder()))
    results = [_check(name, recipe=recipe, context=context) for name in names]
    if shape == "json":
        click.echo(json.dumps([_plain(*result) for result in results], indent=2))
    else:
        click.echo(columns([["site", "outcome", "torch", "base image"], *[_row(*result) for result in results]]))
        for name, _, findings in results:
            if findings and sites:
                click.echo(f"\n{name}:", err=True)
                show_findings(findings)
    if sites and any(errors(findings) for _, _, findings in results):
        raise click.exceptions.Exit(3)


def _check(name: str, *, recipe: Recipe, context: Context) -> tuple[str, tuple[str, str], tuple[Finding, ...]]:
    site = load_site(name, folder=sites_folder())
    try:
        plan = make_plan(site, recipe, context=context)
    except UnsupportedError as error:
        return name, ("-", "-"), error.findings
    except ConfigError:
        raise
    except BuilderError as error:
        return name, ("-", "-"), error.findings
    return name, (plan.expect.get("torch", "-"), plan.base), plan.findings


def _row(name: str, stack: tuple[str, str], findings: tuple[Finding, ...]) -> list[str]:
    refused = errors(findings)
    outcome = f"refused: {refused[0].code}" if refused else "warnings" if _warned(findings) else "ok"
    return [name, outcome, *stack]


def _warned(findings: tuple[Finding, ...]) -> bool:
    return any(finding.level == "warning" for finding in findings)


def _plain(name: str, stack: tuple[str, str], findings: tuple[Finding, ...]) -> dict[str, object]:
    return {
        "site": name,
        "ok": not errors(findings),
        "torch": stack[0],
        "base": stack[1],
        "findings": [asdict(finding) for finding in findings],
    }
