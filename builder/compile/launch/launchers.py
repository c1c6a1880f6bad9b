"""The launchers: each prepares a job once and starts its ranks, with the devices that a rank sees.

A program selects its device by LOCAL_RANK or SLURM_LOCALID where it sees those of the node, and takes device 0 where it
sees one. LOCAL_RANK is an index that exists in both cases.

Commands that must not be launched at a site are refused before a job waits in the queue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from builder.compile import shell
from builder.compile.launch.settings import HOST_MPI
from builder.compile.launch.shape import count_ranks_per_node, uses_whole_nodes
from builder.model.finding import Finding
from builder.model.plan import ShellExpr, Word
from builder.model.site import GpuVisibility, Job, Launch, Launcher, Purpose, Vendor
from builder.model.target import Target

Lines = list[str]
# The variable by which a vendor's runtime shows some devices only.
VARIABLES: Mapping[Vendor, str] = {
    "amd": "ROCR_VISIBLE_DEVICES",
    "nvidia": "CUDA_VISIBLE_DEVICES",
    "intel": "ZE_AFFINITY_MASK",
}
_ONE_EACH = ("--gpus-per-task", "--gpu-bind")


def find_visibility(launch: Launch) -> GpuVisibility:
    """Return what a rank sees by default; options or variables that give it one device decide it."""
    own = any(option.startswith(_ONE_EACH) for option in launch.options)
    return "rank" if own or set(launch.rank_environment) & set(VARIABLES.values()) else launch.gpu_visibility


def make_visibility_lines(target: Target) -> Lines:
    """Make the lines of `job.sh` that set and check RECIPE_GPU_VISIBILITY; the user's choice wins."""
    if target.site.gpu is None:
        return []
    return [
        f"RECIPE_GPU_VISIBILITY=${{RECIPE_GPU_VISIBILITY:-{find_visibility(target.site.launch)}}}",
        "case $RECIPE_GPU_VISIBILITY in",
        "    node | rank) export RECIPE_GPU_VISIBILITY ;;",
        '    *) fail "RECIPE_GPU_VISIBILITY is \\"$RECIPE_GPU_VISIBILITY\\": write node or rank" ;;',
        "esac",
    ]


def make_option_lines(target: Target, job: Job, purpose: Purpose) -> Lines:
    """Make the lines of a job that choose the launcher's options for its devices, none if the site has no choice."""
    launch, gpu = target.site.launch, target.site.gpu
    if gpu is None or not (launch.rank_options or launch.node_options) or (purpose == "gpu" and launch.one_gpu_options):
        return []
    node = [option.replace("{gpus}", str(job.gpus)) for option in launch.node_options]
    lines = [
        "case $RECIPE_GPU_VISIBILITY in",
        f"    rank) gpu_options=({_join(launch.rank_options)}) ;;",
        f"    *) gpu_options=({_join(node)}) ;;",
        "esac",
    ]
    if launch.gpu_order and job.devices == gpu.devices and uses_whole_nodes(target, job):
        order = ",".join(map(str, launch.gpu_order))
        lines.append(f"export RECIPE_GPU_ORDER={order} # the device next to each rank, where ranks see all of them")
    elif launch.gpu_order:
        lines.append("unset RECIPE_GPU_ORDER")
    return lines


def _join(options: list[str] | tuple[str, ...]) -> str:
    return " ".join(shell.quote_word(option) for option in options)


def make_device_lines(target: Target) -> Lines:
    """Make the lines of `rank.sh` by which the rank sees its device alone, or the node's in their order."""
    gpu, launch = target.site.gpu, target.site.launch
    if gpu is None or launch.launcher == "srun-torchrun":
        return []
    variable = VARIABLES[gpu.vendor]
    by_launcher = bool(launch.rank_options) or find_visibility(launch) != launch.gpu_visibility
    own = ["LOCAL_RANK=0"] if by_launcher else [". run/device.sh", f'one_device {variable} "${{{variable}:-}}"']
    lines = [
        'if [ "${RECIPE_GPU_VISIBILITY:-}" = rank ]; then',
        "    # The rank sees one device, number 0.",
        *[f"    {line}" for line in own],
    ]
    if launch.gpu_order:
        lines += ['elif [ -n "${RECIPE_GPU_ORDER:-}" ]; then', f'    export {variable}="$RECIPE_GPU_ORDER"']
    return [*lines, "fi"]


def make_torchrun_prefix(target: Target) -> list[Word]:
    """Make the words before a program that torchrun starts: with `rank` it gets its device in the image."""
    gpu = target.site.gpu
    if gpu is None:
        return []
    variable = VARIABLES[gpu.vendor]
    text = f'. "$0" && one_device {variable} "${{{variable}:-}}" && exec "$@"'
    return ["sh", "-c", text]


_PYTHON = re.compile(r"python[0-9.]*")
_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_VALUES = ("-W", "-X", "--check-hash-based-pycs")  # options of python that take the next word


