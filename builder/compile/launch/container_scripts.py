"""Scripts that the jobs source or start.

`container.sh` starts the image with the site's runtime, flags and binds. `job.sh` holds the values of a whole job,
expanded once on its first node. `rank.sh` runs one task and expands the values that only a rank knows.
"""

from __future__ import annotations

from collections.abc import Mapping

from builder.compile import shell
from builder.compile.image_files import collect_run_variables, name_image
from builder.compile.launch.launchers import make_device_lines, make_torchrun_prefix, make_visibility_lines
from builder.compile.launch.settings import (
    EVERYWHERE,
    SETTINGS_FILE,
    collect_mpi_variables,
    list_local_folders,
    make_keep_lines,
    make_variables,
)
from builder.compile.launch.shape import uses_whole_nodes
from builder.compile.step_scripts import list_runtime_commands, make_module_lines, make_proxy_lines
from builder.model.plan import ShellExpr, Word
from builder.model.site import Job, Launcher
from builder.model.target import Target

# An image must not use packages of the user's home, or the Python of a module on the host.
ISOLATION = {"PYTHONNOUSERSITE": "1"}
NO_HOST_PYTHON = "unset PYTHONHOME PYTHONINSPECT PYTHONSTARTUP"
_ONLY_BASH = ['[ -n "${BASH_VERSION:-}" ] || { echo "recipe: error: run/container.sh is for bash" >&2 && return 1; }']
_CALL = '"$runtime" exec "${options[@]}" --bind "$PWD" --pwd "${RECIPE_WORKDIR:-$PWD}" "$image" "$@"'
# The wrappers of tykky derive PATH from the host's (generate_wrappers.sh of hpc-container-wrapper 0.4.2).
_WITH_PATH = 'import os, sys; os.environ["PATH"] = sys.argv[1]; os.execvp(sys.argv[2], sys.argv[2:])'


def make_container_script(target: Target) -> str:
    """Define in_image, which runs a command in the image, and exec_image, which replaces the process by it."""
    if target.traits.makes_folder:
        return _tykky(target)
    first, second = list_runtime_commands(target)
    lines = [
        "# How this site starts the image; sourced by the other scripts of this folder, or by hand in bash.",
        "# shellcheck shell=bash",
        *_ONLY_BASH,
        f'image=${{RECIPE_IMAGE:-"$PWD/{name_image(target)}.sif"}}',
        f"runtime=$(command -v {first} || command -v {second}) || {{",
        f"    {shell.quote_command(['echo', _explain_no_runtime(target)])} >&2",
        "    return 1 # by hand this is the user's own shell",
        "}",
        *_make_options(target),
        'if [ -d "${RECIPE_RESULTS:-}" ]; then options+=(--bind "$RECIPE_RESULTS"); fi',
        'if [ -n "${RECIPE_WORKDIR:-}" ]; then options+=(--bind "$RECIPE_WORKDIR"); fi',
        "# RECIPE_BINDS: the user's own, separated by commas",
        'if [ -n "${RECIPE_BINDS:-}" ]; then options+=(--bind "$RECIPE_BINDS"); fi',
        *(_BIND_PLUGIN if target.site.launch.plugin_modules else []),
        *_make_digits_lines('options+=(--bind "$RECIPE_MNIST:/media:ro")', "/media"),
        *_make_variable_lines(target),
        "",
        "# in_image COMMAND...: in the folder the script was started in, or in RECIPE_WORKDIR",
        "in_image() {",
        f"    {_CALL}" if not collect_run_variables(target) else f"    (image_variables && exec {_CALL})",
        "}",
        "",
        "# exec_image COMMAND...: replaces this process, so that signals reach the command",
        "exec_image() {",
        *(["    image_variables"] if collect_run_variables(target) else []),
        f"    exec {_CALL}",
        "}",
    ]
    return "\n".join(lines) + "\n"


# The wrappers set SINGULARITY_BIND themselves, and add these (generate_wrappers.sh of hpc-container-wrapper b0956d9).
_EXTRA_BINDS = [
    "# RECIPE_BINDS: the user's own, separated by commas; the wrappers read theirs from CW_EXTRA_BIND_MOUNTS",
    'for path in "${RECIPE_BINDS:-}" "${RECIPE_MNIST:-}"; do',
    '    case "${path:+,${CW_EXTRA_BIND_MOUNTS:-},}" in "" | *",$path,"*) continue ;; esac',
    '    export CW_EXTRA_BIND_MOUNTS="${CW_EXTRA_BIND_MOUNTS:+$CW_EXTRA_BIND_MOUNTS,}$path"',
    "done",
]


