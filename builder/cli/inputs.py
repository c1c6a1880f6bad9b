"""Arguments that several commands share, and the Context of a plan from options and environment."""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import click

from builder import __version__
from builder.cli.output import QUIET, echo
from builder.cli.settings import list_accounts
from builder.model.finding import ConfigError, Finding, Location
from builder.model.secrets import INDEXES, PROXIES, PROXY_USER, has_login
from builder.model.target import DEFAULT_INDEX, Context
from builder.model.text import SLURM_ACCOUNT, check_url, exists, sanitize
from builder.parse.container import IMAGE_FILE, REFERENCE
from builder.parse.yaml import suggest_path


def add_here_option(command: F) -> F:
    """Allow heavy work on a login node, and on a machine whose name is like another site's."""
    words = "On this machine, also where it is a login node, or its name is like another site's."
    return click.option("--here", is_flag=True, help=words)(command)


OPTIONS = {
    "account": ((SLURM_ACCOUNT,), "write its name alone, as in --account=project_1"),
    "base": ((REFERENCE, IMAGE_FILE), "write docker://NAME:TAG or the path of an image"),
}
CLIENT = "RECIPE_MICROMAMBA"
SITES = "recipe/sites"  # below a configuration folder

F = TypeVar("F", bound=Callable[..., object])

account_option = click.option(
    "--account",
    metavar="NAME",
    help="Slurm account for the job scripts.",
    envvar="SBATCH_ACCOUNT",
    show_envvar=True,
)


def add_compile_options(command: F) -> F:
    """Add what decides on an image, and the account of the jobs that build it."""
    return account_option(add_decision_options(command))


def add_decision_options(command: F) -> F:
    """Add what decides on an image, for commands that write no jobs."""
    for option in (
        click.option(
            "--torch-index",
            metavar="URL",
            help="Mirror of the PyTorch wheels ({token} in it is the build), or 'default': where pip and uv look.",
            envvar="RECIPE_TORCH_INDEX",
            show_envvar=True,
        ),
        click.option(
            "--driver", metavar="VERSION", help="GPU driver of the site, where it is not the one of its file."
        ),
        click.option("--base", metavar="IMAGE", help="Base image instead of the recipe's and the site's."),
        click.option(
            "--backend", metavar="NAME", help="Way to build, where a site has several (see `recipe sites SITE`)."
        ),
    ):
        command = option(command)
    return command


def add_ignore_option(command: F) -> F:
    """Add the option of commands whose build is audited."""
    text = "Pass over what the audit of the packages finds wrong for the GPU: the image is published with it."
    codes = click.Choice(["gpu-audit"])
    return click.option("--ignore", "ignored", metavar="CODE", type=codes, multiple=True, help=text)(command)


def add_locked_option(command: F) -> F:
    """Add the option of commands that can use a lock."""
    text = "Install the exact files of a lock that fits (see `recipe lock`), or nothing."
    return click.option("--locked", is_flag=True, help=text)(command)


def add_trust_option(command: F) -> F:
    """Add --trust, for commands that use a plan folder of another user."""

    def say(context: click.Context, _: click.Parameter, value: bool) -> bool:
        from builder.system.trust import TRUST

        TRUST.trusted = value
        TRUST.reported.clear()
        TRUST.say = lambda text: None if context.params.get("quiet") else echo(text, err=True)
        return value

    text = "Use a plan folder of another user, or one that all may write: you have looked at what is in it."
    return click.option("--trust", is_flag=True, help=text, callback=say, expose_value=False)(command)


def add_verbosity(command: F) -> F:
    """Add the options that change how much is printed."""
    for option in (
        # What it does is done in main.py, before the command line is read.
        click.option("--no-color", is_flag=True, expose_value=False, help="No colours (NO_COLOR is respected)."),
        click.option("-q", "--quiet", is_flag=True, callback=_set_quiet, help="Errors and results only."),
        click.option("-v", "--verbose", count=True, help="Show the lines of the programs that run, too."),
    ):
        command = option(command)
    return command


def add_plain_verbosity(command: F) -> F:
    """Add the same options to a command that starts no program."""

    @functools.wraps(command)
    def without(*arguments: object, verbose: int, quiet: bool, **options: object) -> object:
        del verbose, quiet
        return command(*arguments, **options)

    return add_verbosity(without)  # type: ignore[return-value]  # a decorated command, as for every option


def _set_quiet(context: click.Context, _: click.Parameter, wanted: bool) -> bool:
    if wanted:
        context.meta[QUIET] = True
    return wanted


def find_sites_folder() -> tuple[Path, ...]:
    """The folders of the user's and the system's own sites, the first one wins.

    $RECIPE_SITES (a list as PATH), `recipe/sites` in the user's configuration folder and in those of the system.
    """
    own = [_check_sites_folder(Path(part)) for part in os.environ.get("RECIPE_SITES", "").split(os.pathsep) if part]
    try:
        user = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / SITES
    except RuntimeError:  # HOME is not set, and the system does not know the user
        if own:
            return tuple(own)
        message, fix = "your home folder is not known", "set HOME to its path"
        raise ConfigError(Finding(code="variable", message=message, at=Location(key="HOME"), fix=fix)) from None
    system = [
        Path(part) / SITES for part in (os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep) if part
    ]
    for folder in (user, *system):
        _note_closed(folder)
    return tuple(dict.fromkeys((*own, user, *system)))


