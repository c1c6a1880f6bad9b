"""recipe check: what would become of an environment on one site, several or all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from builder.cli.findings_output import plain, sarif
from builder.cli.inputs import choices, context_of, locked_option, make_plan, sites_folder
from builder.cli.outcome import Outcome
from builder.cli.show import columns, echo, show_findings
from builder.model.catalog import load_site, site_files
from builder.model.finding import BuilderError, ConfigError, Finding, UnsupportedError, errors
from builder.model.reading.load import load_recipe
from builder.model.recipe import Recipe
from builder.model.target import Context


@click.command("check")
@click.argument("words", nargs=-1, required=True, metavar="[SITE]... ENV")
@click.option(
    "--format", "shape", type=click.Choice(["text", "table", "json", "sarif"]), default="text", show_default=True
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="CODE",
    help="Leave out findings of a code (no errors); may be repeated.",
)
@click.option("--explain", is_flag=True, help="Say of every package what it becomes, and why.")
@locked_option
@choices
def command(
    words: tuple[str, ...], shape: str, ignored: tuple[str, ...], explain: bool, **chosen: str | bool | None
) -> None:
    """Say what would become of ENV on each SITE; without a site, on all of them.

    Leaves with 3 when it cannot run on one of the sites that were named.
    """
    *sites, env = words
    context = context_of(**chosen)
    recipe = load_recipe(Path(env))
    names = sites or list(site_files(sites_folder()))
    outcomes = [_kept(_outcome(name, recipe=recipe, context=context), ignored=ignored) for name in names]
    if shape == "json":
        echo(json.dumps([plain(item) for item in outcomes], indent=2))
    elif shape == "sarif":
        echo(json.dumps(sarif({item.site: item.findings for item in outcomes}), indent=2))
    elif shape == "table":
        echo(_table(outcomes))
    else:
        _text(outcomes, named=bool(sites), explain=explain)
    if sites and any(errors(item.findings) for item in outcomes):
        raise click.exceptions.Exit(3)


def _outcome(name: str, *, recipe: Recipe, context: Context) -> Outcome:
    site = load_site(name, folder=sites_folder())
    try:
        plan = make_plan(site, recipe, context=context)
    except UnsupportedError as error:
        return Outcome(site=name, findings=error.findings)
    except ConfigError:
        raise
    except BuilderError as error:
        return Outcome(site=name, findings=error.findings)
    return Outcome(
        site=name,
        torch=plan.expect.get("torch", "-"),
        base=plan.base,
        packages=plan.packages,
        findings=plan.findings,
    )


def _kept(outcome: Outcome, *, ignored: Sequence[str]) -> Outcome:
    """Without the ignored codes; an error cannot be ignored, since nothing can be built past it."""
    refused = {finding.code for finding in errors(outcome.findings)} & set(ignored)
    if refused:
        code = sorted(refused)[0]
        message = f"'{code}' is an error on '{outcome.site}': it cannot be ignored"
        raise ConfigError(Finding(code="ignore", message=message, fix="do as the finding says"))
    findings = tuple(finding for finding in outcome.findings if finding.code not in ignored)
    return Outcome(**{**vars(outcome), "findings": findings})


def _text(outcomes: Sequence[Outcome], *, named: bool, explain: bool) -> None:
    rows = [[item.site, item.word, item.torch, item.base] for item in outcomes]
    echo(columns([["site", "outcome", "torch", "base image"], *rows]))
    for item in outcomes:
        if explain and item.packages:
            echo(f"\n{item.site}:")
            echo(columns([[f"  {package.asked}", "->", package.became, package.why] for package in item.packages]))
        if item.findings and named:
            echo(f"\n{item.site}:", err=True)
            show_findings(item.findings, codes=True)
    if not named and any(item.findings for item in outcomes):
        echo("name a site to read its findings: recipe check SITE ENV", err=True)


def _table(outcomes: Sequence[Outcome]) -> str:
    """Sites across, findings down; a cell is the level of the finding there."""
    found = {finding.code: None for item in outcomes for finding in item.findings}
    rows = [["finding", *[item.site for item in outcomes]]]
    for code in found:
        levels = [next((finding.level for finding in item.findings if finding.code == code), "-") for item in outcomes]
        rows.append([code, *levels])
    rows.append(["torch", *[item.torch for item in outcomes]])
    return columns(rows)
