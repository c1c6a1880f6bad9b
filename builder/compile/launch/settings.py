"""Variables of a job: the user's, those of `run/site.env`, the site's, in this order.

`run/settings.sh` reads `run/site.env` as data: its lines are never evaluated, and the names that a site's file may not
set are refused there too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from builder.compile import shell
from builder.compile.render import read_template
from builder.model.site import Launch
from builder.model.target import Target
from builder.model.variables import (
    HOST_GROUPS,
    JOB,
    PROGRAM_SETTINGS,
    RUNTIME_PREFIXES,
    SHELL,
    ReservedNames,
)

# Variables of our own scripts that a user may set in run/site.env.
OWN = ("RECIPE_BINDS", "RECIPE_GPU_VISIBILITY", "RECIPE_MASTER_PORT")
SETTINGS_FILE = "run/settings.sh"
# Logs appear line by line, not when a buffer is full.
EVERYWHERE = {"PYTHONUNBUFFERED": "1"}


def make_settings_script() -> str:
    """Make `run/settings.sh`: its functions, and the table of names that no file may set."""
    return read_template("settings.sh") + "\n".join(_make_table()) + "\n"


def _make_table() -> list[str]:
    """Make the function that sets `reserved` if a name is reserved, as `find_reserved_on_host` decides."""
    inside = "|".join(f"{prefix}*" for prefix in RUNTIME_PREFIXES)
    return [
        "",
        "# find_reserved NAME: sets reserved if no file may set the variable; written from the table of recipe.",
        "find_reserved() {",
        "    local name=$1",
        '    reserved=""',
        "    case $name in",
        f"        {' | '.join(OWN)}) return 0 ;;",
        f"        {inside}) name=${{name#*ENV_}} ;;",
        "        *)",
        *_make_cases([*HOST_GROUPS[1:], PROGRAM_SETTINGS, JOB], indent=12),
        "            ;;",
        "    esac",
        *_make_cases([SHELL], indent=4),
        "}",
    ]


def _make_cases(groups: Iterable[ReservedNames], *, indent: int) -> list[str]:
    """Make a case for each group; what one allows another may refuse."""
    lines: list[str] = []
    pad = " " * indent
    for group in groups:
        names = [*sorted(group.names), *(f"{prefix}*" for prefix in sorted(group.prefixes))]
        lines.append(f"{pad}case $name in")
        if group.allowed:
            lines.append(f"{pad}    {' | '.join(sorted(group.allowed))}) ;;")
        lines += _wrap(" | ".join(names), indent=indent + 4)
        lines[-1] += f") reserved={shell.quote_word(group.why)} ;;"
        lines.append(f"{pad}esac")
    return lines


def _wrap(text: str, *, indent: int) -> list[str]:
    """Break a long line of the script at blanks."""
    pad = " " * indent
    found = textwrap.wrap(text, 110, initial_indent=pad, subsequent_indent=pad + "    ", break_on_hyphens=False)
    return [*(f"{line} \\" for line in found[:-1]), found[-1]]


def list_site_variables(launch: Launch) -> tuple[str, ...]:
    """List the names of the site's variables of a job, which the user may set instead."""
    tables = (EVERYWHERE, launch.environment, launch.one_node_environment, launch.multi_node_environment)
    return tuple(dict.fromkeys(name for table in tables for name in table))


def make_keep_lines(target: Target) -> list[str]:
    """Make the line that keeps the user's values before modules are loaded."""
    return _wrap(shell.quote_command(["keep_own", *list_site_variables(target.site.launch)]), indent=0)


def make_variables(variables: Mapping[str, str]) -> list[str]:
    """Make a line for each variable of the site: the user's value wins; `${NAME}` is expanded by the job."""
    return [f"site_variable {name} {shell.quote_expression(value)}" for name, value in variables.items()]
