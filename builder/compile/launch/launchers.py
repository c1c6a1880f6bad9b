"""The launchers: each prepares a job once and starts its ranks.

Commands that must not be launched at a site are refused before a job waits in the queue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from builder.compile import shell
from builder.compile.launch.devices import make_option_lines
from builder.compile.launch.shape import count_ranks_per_node, uses_whole_nodes
from builder.model.finding import Finding
from builder.model.plan import ShellExpr, Word
from builder.model.site import Job, Launcher, Purpose
from builder.model.target import Target

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


Lines = list[str]
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
_RANKS_ENDED = " || ranks_ended $?"


@dataclass(frozen=True, kw_only=True)
class Call:
    """How a launcher is called: lines before, once a job; lines before each launch; its words.

    With `chosen` the array `gpu_options` of the lines before is added to the words, `after` follows each launch.
    """

    before: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    words: tuple[Word, ...] = ()
    chosen: bool = False
    after: str = ""

    def start(self, *command: Word, arguments: bool = True) -> Lines:
        """Make the lines of one launch; with `arguments` those of the shell follow the command."""
        if not self.chosen:
            line = shell.quote_command([*self.words, *command])
        else:
            line = f'{shell.quote_command(self.words)} "${{gpu_options[@]}}" {shell.quote_command(command)}'
        return [*self.each, *(f'{line} "$@"{self.after}' if arguments else line).splitlines()]


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
    return Call(before=tuple(chosen), words=(*words, *_make_cores_option(job)), chosen=bool(chosen), after=_RANKS_ENDED)


def _make_srun_torchrun(target: Target, job: Job, purpose: Purpose) -> Call:
    del purpose
    before = (
        f"export RECIPE_RANKS={count_ranks_per_node(target, job)}",
        "# torchrun sets 1 where nothing is set.",
        "threads=$((${SLURM_CPUS_PER_TASK:-$RECIPE_RANKS} / RECIPE_RANKS))",
        "export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}",
    )
    words = ("srun", _END_ALL, "--ntasks-per-node=1", *target.site.launch.options, *_make_cores_option(job))
    return Call(before=before, each=tuple(_RENDEZVOUS), words=words, after=_RANKS_ENDED)


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
