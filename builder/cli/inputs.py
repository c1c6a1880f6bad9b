"""What the commands have in common: arguments, the world's part (environment, folders) and the way to a plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from builder import __version__
from builder.compile.plan import compile_plan
from builder.model.catalog import load_site
from builder.model.load import load_recipe
from builder.model.plan import Plan
from builder.model.recipe import Recipe
from builder.model.site import Site
from builder.model.target import Context
from builder.resolve.target import resolve

F = TypeVar("F", bound=Callable[..., object])

site_argument = click.argument("site")
env_argument = click.argument("env", type=click.Path(path_type=Path))


def choices(command: F) -> F:
    """Options that change what is compiled."""
    for option in (
        click.option(
            "--torch-index",
            metavar="URL",
            help="Mirror of the PyTorch wheels ({token} in it is the build), or 'default': where pip and uv look.",
            envvar="RECIPE_TORCH_INDEX",
            show_envvar=True,
        ),
        click.option(
            "--account",
            metavar="NAME",
            help="Slurm account for the job scripts.",
            envvar="SBATCH_ACCOUNT",
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


def verbosity(command: F) -> F:
    """Options that change what is shown."""
    for option in (
        click.option("--no-color", is_flag=True, help="No colours (NO_COLOR is respected)."),
        click.option("-q", "--quiet", is_flag=True, help="Errors only."),
        click.option("-v", "--verbose", count=True, help="Show the engines' own lines."),
    ):
        command = option(command)
    return command


def sites_folder() -> Path:
    """The user's own sites: $RECIPE_SITES, else `recipe/sites` in the configuration folder."""
    own = os.environ.get("RECIPE_SITES")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "recipe" / "sites"


def load_inputs(site: str, env: Path) -> tuple[Site, Recipe]:
    """Read both files; the faults of both are reported, the recipe's first."""
    recipe = load_recipe(env)
    return load_site(site, folder=sites_folder()), recipe


def context_of(**chosen: str | None) -> Context:
    """The world's part, from options and the environment; a relative path of a base image is made absolute."""
    words = {name: value or "" for name, value in chosen.items()}
    if words["base"] and "://" not in words["base"]:
        words["base"] = str(Path(words["base"]).expanduser().absolute())
    return Context(**words, tool=f"recipe {__version__}")


def make_plan(site: Site, recipe: Recipe, *, context: Context) -> Plan:
    """Resolve and compile: the two pure steps."""
    return compile_plan(resolve(recipe, site, context=context))