def _make_digits_lines(bind: str, place: str) -> list[str]:
    """Make the lines that give the workloads which train the user's digits; every image has /media."""
    return [
        "# RECIPE_MNIST: a folder with MNIST's files, for the workloads that train",
        "digits=()",
        'if [ -n "${RECIPE_MNIST:-}" ]; then',
        *([f"    {bind}"] if bind else []),
        f"    digits+=(--data {place})",
        "fi",
    ]


def _explain_no_runtime(target: Target) -> str:
    first, second = list_runtime_commands(target)
    text = f"recipe: error: neither {first} nor {second} is installed"
    modules = "; ".join(f"module {module}" for module in target.site.runtime.modules)
    return f"{text}: first run {modules}" if modules else text


def _make_options(target: Target) -> list[str]:
    """Make flags and binds; the site's optional binds are added only if they exist, because file names change."""
    runtime = target.site.runtime
    flags: list[Word] = [*([runtime.gpu_flag] if runtime.gpu_flag else []), *runtime.options]
    flags += [word for bind in runtime.binds for word in ("--bind", ShellExpr(bind))]
    lines = ["options=(" + " ".join(shell.quote_word(flag) for flag in flags) + ")"]
    if runtime.optional_binds:
        lines += ["# shellcheck disable=SC2043"] if len(runtime.optional_binds) == 1 else []
        lines.append("for path in \\")
        lines += [f"    {shell.quote_word(ShellExpr(bind))} \\" for bind in runtime.optional_binds]
        lines[-1] = lines[-1].removesuffix(" \\")
        lines += ["do", '    if [ -e "${path%%:*}" ]; then options+=(--bind "$path"); fi', "done"]
    return [*lines, *shell.export(ISOLATION), NO_HOST_PYTHON]


def _make_variable_lines(target: Target) -> list[str]:
    """Define `image_variables`: variables of the recipe, set for each run of an image that does not contain them.

    The runtime's prefixed names are set around one call, where no other program reads them; `--env` would split values
    at commas, and it and `--env-file` evaluate them (seen with Apptainer 1.4.5).
    """
    names = collect_run_variables(target)
    if not names:
        return []
    return [
        "",
        "# image_variable NAME VALUE: in the image only; the user's own value has priority",
        "image_variable() {",
        "    local apptainer=APPTAINERENV_$1 singularity=SINGULARITYENV_$1",
        '    if [ -z "${!apptainer+set}${!singularity+set}" ]; then export "$apptainer=$2" "$singularity=$2"; fi',
        "}",
        "",
        "# image_variables: the recipe's, unexpanded, for the next call in the same shell",
        "# shellcheck disable=SC2016",
        "image_variables() {",
        "    export APPTAINER_NO_EVAL=1 SINGULARITY_NO_EVAL=1",
        *(
            f"    image_variable {name} {shell.quote_word(value)}"
            for name, value in names.items()
            if name != _find_late_variable(target)
        ),
        "}",
    ]


def _find_late_variable(target: Target) -> str:
    """Return the variable that tykky's wrappers set themselves; it is set after them."""
    return "PATH" if target.traits.makes_folder else ""


def _tykky(target: Target) -> str:
    lines = [
        "# How this site starts the installation; sourced by the other scripts of this folder, or by hand in bash.",
        "# shellcheck shell=bash",
        *_ONLY_BASH,
        f'image=${{RECIPE_IMAGE:-"$PWD/{name_image(target)}"}}',
        'export PATH="$image/bin:$PATH"',
        *shell.export(ISOLATION),
        NO_HOST_PYTHON,
        *_EXTRA_BINDS,
        *_make_digits_lines("", '"$RECIPE_MNIST"'),
        *_make_variable_lines(target),
        "",
        "# in_image COMMAND...: the wrappers of the installation start its container",
        "in_image() {",
        '    (exec_image "$@")' if collect_run_variables(target) else '    (cd -- "${RECIPE_WORKDIR:-.}" && exec "$@")',
        "}",
        "",
        "# exec_image COMMAND...: replaces this process, so that signals reach the command",
        "exec_image() {",
        '    cd -- "${RECIPE_WORKDIR:-.}" || exit',
        *(["    image_variables"] if collect_run_variables(target) else []),
        f'    exec {_make_path_prefix(target)}"$@"',
        "}",
    ]
    return "\n".join(lines) + "\n"


