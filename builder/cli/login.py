"""Login nodes are shared by everybody: what is heavy runs there when the user says so, or becomes a job."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import click

from builder.execute.login import on_login_node
from builder.model.finding import ConfigError, Finding
from builder.model.site import Site

F = TypeVar("F", bound=Callable[..., object])


def here_option(command: F) -> F:
    """The word that heavy work needs on a login node."""
    words = "On this machine, also where it is a login node, or its name is like another site's."
    return click.option("--here", is_flag=True, help=words)(command)


def check_here(site: Site, *, here: bool, what: str, jobs: bool = True) -> None:
    """Raise ConfigError where this is a login node of the site and its file says that heavy work is not welcome.

    `jobs` says whether it could be a job instead.
    """
    if here or site.build.login_heavy != "no" or not on_login_node(site, environment=os.environ):
        return
    message = f"this is a login node of '{site.name}', where {what} is too heavy"
    instead = "give --submit to make it a job" if jobs else "run it on another machine and submit with --from"
    fix = f"{instead}, or give --here to run it on this machine all the same"
    raise ConfigError(Finding(code="login-node", message=message, fix=fix))
