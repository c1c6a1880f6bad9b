"""Plans that start programs of an existing image without recipe: a module, a Jupyter kernel, a shell.

Each is a folder with `start.sh`, which runs a command in the image as the site runs it. Its files find each other by
their own place, so that the folder may be moved; the path of the image is fixed in `start.sh`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from builder.compile import shell
from builder.compile.image_plans import list_runtime_programs
from builder.compile.launch.container_scripts import make_container_script, make_job_environment
from builder.compile.launch.settings import (
    SETTINGS_FILE,
    list_local_folders,
    make_folders_script,
    make_settings_script,
)
from builder.compile.render import read_template
from builder.compile.step_scripts import list_runtime_commands, make_module_lines
from builder.model.plan import Plan, PlanFile, Step
from builder.model.target import Target
from builder.model.text import escape_line

START = "start.sh"
MODULES = "modulefiles"  # for `module use`
KERNEL_SCRIPT = "kernel.sh"
LAUNCHER = ("python3", "-m", "ipykernel_launcher", "-f")
# Folders that every image has: the engine would put the caller's own in their place.
_TOPS = ("bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr")
_OWN = " | ".join(("/", "/opt", "/run", "/var", *(f"/{name} | /{name}/*" for name in _TOPS)))


def make_shell_plan(target: Target) -> Plan:
    """Make a plan with what starts a command in the image, and nothing else."""
    programs = list_runtime_programs(target)
    step = Step(name="shell", kind="run", why="start a shell in the image", script=START, programs=programs)
    return _plan(target, purpose="shell", files=(), steps=(step,))


def make_module_plan(target: Target, *, name: str, version: str, programs: Mapping[str, str]) -> Plan:
    """Make a plan of a module: a file for Lmod, one for Tcl modules, and a script for each of its programs.

    `programs` are the names on PATH, each with the command in the image; "" is any command, as arguments.
    """
    text = f"{name}/{version}: the image {PurePosixPath(target.recipe.file).name} on {target.site.title}"
    text = escape_line(f"{text}; {', '.join(sorted(programs))}")
    files = [
        PlanFile(path=f"{MODULES}/{name}/{version}.lua", text=_make_lua(text)),
        PlanFile(path=f"{MODULES}/{name}/{version}", text=_make_tcl(text, name=name)),
        *(
            PlanFile(path=f"bin/{program}", text=_make_shim(command), executable=True)
            for program, command in sorted(programs.items())
        ),
    ]
    return _plan(target, purpose="module", files=files)


def make_kernel_plan(target: Target, *, title: str) -> Plan:
    """Make a plan of a kernel for Jupyter, which starts Python of the image."""
    content = {
        "argv": ["bash", f"{{resource_dir}}/{KERNEL_SCRIPT}", "{connection_file}"],
        "display_name": title,
        "language": "python",
        "metadata": {"debugger": True},
    }
    lines = [
        "#!/usr/bin/env bash",
        "# Starts a kernel in the image: run by Jupyter, with the file that says how they connect.",
        "set -eu",
        'connection=$(realpath -- "$1")',
        "# The file may lie where the image does not see it.",
        'export RECIPE_BINDS="${RECIPE_BINDS:+$RECIPE_BINDS,}${connection%/*}"',
        f'exec bash "${{BASH_SOURCE[0]%/*}}/{START}" {shell.quote_command(LAUNCHER)} "$connection"',
    ]
    files = [
        PlanFile(path="kernel.json", text=json.dumps(content, indent=1, ensure_ascii=False) + "\n"),
        PlanFile(path=KERNEL_SCRIPT, text="\n".join(lines) + "\n", executable=True),
    ]
    return _plan(target, purpose="kernel", files=files)


def _plan(target: Target, *, purpose: str, files: Iterable[PlanFile], steps: tuple[Step, ...] = ()) -> Plan:
    return Plan(
        target=f"{target.recipe.name}.{target.site.name}.{purpose}",
        recipe=target.recipe.name,
        site=target.site.name,
        backend=target.backend,
        vendor=target.site.vendor,
        image=target.recipe.file,
        image_kind="folder" if target.traits.makes_folder else "sif",
        base="",
        steps=steps,
        files=(*files, *_make_start_files(target)),
        tool=target.context.tool,
    )


def _make_start_files(target: Target) -> tuple[PlanFile, ...]:
    files = [
        PlanFile(path=START, text=_make_start_script(target), executable=True),
        PlanFile(path="engine.sh", text=read_template("engine.sh")),
        PlanFile(path="run/container.sh", text=make_container_script(target)),
    ]
    if target.site.scheduler.kind == "slurm":
        files += [
            PlanFile(path="run/job.sh", text=make_job_environment(target)),
            PlanFile(path=SETTINGS_FILE, text=make_settings_script()),
            PlanFile(path="run/local.sh", text=make_folders_script(target)),
        ]
    return tuple(files)


def _make_start_script(target: Target) -> str:
    """Make `start.sh`: in a job with the variables of the job, elsewhere with the modules of the runtime alone."""
    lines = [
        "#!/usr/bin/env bash",
        shell.comment(f"Runs a command in the image as {target.site.title} does. Usage: bash {START} COMMAND..."),
        "# This folder may be moved; the image is looked for at this path.",
        "set -eo pipefail",
        f"export RECIPE_IMAGE={shell.quote_word(target.recipe.file)}",
        *_FIND_PLACES,
        f"    {_OWN})",
        '        fail "an image has folders of its own at $RECIPE_WORKDIR: start it in another folder"',
        "        ;;",
        '    *[:,]*) fail "no container can be given the folder $RECIPE_WORKDIR: its name has a colon or a comma" ;;',
        "esac",
    ]
    if target.site.scheduler.kind == "slurm":
        lines += _JOB
        lines += ["    . run/local.sh", "    make_local_folders"] if list_local_folders(target) else []
        lines += [*_make_else_lines(target), "fi"]
    return "\n".join([*lines, "set -u", ". run/container.sh", 'exec_image "$@"']) + "\n"


_FIND_PLACES = [
    'folder=$(cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")" && pwd -P)',
    "RECIPE_WORKDIR=$(pwd -P)",
    "export RECIPE_WORKDIR",
    "# Programs of the machine that are started meanwhile do not find those of the image.",
    'PATH=:$PATH: && PATH=${PATH//":$folder/bin:"/:} && PATH=${PATH#:} && PATH=${PATH%:}',
    'cd -- "$folder"',
    ". ./engine.sh",
    '[ -e "$RECIPE_IMAGE" ] || fail "the image $RECIPE_IMAGE was moved or removed: its path is in $folder/start.sh"',
    "case $RECIPE_WORKDIR in",
]
_JOB = [
    'if [ -n "${SLURM_JOB_ID:-}" ] && [ -z "${SLURMD_NODENAME:-}" ]; then',
    "    # The shell of salloc, on a login node: a task of the job is on its first node.",
    "    step=(srun --nodes=1 --ntasks=1 --overlap)",
    "    if [ -t 0 ] && [ -t 1 ]; then step+=(--pty); fi",
    '    cd -- "$RECIPE_WORKDIR"',
    f'    exec "${{step[@]}}" bash "$folder/{START}" "$@"',
    "fi",
    'if [ -n "${SLURM_JOB_ID:-}" ]; then',
    "    . run/job.sh",
]


def _make_else_lines(target: Target) -> list[str]:
    """Make the lines outside of a job: the modules that bring the runtime, where it is not there."""
    lines = make_module_lines(target.site.runtime.modules)
    if not lines:
        return []
    first, second = list_runtime_commands(target)
    return [
        f"elif ! command -v {first} >/dev/null && ! command -v {second} >/dev/null; then",
        *(f"    {x}" for x in lines),
    ]


def _make_shim(command: str) -> str:
    words = f"{shell.quote_word(command)} " if command else ""
    lines = [
        "#!/usr/bin/env bash",
        "# Starts a program of the image.",
        'here=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")',
        f'exec bash "$here/../{START}" {words}"$@"',
    ]
    return "\n".join(lines) + "\n"


def _make_lua(text: str) -> str:
    word = _quote_lua(text)
    lines = [
        "-- A module for Lmod, written by `recipe module`. The folder may be moved.",
        f'local root = myFileName():match("^(.*)/{MODULES}/")',
        f"help({word})",
        f"whatis({word})",
        'prepend_path("PATH", pathJoin(root, "bin"))',
    ]
    return "\n".join(lines) + "\n"


def _make_tcl(text: str, *, name: str) -> str:
    word = _quote_tcl(text)
    lines = [
        "#%Module1.0",
        "# A module, written by `recipe module`. The folder may be moved.",
        "set root [file dirname [file dirname [file dirname $ModulesCurrentModulefile]]]",
        "proc ModulesHelp { } {",
        f"    puts stderr {word}",
        "}",
        f"module-whatis {word}",
        f"conflict {name}",
        'prepend-path PATH "$root/bin"',
    ]
    return "\n".join(lines) + "\n"


def _quote_lua(text: str) -> str:
    return '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))


def _quote_tcl(text: str) -> str:
    return '"{}"'.format("".join(f"\\{letter}" if letter in '\\"$[]{};' else letter for letter in text))