def _make_path_prefix(target: Target) -> str:
    """Make the words before a command that set the recipe's PATH in the container, if it has one."""
    path = collect_run_variables(target).get(_find_late_variable(target))
    if path is None:
        return ""
    return f'"$image/bin/python3" -IS -c {shell.quote_word(_WITH_PATH)} {shell.quote_word(path)} '


JOB_PORT_SUFFIX = "+job"
FREE_PORT = "free"
# Below the kernel's ephemeral ports (32768 and up), above those of services.
PORT_BASE = 10000
# All names are read: a reader that closes the pipe after the first line ends scontrol, and with it the job.
_MASTER_ADDR = {
    "first-host": [
        'hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST") || fail "scontrol does not name the nodes of this job"',
        "MASTER_ADDR=${hosts%%$'\\n'*}{suffix}",
    ],
    "hostname-ip": ["MASTER_ADDR=$(hostname -i | cut -d ' ' -f 1)"],
}
_FREE_PORT_FUNCTION = [
    "",
    "# free_port: a random free port of the first node, for the rendezvous of the ranks",
    "free_port() {",
    "    local port",
    "    for _ in {1..20}; do",
    f"        port=$(({PORT_BASE} + $(od -An -N2 -tu2 /dev/urandom) % 20000))",
    "        # shellcheck disable=SC2016",
    '        if ! timeout 2 bash -c \'exec 3<>"/dev/tcp/$0/$1"\' "$MASTER_ADDR" "$port" 2>/dev/null; then',
    "            printf '%s\\n' \"$port\"",
    "            return 0",
    "        fi",
    "    done",
    '    fail "no free port was found on $MASTER_ADDR: name one by RECIPE_MASTER_PORT"',
    "}",
    "",
]


def make_job_environment(target: Target) -> str:
    """Make `job.sh`: modules, addresses and the site's environment, for every shape of job."""
    site, launch = target.site, target.site.launch
    lines = ["# Settings of a whole job; sourced by the job scripts of this folder.", "# shellcheck shell=bash"]
    lines += [
        ". ./engine.sh",
        f". {SETTINGS_FILE}",
        "read_settings run/site.env",
        *make_keep_lines(target),
        "# PYTHONPATH of host modules is for the host's Python; the user's own is for the image too.",
        "python_path=${PYTHONPATH-}",
        *make_module_lines((*site.runtime.modules, *site.runtime.run_modules)),
        *_make_plugin_lines(target),
        "unset PYTHONHOME PYTHONPATH",
        'if [ -n "$python_path" ]; then export PYTHONPATH="$python_path"; fi',
        "set -u",
    ]
    lines += [f"unset {' '.join(launch.unset)}"] if launch.unset else []
    lines += [
        *(line.replace("{suffix}", launch.master_suffix) for line in _MASTER_ADDR[launch.master_addr]),
        "export MASTER_ADDR",
        *(_FREE_PORT_FUNCTION if launch.master_port == FREE_PORT else []),
        *make_proxy_lines(target),
        *make_variables({**EVERYWHERE, **collect_mpi_variables(launch), **launch.environment}),
    ]
    one = make_variables(launch.one_node_environment)
    many = make_variables(launch.multi_node_environment)
    if one or many:
        lines.append('if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then')
        lines += [f"    {line}" for line in many or [":"]]
        lines += ["else", *[f"    {line}" for line in one]] if one else []
        lines.append("fi")
    lines += make_visibility_lines(target)
    return "\n".join(lines) + "\n"


_BIND_PLUGIN = [
    "# The network plug-in, a file of this machine that the user or a module of the site names",
    'if [ -f "${NCCL_NET_PLUGIN:-}" ]; then options+=(--bind "${NCCL_NET_PLUGIN%/*}"); fi',
]


def _make_plugin_lines(target: Target) -> list[str]:
    """Make the lines that load the modules of the network plug-in; jobs of one node need none."""
    modules = target.site.launch.plugin_modules
    if not modules:
        return []
    lines = [*make_module_lines(modules), "find_plugin"]
    return ['if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then', *(f"    {line}" for line in lines), "fi"]


