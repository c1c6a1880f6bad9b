"""Scripts for a machine without a scheduler: one process, or several ranks of it."""

from __future__ import annotations

from builder.compile import shell
from builder.compile.launch.suite import suite_lines
from builder.model.target import Target


def here_script(target: Target, *, ranks: bool) -> str:
    """`one.sh` or `ranks.sh`: runs a command in the image on this machine; without one, the suite."""
    usage = "run/ranks.sh [RANKS [COMMAND...]]" if ranks else "run/one.sh [COMMAND...]"
    lines = [
        "#!/usr/bin/env bash",
        shell.comment(f"Runs a command in the image on this machine; without one, the suite. Usage: bash {usage}"),
        "set -euo pipefail",
        'cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."',
        ". ./engine.sh",
        ". run/container.sh",
        ". run/suite.sh",
        *(_RANKS if ranks else _ONE),
        'if [ "$#" -gt 0 ]; then',
        '    launch "$@"',
        "    exit",
        "fi",
        *suite_lines(target, None, purpose="node" if ranks else "gpu"),
    ]
    return "\n".join(lines) + "\n"


_ONE = ["", "launch() {", '    in_image "$@"', "}", ""]

_RANKS = [
    "ranks=${1:-2}",
    'if [ "$#" -gt 0 ]; then shift; fi',
    'case $ranks in "" | *[!0-9]* | 0*) echo "recipe: error: \'$ranks\' is no number of ranks" >&2 && exit 2 ;; esac',
    "",
    "# RECIPE_PROCESSES=plain: without torchrun, for a program that needs no torch",
    "launch() {",
    '    if [ "${RECIPE_ONE_PROCESS:-no}" = yes ]; then',
    '        in_image "$@"',
    '    elif [ "${RECIPE_PROCESSES:-torchrun}" = plain ]; then',
    '        plain_ranks "$ranks" "$@"',
    "    else",
    '        in_image python3 -m torch.distributed.run --standalone --nproc_per_node "$ranks" --no-python "$@"',
    "    fi",
    "}",
    "",
]
