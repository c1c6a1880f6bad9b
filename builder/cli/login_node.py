"""--here: allow heavy work on a login node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])


def here_option(command: F) -> F:
    """Allow heavy work on a login node, and on a machine whose name is like another site's."""
    words = "On this machine, also where it is a login node, or its name is like another site's."
    return click.option("--here", is_flag=True, help=words)(command)