def make_port_lines(target: Target, job: Job) -> list[str]:
    """Make the lines that choose the rendezvous port: a free one, unless the site has one.

    It is derived from the job's number if the site says so, or if two jobs may share a node.
    """
    if target.site.launch.master_port == FREE_PORT:
        return ["MASTER_PORT=${RECIPE_MASTER_PORT:-$(free_port)}", "export MASTER_PORT"]
    fixed, plus, _ = target.site.launch.master_port.partition(JOB_PORT_SUFFIX)
    if plus or not uses_whole_nodes(target, job):
        base = int(fixed) if plus else PORT_BASE
        value = f"$(({base} + SLURM_JOB_ID % 10000))"
    else:
        value = fixed
    return [f"MASTER_PORT={value}", "export MASTER_PORT"]


RANK_VARIABLES: Mapping[Launcher, tuple[str, str, str]] = {
    "srun": ("${SLURM_PROCID}", "${SLURM_NTASKS}", "${SLURM_LOCALID}"),
    "mpiexec": ("${PMI_RANK}", "${PMI_SIZE}", "${MPI_LOCALRANKID}"),
}
TASK_VARIABLES = {"mpiexec": "PMI_RANK"}


def make_rank_script(target: Target) -> str:
    """Make `rank.sh`, which the launcher starts once per task; exec passes the launcher's signals to the command."""
    launch = target.site.launch
    lines = [
        "#!/usr/bin/env bash",
        "# One task of a job: run by the launcher, not by hand.",
        "set -eu",
        ". run/container.sh",
        ". run/watch.sh",
    ]
    ranks = RANK_VARIABLES.get(launch.launcher)
    if ranks is not None:
        rank, world, local = ranks
        own = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": local, "RECIPE_LOCAL_RANK": local}
        if launch.launcher == "mpiexec":
            # Hydra's own task is the only one that Slurm knows on a node: programs look for what srun would set.
            own |= {"SLURM_PROCID": rank, "SLURM_NTASKS": world, "SLURM_LOCALID": local}
        lines += shell.export(own, expand=True)
    lines += [*make_device_lines(target), *shell.export(launch.rank_environment, expand=True)]
    if list_local_folders(target):
        # All ranks of a node run this at the same time.
        lines += [". ./engine.sh", ". run/local.sh", "make_local_folders"]
    lines += [*_make_one_process_lines(target), "watch_stop"]
    if launch.launcher == "srun-torchrun":
        lines += _make_torchrun_lines(target)
    else:
        lines.append('exec_image "$@"')
    return "\n".join(lines) + "\n"


def _make_one_process_lines(target: Target) -> list[str]:
    task = TASK_VARIABLES.get(target.site.launch.launcher, "SLURM_PROCID")
    return [
        "# RECIPE_ONE_PROCESS: a workload of one process; the other tasks exit",
        'if [ "${RECIPE_ONE_PROCESS:-no}" = yes ]; then',
        f'    if [ "${task}" -ne 0 ]; then exit 0; fi',
        "    unset RANK WORLD_SIZE LOCAL_RANK RECIPE_LOCAL_RANK",
        "    watch_stop",
        '    exec_image "$@"',
        "fi",
    ]


def _make_torchrun_lines(target: Target) -> list[str]:
    """Make the lines for one task per node, where torchrun starts the ranks; only srun knows the node's number."""
    lines = [
        "# A command that is torchrun starts the ranks of its node itself.",
        'case "${1##*/} ${2:-} ${3:-}" in',
        '    "torchrun "* | "python"*" -m torch.distributed.run") exec_image "$@" ;;',
        "esac",
    ]
    prefix = make_torchrun_prefix(target)
    if prefix:
        text = " ".join(shell.quote_word(word) for word in prefix)
        lines += [
            'if [ "${RECIPE_GPU_VISIBILITY:-}" = rank ]; then',
            "    # shellcheck disable=SC2016",
            f'    set -- {text} "$PWD/run/device.sh" "$@"',
            "fi",
        ]
    return [
        *lines,
        "# RECIPE_RANKS: ranks per node; PET_RDZV_*: address and id of the rendezvous; set by the job script",
        "exec_image python3 -m torch.distributed.run \\",
        '    --nproc_per_node "$RECIPE_RANKS" --nnodes "$SLURM_JOB_NUM_NODES" --node_rank "$SLURM_PROCID" \\',
        '    --rdzv_backend c10d --max_restarts 0 --tee 3 --no-python "$@"',
    ]