def check_command(target: Target, words: Sequence[str]) -> tuple[Finding, ...]:
    """Report a command that must not run: torchrun if the site forbids it, or inside ranks that the job starts."""
    program = find_torchrun(words)
    launch = target.site.launch
    if not program or (launch.launcher == "srun-torchrun" and is_torchrun(words)):
        return ()
    fix = f"leave '{program}' and its options out: the job starts the ranks and sets RANK, WORLD_SIZE and LOCAL_RANK"
    if launch.torchrun_refused:
        message = f"'{program}' must not be used on '{target.site.name}': {launch.torchrun_refused}"
        return (Finding(code="launch-torchrun", message=message, fix=fix),)
    if launch.launcher == "srun":
        fix += "; or give `--launcher torchrun`"
    message = f"the job starts a rank for each device already, and '{program}' would start its own in every one of them"
    return (Finding(code="launch-nested", message=message, fix=fix, level="warning"),)


def find_torchrun(words: Sequence[str]) -> str:
    """Return the name by which a command starts torchrun, "" if it does not."""
    rest = list(words)
    while rest and (rest[0] in ("env", "exec", "command", "nice", "time") or _is_assignment(rest[0])):
        rest.pop(0)
    if not rest:
        return ""
    program = PurePosixPath(rest[0]).name
    if program == "torchrun":
        return program
    if _PYTHON.fullmatch(program):
        return _find_module(rest[1:])
    return ""


def is_torchrun(words: Sequence[str]) -> bool:
    """Whether a command is torchrun itself, which rank.sh starts in place of the site's."""
    program = PurePosixPath(words[0]).name if words else ""
    module = _PYTHON.fullmatch(program) and list(words[1:3]) == ["-m", "torch.distributed.run"]
    return program == "torchrun" or bool(module)


def _find_module(options: list[str]) -> str:
    """Return the launcher that `python -m` runs; words after a program's name are no options of python."""
    while options and options[0].startswith("-"):
        word = options.pop(0)
        if word in _VALUES and options:
            options.pop(0)
        elif not word.startswith("--") and "m" in word[1:]:
            module = word.partition("m")[2] or (options[0] if options else "")
            return f"python -m {module}" if module in _MODULES else ""
    return ""


def _is_assignment(word: str) -> bool:
    return re.match(r"[A-Za-z_][A-Za-z0-9_]*=", word) is not None


RANK_COMMAND = ["bash", "run/rank.sh"]
# torchrun reads options from PET_* as well (torch/distributed/argparse_util.py, torch 1.9 to 2.14), which other users
# of the machine cannot see.
_RENDEZVOUS = [
    "# Anyone who knows this id can run programs as you through torchrun's port: each launch makes a new one.",
    "PET_RDZV_ID=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \\n')",
    "PET_RDZV_ENDPOINT=$MASTER_ADDR:$MASTER_PORT",
    "export PET_RDZV_ID PET_RDZV_ENDPOINT",
]


# Without it the other ranks of a dead one wait until the job's time limit.
_END_ALL = "--kill-on-bad-exit=1"
_RUN_RANKS = "run_ranks"  # of suite.sh: its exit code is that of the first rank that failed


@dataclass(frozen=True, kw_only=True)
class Call:
    """How a launcher is called: lines before, once a job; lines before each launch; its words.

    With `chosen` the array `gpu_options` of the lines before is added to the words. `by` is the function of the shell
    that launches ranks with their arguments.
    """

    before: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    words: tuple[Word, ...] = ()
    chosen: bool = False
    by: str = ""

    def start(self, *command: Word, arguments: bool = True) -> Lines:
        """Make the lines of one launch; with `arguments` those of the shell follow the command."""
        words = [*([self.by] if self.by and arguments else []), *self.words]
        if not self.chosen:
            line = shell.quote_command([*words, *command])
        else:
            line = f'{shell.quote_command(words)} "${{gpu_options[@]}}" {shell.quote_command(command)}'
        return [*self.each, *(f'{line} "$@"' if arguments else line).splitlines()]


def _make_cores_option(job: Job) -> list[Word]:
    """Pass --cpus-per-task on: srun does not inherit it from the job since Slurm 22.05."""
    return [ShellExpr("--cpus-per-task=${SLURM_CPUS_PER_TASK}")] if job.cpus_per_task else []


def _make_srun(target: Target, job: Job, purpose: Purpose) -> Call:
    launch = target.site.launch
    words: list[Word] = ["srun", _END_ALL]
    if is_bound(target, job):
        words.append(f"--cpu-bind=mask_cpu:{','.join(launch.cpu_masks)}")
    words += launch.one_gpu_options if purpose == "gpu" and launch.one_gpu_options else launch.options
    chosen = make_option_lines(target, job, purpose)
    return Call(before=tuple(chosen), words=(*words, *_make_cores_option(job)), chosen=bool(chosen), by=_RUN_RANKS)


