"""Folders on the nodes themselves: made by the ranks of a job, removed after it.

Only a folder whose name has the number of the job is removed: it is that job's alone.
"""

from __future__ import annotations

from builder.compile import shell
from builder.compile.render import read_template
from builder.model.plan import ShellExpr
from builder.model.target import Target

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
