"""recipe config: every setting with its value, and where it comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click

from builder.cli.inputs import add_verbosity, find_sites_folder
from builder.cli.output import echo, emit_document, format_columns, format_option, show_findings
from builder.cli.settings import ACCOUNT, VARIABLES, Settings, get_settings, list_config_paths
from builder.cli.targets import match_machine
from builder.cli.typed import WORDS
from builder.layers.private_folders import find_cache_folder
from builder.model.config import ConfigFile, Setting
from builder.model.finding import Finding, Location, remove_edits, suggest_name
from builder.model.secrets import redact
from builder.model.text import sanitize
from builder.parse.site import find_site_files
from builder.sif.errors import LayeringError

BUILT_IN = "built in"
OTHER_NAMES = ("config.yml", "recipe.yaml", "config.toml", "config.json")  # that are not read


@click.command("config")
@format_option
@add_verbosity
def run_command(shape: str, verbose: int, quiet: bool) -> None:
    """Show every setting with its value, and where it comes from.

    The command line wins over the environment, that over your file ~/.config/recipe/config.yaml, and that over the
    system's /etc/xdg/recipe/config.yaml. Logins are shown as ***.
    """
    del verbose, quiet
    settings, known = get_settings(), list(find_site_files(find_sites_folder()))
    found = list(list_settings(settings, environment=os.environ, known=known))
    files = [(path, owner, describe_file(path, settings)) for path, owner in list_config_paths(os.environ)]
    findings = [*settings.warnings, *_find_unknown_sites(settings.files, known=known), *_find_other_names()]
    if shape == "json":
        emit_document(
            {
                "settings": [asdict(setting) for setting in found],
                "files": [{"path": path, "owner": owner, "state": state} for path, owner, state in files],
                "findings": [remove_edits(asdict(finding)) for finding in findings],
            }
        )
        return
    rows = [[setting.name, setting.value or "-", setting.source] for setting in found]
    echo(format_columns([["setting", "value", "from"], *rows]))
    echo()
    echo(format_columns([[f"{owner} file:", state, path] for path, owner, state in files]))
    show_findings(findings)


def list_settings(settings: Settings, *, environment: Mapping[str, str], known: Sequence[str]) -> Iterator[Setting]:
    """List all settings, each as the commands use it, logins masked."""
    machine = match_machine(known)
    here = machine[0] if len(machine) == 1 else ""
    yield settings.find("site") or Setting(
        name="site", value=here, origin="the name of this machine" if here else BUILT_IN
    )
    yield from _list_accounts(settings, environment=environment)
    for name, variables in VARIABLES.items():
        given = next((one for one in variables if environment.get(one) and one not in settings.passed), "")
        if given:
            setting = Setting(name=name, value=environment[given], origin=given)
        else:
            setting = settings.find(name) or Setting(
                name=name, value=_find_built_in(name, environment), origin=BUILT_IN
            )
        yield replace(setting, value=sanitize(redact(setting.value), limit=400))
    yield _find_color(settings, environment=environment)


def _list_accounts(settings: Settings, *, environment: Mapping[str, str]) -> Iterator[Setting]:
    """The accounts of sites, or the one of the environment for all of them."""
    if given := environment.get(ACCOUNT):
        yield Setting(name="account", value=sanitize(given), origin=ACCOUNT)
        return
    accounts = [setting for setting in settings.list_values() if setting.name.startswith("account.")]
    yield from accounts or [Setting(name="account", value="", origin=BUILT_IN)]


def _find_built_in(name: str, environment: Mapping[str, str]) -> str:
    if name != "cache":
        return ""
    try:
        return str(find_cache_folder(environment))
    except LayeringError:
        return ""


def _find_color(settings: Settings, *, environment: Mapping[str, str]) -> Setting:
    if "--no-color" in click.get_current_context().meta.get(WORDS, ()):
        return Setting(name="color", value="never", origin="--no-color")
    if "NO_COLOR" in environment and "NO_COLOR" not in settings.passed:
        return Setting(name="color", value="never" if environment["NO_COLOR"] else "auto", origin="NO_COLOR")
    return settings.find("color") or Setting(name="color", value="auto", origin=BUILT_IN)


def describe_file(path: str, settings: Settings) -> str:
    """Whether a file of settings was read, is not used, or is missing."""
    if path in {file.path for file in settings.files}:
        return "read"
    return "not used" if os.path.lexists(path) else "missing"


def _find_unknown_sites(files: Sequence[ConfigFile], *, known: Sequence[str]) -> Iterator[Finding]:
    """Accounts of sites that do not exist, and a site that does not."""
    for file in files:
        for name, value in file.values.items():
            section, _, below = name.partition(".")
            site = value if section == "site" else below if section == "account" else ""
            if site and site not in known:
                at = Location(file=file.path, line=file.lines[name], key=name)
                fix = suggest_name(site, known=known, noun="known sites")
                yield Finding(
                    code="site-unknown", message=f"there is no site '{site}'", at=at, fix=fix, level="warning"
                )


def _find_other_names() -> Iterator[Finding]:
    """Files that look like settings, and are never read."""
    for path, _ in list_config_paths(os.environ):
        for name in OTHER_NAMES:
            other = Path(path).with_name(name)
            if other.is_file():
                message = f"'{sanitize(str(other), limit=400)}' is not read"
                fix = f"name it {Path(path).name}"
                yield Finding(
                    code="config-name", message=message, at=Location(file=str(other)), fix=fix, level="warning"
                )