@functools.cache
def _note_closed(folder: Path) -> None:
    """Print once that sites cannot be read: those of other folders can."""
    try:
        os.scandir(folder).close()
    except PermissionError:
        shown = sanitize(str(folder), limit=400)
        echo(f"note: the folder of your own sites '{shown}' cannot be read: it is left out", err=True)
    except OSError:
        return  # most users have none


def _check_sites_folder(folder: Path) -> Path:
    if folder.is_dir():
        return folder
    shown = sanitize(str(folder), limit=400)
    message, fix = f"the folder of sites '{shown}' does not exist", "make it, or unset RECIPE_SITES"
    if exists(folder):
        above = shlex.quote(sanitize(str(folder.absolute().parent), limit=400))
        message, fix = f"the folder of sites '{shown}' is a file", f"name its folder: RECIPE_SITES={above}"
    raise ConfigError(Finding(code="sites-folder", message=message, at=Location(key="RECIPE_SITES"), fix=fix))


def make_context(**chosen: str | bool | None) -> Context:
    """Make the Context from options and environment; the path of a base image becomes absolute.

    Raises ConfigError for a value that a script, a definition file or a requirements file cannot contain.
    """
    locked = bool(chosen.get("locked", False))
    names = ("torch_index", "account", "driver", "base", "backend")
    words = {name: str(chosen.get(name) or "") for name in names}
    if words["base"] and "://" not in words["base"]:
        words["base"] = _resolve_base_path(words["base"])
    index = words["torch_index"].replace("{token}", "cpu")
    if index and index != DEFAULT_INDEX:
        check_url(index, at=Location(key="--torch-index"), schemes=("https", "http", "file"))
    _check_digest(words["base"])
    for name, (forms, fix) in OPTIONS.items():
        if words[name] and not any(form.fullmatch(words[name]) for form in forms):
            given = find_source(name)
            message = f"'{sanitize(words[name])}' cannot be the value of {given}"
            fix = fix if given.startswith("--") else f"{fix.partition(', as in')[0]}, or unset {given}"
            raise ConfigError(Finding(code="option-value", message=message, at=Location(key=given), fix=fix))
    logins = tuple(name for name in INDEXES if has_login(os.environ.get(name, "")))
    proxies = tuple(name for name in PROXIES if PROXY_USER.match(os.environ.get(name, "")))
    client = os.environ.get(CLIENT, "")
    if client and not (client.startswith("docker://") and REFERENCE.fullmatch(client)):
        message = f"'{sanitize(client)}' cannot be the value of {CLIENT}"
        fix = "write docker://HOST/NAME@sha256:DIGEST, an image with /bin/micromamba"
        raise ConfigError(Finding(code="option-value", message=message, at=Location(key=CLIENT), fix=fix))
    plain = Context(
        locked=locked, logins=logins, proxies=proxies, micromamba=client.removeprefix("docker://"),
        tool=f"recipe {__version__}",
    )  # fmt: skip
    accounts = list_accounts() if chosen.get("account") is None else ()
    return replace(plain, accounts=accounts, **words)  # type: ignore[arg-type]  # every word is a field that holds a text


def _check_digest(base: str) -> None:
    """Raise ConfigError for a reference whose digest alone is faulty: it is no secret, and is repeated."""
    name, mark, digest = base.partition("@")
    algorithm, colon, digits = digest.partition(":")
    if not (mark and colon and re.fullmatch(r"[a-z0-9]+", algorithm) and REFERENCE.fullmatch(name)):
        return
    if "/" in digits or (algorithm == "sha256" and re.fullmatch(r"[0-9a-f]{64}", digits)):
        return
    message = f"the digest of the base image is '{sanitize(digits)}', and a SHA-256 has 64 digits of 0 to 9 and a to f"
    if algorithm != "sha256":
        message = f"the digest of the base image is '{algorithm}', and only sha256 is read"
    given = find_source("base")
    fix = f"copy the whole digest, as in {name}@sha256:..., or leave it out: {name}"
    raise ConfigError(Finding(code="option-value", message=message, at=Location(key=given), fix=fix))


def find_source(name: str) -> str:
    """What gave an option its value: the variable of the environment, or the option itself."""
    context = click.get_current_context(silent=True)
    if context is not None and context.get_parameter_source(name) == click.core.ParameterSource.ENVIRONMENT:
        param = next(param for param in context.command.params if param.name == name)
        return str(param.envvar)
    if name == "account" and context is not None and all(param.name != name for param in context.command.params):
        return "SBATCH_ACCOUNT"  # of `doctor`, which has no such option
    return f"--{name}"


def _resolve_base_path(word: str) -> str:
    """The absolute path that --base names; raises ConfigError for what is neither a path nor a reference.

    A path of another machine must be absolute: a relative one is of this machine.
    """
    path = Path(os.path.expanduser(word))  # noqa: PTH111  # an unknown user's home stays as it is written
    if path.is_absolute() or path.exists():
        short = os.path.abspath(path)  # noqa: PTH100  # without `..`, so that each way to write it is the same plan
        return short if os.path.realpath(short) == os.path.realpath(path) else str(path.absolute())
    near = suggest_path(path)
    fix = near if near.startswith(("did", "it is a link")) else "write docker://NAME:TAG, or the path of an image"
    if near.startswith("there "):
        fix = f"{near}; else {fix}"
    if re.fullmatch(REFERENCE, f"docker://{word}") and not word.startswith(".") and not word.endswith(".sif"):
        fix = f"write docker://{word}, or the path of an image"
    message = f"the base image '{sanitize(word, limit=400)}' does not exist and is not a reference"
    raise ConfigError(Finding(code="base-missing", message=message, at=Location(key="--base"), fix=fix))
