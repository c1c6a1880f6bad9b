"""Variables of a job: the user's, those of `run/site.env`, the site's, in this order; folders on the nodes.

`run/settings.sh` reads `run/site.env` as data: its lines are never evaluated, and the names that a site's file may not
set are refused there too.

Only a folder whose name has the number of the job is removed: it is that job's alone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from builder.compile import shell
from builder.compile.render import read_template
from builder.model.plan import ShellExpr
from builder.model.site import Launch
from builder.model.target import PREFIX, Target
from builder.model.variables import (
    HOST_GROUPS,
    JOB,
    PROGRAM_SETTINGS,
    RUNTIME_PREFIXES,
    SHELL,
    ReservedNames,
)

# Variables of our own scripts that a user may set in run/site.env.
OWN = ("RECIPE_BINDS", "RECIPE_GPU_VISIBILITY", "RECIPE_MASTER_PORT", "RECIPE_MNIST")
PLUGIN = "NCCL_NET_PLUGIN"  # of NCCL and RCCL; a module of the site may set it
SETTINGS_FILE = "run/settings.sh"
# Logs appear line by line, not when a buffer is full.
EVERYWHERE = {"PYTHONUNBUFFERED": "1"}
# mpi4py's wheel (4.1 and later, _mpiabi.py) loads the first of these that exists. By itself it takes the MPI of its own
# environment by the full path, and then libmpi.so: the library that the host puts first on LD_LIBRARY_PATH is neither.
HOST_MPI = {"MPI4PY_LIBMPI": f"libmpi.so.12:{PREFIX}/lib:"}


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
    plugin = {PLUGIN: ""} if launch.plugin_modules else {}
    own = (EVERYWHERE, plugin, collect_mpi_variables(launch))
    tables = (*own, launch.environment, launch.one_node_environment, launch.multi_node_environment)
    return tuple(dict.fromkeys(name for table in tables for name in table))


def collect_mpi_variables(launch: Launch) -> Mapping[str, str]:
    """Collect the variables by which mpi4py's wheel loads the host's MPI, where one takes the place of the image's."""
    return HOST_MPI if launch.mpi == "host" and launch.launcher == "srun" else {}


def make_keep_lines(target: Target) -> list[str]:
    """Make the line that keeps the user's values before modules are loaded."""
    return _wrap(shell.quote_command(["keep_own", *list_site_variables(target.site.launch)]), indent=0)


def make_variables(variables: Mapping[str, str]) -> list[str]:
    """Make a line for each variable of the site: the user's value wins; `${NAME}` is expanded by the job."""
    return [f"site_variable {name} {shell.quote_expression(value)}" for name, value in variables.items()]


JOB_NUMBER = "${SLURM_JOB_ID}"


def list_local_folders(target: Target) -> tuple[str, ...]:
    return target.site.launch.node_local_dirs


def make_folders_script(target: Target) -> str:
    """Make `run/local.sh`: the folders of a job, how they are made and removed."""
    folders = list_local_folders(target)
    own = [folder for folder in folders if JOB_NUMBER in folder.rpartition("/")[2]]
    lines = [
        "",
        "# name_local_folders: sets the folders of this job, and those of them that are removed after it.",
        "# shellcheck disable=SC2034 # record.sh uses them too",
        "name_local_folders() {",
        f"    local_folders=({_join(folders)})",
        f"    removed_folders=({_join(own)})",
        "}",
        "",
        'if [ "${BASH_SOURCE[0]}" = "$0" ]; then "$1_local_folders" "${@:2}"; fi',
    ]
    return read_template("local.sh") + "\n".join(lines) + "\n"


def _join(folders: tuple[str, ...] | list[str]) -> str:
    return " ".join(shell.quote_word(ShellExpr(folder)) for folder in folders)
