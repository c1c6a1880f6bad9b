"""Settings of the user's and the system's config.yaml, below the command line and the environment in rank.

The file is looked for once, before a command begins. What it says of folders, indexes and colour becomes the variable
that says so; accounts and the site are read where they are used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # few users have a file
    from builder.model.config import ConfigFile, Owner, Setting
    from builder.model.finding import Finding

NAME = "recipe/config.yaml"
KEY = "recipe.settings"  # in the context of a command
# Setting -> the variables that overrule it; the first one passes its value on.
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "indexes.pypi": ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"),
    "indexes.torch": ("RECIPE_TORCH_INDEX",),
    "cache": ("RECIPE_CACHE_DIR",),
}
SET = ("NO_COLOR", *(names[0] for names in VARIABLES.values()))  # those that a file may set
WITHOUT = ("completion", "explain", "init", "schema")  # commands that a faulty file does not stop
ACCOUNT = "SBATCH_ACCOUNT"


@dataclass(frozen=True)
class Settings:
    """The files that were read, the first one first in rank, their warnings, and the variables set from them."""

    files: tuple[ConfigFile, ...] = ()
    warnings: tuple[Finding, ...] = ()
    passed: frozenset[str] = frozenset()

    def find(self, name: str) -> Setting | None:
        """Find the value of a key in the files."""
        return next((one for one in self.list_values() if one.name == name and one.value), None)

    def list_values(self) -> Iterator[Setting]:
        """List every value of the files that no earlier one overrules."""
        from builder.model.config import Setting

        known = set[str]()
        for file in self.files:
            for name, value in file.values.items():
                if name not in known:
                    known.add(name)
                    yield Setting(name=name, value=value, origin=file.owner, file=file.path, line=file.lines[name])


def list_config_paths(environment: Mapping[str, str]) -> list[tuple[str, Owner]]:
    """List where a file of settings may be; relative folders do not count (XDG Base Directory Specification 0.8)."""
    home = environment.get("HOME", "")
    user = environment.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    system = (environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    found: list[tuple[str, Owner]] = [(f"{user}/{NAME}", "user"), *((f"{part}/{NAME}", "system") for part in system)]
    return [(path, owner) for path, owner in found if path.startswith("/")]


def apply_settings(context: click.Context, command: str, words: Sequence[str]) -> None:
    """Read the files that exist, and set the variables that the environment leaves open; raises ConfigError."""
    environment = os.environ
    paths = [(path, owner) for path, owner in list_config_paths(environment) if os.path.exists(path)]  # noqa: PTH110
    if not paths:
        return
    from builder.model.finding import ConfigError

    try:
        settings = _read(paths, environment=environment)
    except ConfigError:
        if command not in WITHOUT:
            raise
        return
    context.meta[KEY] = Settings(settings.files, settings.warnings, frozenset(_pass_on(settings, environment)))
    if settings.warnings and command not in (*WITHOUT, "config") and not {"-q", "--quiet"} & {*words}:
        from builder.cli.output import show_findings

        show_findings(settings.warnings)


def _read(paths: Sequence[tuple[str, Owner]], *, environment: Mapping[str, str]) -> Settings:
    """Read every file; raises ConfigError with the faults of all."""
    from builder.model.finding import ConfigError
    from builder.parse.config_file import read_config
    from builder.system.config_access import find_distrust, find_open_login

    files: list[ConfigFile] = []
    warnings: list[Finding] = []
    faults: list[Finding] = []
    for path, owner in paths:
        try:
            if distrust := find_distrust(path, owner=owner):
                warnings.append(distrust)
                continue
            file, found = read_config(path, owner=owner, environment=environment)
        except ConfigError as error:
            faults += error.findings
            continue
        files.append(file)
        warnings += (*found, *find_open_login(file))
    if faults:
        raise ConfigError(*faults)
    return Settings(tuple(files), tuple(warnings))


def _pass_on(settings: Settings, environment: MutableMapping[str, str]) -> Iterator[str]:
    """Set the variables that the environment leaves open; return their names."""
    for name, variables in VARIABLES.items():
        found = settings.find(name)
        if found and not any(environment.get(variable) for variable in variables):
            environment[variables[0]] = found.value
            yield variables[0]
    color = settings.find("color")
    if color and color.value == "never" and "NO_COLOR" not in environment:  # empty, it asks for colours
        environment["NO_COLOR"] = "1"
        yield "NO_COLOR"


def get_settings() -> Settings:
    """The settings of the command that runs."""
    context = click.get_current_context(silent=True)
    found: Settings | None = context.meta.get(KEY) if context else None
    return found or Settings()


def list_accounts() -> tuple[tuple[str, str], ...]:
    """List the accounts of the files, each with its site."""
    found = get_settings()
    accounts = [one for one in found.list_values() if one.name.startswith("account.")] if found.files else []
    return tuple((one.name.partition(".")[2], one.value) for one in accounts)


def choose_account(given: str | None, *, site: str) -> str | None:
    """The account that the line or the environment gives, else the one of the files for a site."""
    return given if given is not None else dict(list_accounts()).get(site)


def find_default_site(known: Sequence[str]) -> Setting | None:
    """The site of the files for a line that names none; raises ConfigError for one that does not exist."""
    found = get_settings()
    setting = found.find("site") if found.files else None
    if setting is None or setting.value in known:
        return setting
    from builder.model.finding import ConfigError, Finding, Location, suggest_name

    at = Location(file=setting.file, line=setting.line, key="site")
    fix = suggest_name(setting.value, known=known, noun="known sites")
    raise ConfigError(Finding(code="site-unknown", message=f"there is no site '{setting.value}'", at=at, fix=fix))