def _make_srun_torchrun(target: Target, job: Job, purpose: Purpose) -> Call:
    del purpose
    before = (
        f"export RECIPE_RANKS={count_ranks_per_node(target, job)}",
        "# torchrun sets 1 where nothing is set.",
        "threads=$((${SLURM_CPUS_PER_TASK:-$RECIPE_RANKS} / RECIPE_RANKS))",
        "export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}",
    )
    options = ("--ntasks-per-node=1", *target.site.launch.options, *_make_cores_option(job))
    words = ("srun", _END_ALL, *options)
    return Call(before=before, each=tuple(_RENDEZVOUS), words=words, by=_RUN_RANKS)


# mpi4py 4.1 and later (_mpiabi.py) load what the variable names; the folder has libfabric and its providers too.
_MPI_OF_HOST = [
    "# mpi4py's wheel loads the library of the MPI whose mpiexec starts the ranks.",
    'mpi=$(dirname -- "$(dirname -- "$(command -v mpiexec)")")',
    'if [ -z "${MPI4PY_LIBMPI:-}" ] && [ "$mpi" != /usr ] && [ -e "$mpi/lib/libmpi.so.12" ]; then',
    '    export MPI4PY_LIBMPI="$mpi/lib/libmpi.so.12" RECIPE_BINDS="${RECIPE_BINDS:+$RECIPE_BINDS,}$mpi"',
    "fi",
    "# Without one there it is the library that the site binds and puts first on LD_LIBRARY_PATH.",
    *(f'export {name}="${{{name}:-{value}}}"' for name, value in HOST_MPI.items()),
]


def _make_mpiexec(target: Target, job: Job, purpose: Purpose) -> Call:
    """Start ranks with Hydra, the launcher of Intel MPI, with the list of hosts and the ranks of each."""
    del purpose
    before = (
        "# Hydra starts one process per node by srun, which would bind it and all its ranks to the cores of one task.",
        "export SLURM_CPU_BIND=none",
        "# Intel's mpirun sets the same in a job; mpiexec would use ssh.",
        "export I_MPI_HYDRA_BOOTSTRAP=${I_MPI_HYDRA_BOOTSTRAP:-slurm}",
        'hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)',
        *_make_device_lines(target, job),
        *(_MPI_OF_HOST if target.site.brings_mpi else []),
        "world=$((tasks * SLURM_JOB_NUM_NODES))",
    )
    words: list[Word] = ["mpiexec", "-n", ShellExpr("${world}"), "-ppn", ShellExpr("${tasks}")]
    return Call(before=before, words=(*words, "--hosts", ShellExpr("${hosts}"), *target.site.launch.options))


def _make_device_lines(target: Target, job: Job) -> Lines:
    """Count the ranks of a node: the scheduler counts cards; ranks use stacks (FLAT) or cards (COMPOSITE)."""
    gpu, tasks = target.site.gpu, job.tasks_per_node
    hierarchy = target.site.launch.device_hierarchy
    if gpu is None or not hierarchy:
        return [f"tasks={tasks}"]
    stacks = max(1, gpu.devices // gpu.scheduled)
    return [
        f"export ZE_FLAT_DEVICE_HIERARCHY=${{ZE_FLAT_DEVICE_HIERARCHY:-{hierarchy}}}",
        "case $ZE_FLAT_DEVICE_HIERARCHY in",
        f"    FLAT) tasks={tasks} ;; # a rank a stack, {stacks} of them a card",
        f"    COMPOSITE) tasks={-(-tasks // stacks)} ;; # a rank a card",
        '    *) fail "ZE_FLAT_DEVICE_HIERARCHY is \\"$ZE_FLAT_DEVICE_HIERARCHY\\": write FLAT or COMPOSITE" ;;',
        "esac",
        'ZE_AFFINITY_MASK=$(seq -s , 0 "$((tasks - 1))")',
        "export ZE_AFFINITY_MASK",
        "threads=$((${SLURM_CPUS_ON_NODE:-$tasks} / tasks))",
        "export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}",
    ]


def _make_plain(target: Target, job: Job, purpose: Purpose) -> Call:
    del target, job, purpose
    return Call()


def is_bound(target: Target, job: Job) -> bool:
    """Whether the site's CPU masks apply to a job: on whole nodes only, where the job owns every core."""
    return job.bind and bool(target.site.launch.cpu_masks) and uses_whole_nodes(target, job)


def make_one_task(target: Target, job: Job) -> Call:
    """Make the call of one task of a job of one device, with the devices that a rank of it has.

    Under mpiexec the job script itself has them.
    """
    launcher = target.site.launch.launcher
    if launcher == "mpiexec":
        return Call(before=tuple(_make_device_lines(target, job)))
    if launcher == "srun-torchrun":
        return Call(words=("srun", "--ntasks-per-node=1", *_make_cores_option(job)))
    return LAUNCHERS[launcher](target, job, "gpu")


LAUNCHERS: Mapping[Launcher, Callable[[Target, Job, Purpose], Call]] = {
    "srun": _make_srun,
    "srun-torchrun": _make_srun_torchrun,
    "mpiexec": _make_mpiexec,
    "plain": _make_plain,
}
