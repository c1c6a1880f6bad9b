"""The suite of a shape and the scripts that run it.

The suite is the list of workloads that run if no command is given, with the values that the site's file expects.
Scripts for a machine without a scheduler start one process or several ranks. Job scripts have a header, the environment
of the job, the line of the launcher and the suite.
"""

from __future__ import annotations

from collections.abc import Mapping

from builder.compile import shell
from builder.compile.image_files import slugify
from builder.compile.launch.container_scripts import make_port_lines
from builder.compile.launch.launchers import LAUNCHERS, RANK_COMMAND, is_bound
from builder.compile.launch.shape import count_ranks_per_node, uses_whole_nodes
from builder.compile.smoke_step import MPI_WORKLOAD, choose_workloads, has_mpi_workload
from builder.compile.step_scripts import JobScript, make_batch_script
from builder.model.plan import ShellExpr, Word
from builder.model.site import Job, Purpose
from builder.model.target import Target

Lines = list[str]
SUITES: Mapping[str, tuple[str, ...]] = {
    "gpu": ("probe", "mnist", "startup"),
    "node": ("probe", "ddp", "pi", "allreduce", "startup"),
    "nodes": ("probe", "ddp", "pi", "allreduce", "startup"),
}
# One process, on the first rank; the others run on every rank.
ONE_PROCESS = ("mnist", "imports")
WITHOUT_DEVICE = ("imports", MPI_WORKLOAD)
MPI_SECONDS = 300  # it takes a few; a start or an end that hangs is reported then
RESERVED_SECONDS = 60  # seconds of a job that no workload may use


def choose_suite(target: Target, purpose: Purpose) -> tuple[str, ...]:
    """Choose the workloads of a shape: the probe and the recipe's, else all; none without torch, imports and MPI."""
    mpi = (MPI_WORKLOAD,) if purpose != "gpu" and has_mpi_workload(target) else ()
    if not choose_workloads(target):
        return mpi or (("imports",) if target.recipe.container.smoke.imports else ())
    chosen = target.recipe.container.smoke.workloads
    suite = SUITES[purpose]
    if chosen is None:
        return (*suite, *mpi)
    # The probe checks the machine and the launch, which do not depend on the recipe.
    return (*(name for name in suite if name in chosen or name == "probe"), *mpi)


def make_suite_lines(target: Target, job: Job | None, *, purpose: Purpose) -> Lines:
    """Make bash that runs the suite with the functions of `suite.sh`; without a job with `$ranks` ranks on this
    machine.
    """
    suite = choose_suite(target, purpose)
    if not suite:
        return ['echo "recipe: error: the recipe has no torch to test: give a command" >&2', "exit 2"]
    shape = purpose if job is not None else {"gpu": "one"}.get(purpose, "ranks")
    lines = [shell.quote_command(["begin_suite", shape, *suite])]
    if purpose != "gpu" and job is not None and set(suite) - set(ONE_PROCESS):
        lines.append(f"ranks={_make_rank_count(target, job)}")
    if "allreduce" in suite:
        lines += _make_floor_lines(target, job)
    network = purpose == "nodes" and job is not None and bool(target.site.launch.expect_network)
    network = network and "probe" in suite and not target.lacks_plugin
    if network:
        names = ["--expect-network", "|".join(target.site.launch.expect_network)]
        one = '[ "$SLURM_JOB_NUM_NODES" -eq 1 ]'
        lines += [f"network=({shell.quote_command(names)})", f"if {one}; then network=(); fi # sbatch --nodes=1"]
    lines += _make_device_lines(target, job) if set(suite) - set(WITHOUT_DEVICE) else []
    limit = max(60, (job.minutes * 60 - RESERVED_SECONDS) // len(suite)) if job is not None else 600
    for name in suite:
        seconds = min(limit, MPI_SECONDS) if name == MPI_WORKLOAD else limit
        words: list[Word] = ["--timeout", str(seconds), *_make_expectations(target, job, purpose=purpose, name=name)]
        probe = name == "probe" and job is not None
        lines.append(_workload(name, words, variables=probe, network=network and probe))
    return [*lines, "conclude_suite"]


def _make_rank_count(target: Target, job: Job) -> str:
    """Return the number of ranks to start; on Dawn the device hierarchy decides it at run time."""
    each = "tasks" if target.site.launch.launcher == "mpiexec" else str(count_ranks_per_node(target, job))
    return f"$(({each} * SLURM_JOB_NUM_NODES))"


def _workload(name: str, words: list[Word], *, variables: bool, network: bool) -> str:
    call = shell.quote_command([f"{'one_process' if name in ONE_PROCESS else 'every_rank'}", name, *words])
    more = ' "${network[@]}"' if network else ""
    more += ' "${expected_variables[@]}"' if variables else ""
    more += ' "${device[@]}"' if name not in WITHOUT_DEVICE else ""
    more += ' "${floors[@]}"' if name == "allreduce" else ""
    return call + more + (' --started "$(date +%s.%N)"' if name == "startup" else "")


def _make_device_lines(target: Target, job: Job | None) -> Lines:
    """Require the site's GPUs in a job; a machine without a scheduler uses CPUs or the device of RECIPE_DEVICE."""
    vendor = target.site.vendor
    if vendor == "cpu":
        return ["device=(--device cpu)"]
    if job is None:
        return ["device=(--device ${RECIPE_DEVICE:-auto})"]
    return [f"device=(--expect-vendor {vendor})"]


def _make_expectations(target: Target, job: Job | None, *, purpose: Purpose, name: str) -> list[Word]:
    words: list[Word] = []
    if name == "imports":
        return [*target.recipe.container.smoke.imports]
    if purpose != "gpu" and name not in ONE_PROCESS:
        # If the launcher's variables do not reach the image, it must not pass as a world of one.
        words += ["--expect-ranks", ShellExpr("${ranks}")]
    if name == MPI_WORKLOAD and target.site.launch.mpi != "unknown":
        words += ["--expect-mpi", target.site.launch.mpi]
    if name == "ddp" and job is not None:
        # It saves at the time limit; a requeued job, or one submitted again, resumes there.
        words += ["--snapshot", ShellExpr("${results}/ddp-${ranks}.snapshot")]
    if name == "probe" and job is not None:
        words += _probe(target, job)
    return words


def _probe(target: Target, job: Job) -> list[Word]:
    site, launch = target.site, target.site.launch
    words: list[Word] = []
    if is_bound(target, job):
        words += ["--expect-masks", ",".join(launch.cpu_masks)]
    if job.cpus_per_task:
        words += ["--expect-cores", str(job.cpus_per_task)]
    if site.gpu is not None:
        late = launch.launcher == "mpiexec" and launch.device_hierarchy
        words += ["--expect-devices", ShellExpr("${tasks}") if late else str(job.devices)]
        if site.gpu.vendor != "intel":
            words += ["--expect-gfx", site.gpu.target]
    for path in launch.cache_not_under:
        words += ["--cache-not-under", path]
    return words


def _make_floor_lines(target: Target, job: Job | None) -> Lines:
    """Make the bandwidth floors by number of nodes; they are known for whole nodes only.

    Between nodes there is none that TCP could not reach.
    """
    bandwidth = target.site.launch.bandwidth
    if job is None or not bandwidth or not uses_whole_nodes(target, job):
        return ["floors=()"]
    lines = ["floors=()", "case $SLURM_JOB_NUM_NODES in"]
    for nodes, sizes in bandwidth.items():
        if nodes != "1" and target.lacks_plugin:
            continue
        words = [
            word for size, figure in sizes.items() for word in ("--floor", f"{size}={_compute_floor(target, figure)}")
        ]
        lines.append(f"    {nodes}) floors=({' '.join(shell.quote_word(word) for word in words)}) ;;")
    return [*lines, "esac"]


def _compute_floor(target: Target, figure: str) -> str:
    """Return the measured bandwidth less the site's tolerance, in GB/s; rounded it would be another figure."""
    return f"{float(figure) * (100 - target.site.launch.bandwidth_tolerance) / 100:.10g}"


def make_local_script(target: Target, *, ranks: bool) -> str:
    """Make `one.sh` or `ranks.sh`: run a command in the image on this machine; without a command, the suite."""
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
        *make_suite_lines(target, None, purpose="node" if ranks else "gpu"),
    ]
    return "\n".join(lines) + "\n"


_ONE = ["", "launch() {", '    in_image "$@"', "}", ""]

_RANKS = [
    "ranks=${1:-2}",
    'if [ "$#" -gt 0 ]; then shift; fi',
    'case $ranks in "" | *[!0-9]* | 0*) echo "recipe: error: \'$ranks\' is not a number" >&2 && exit 2 ;; esac',
    "",
    "# RECIPE_PROCESSES=plain: without torchrun, for a program that needs no torch",
    "launch() {",
    '    if [ "${RECIPE_ONE_PROCESS:-no}" = yes ]; then',
    '        in_image "$@"',
    '    elif [ "${RECIPE_PROCESSES:-torchrun}" = plain ]; then',
    '        plain_ranks "$ranks" "$@"',
    "    else",
    "        # torchrun sets 1 where nothing is set.",
    "        local threads=$(($(nproc) / ranks))",
    "        export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}",
    '        in_image python3 -m torch.distributed.run --standalone --nproc_per_node "$ranks" --no-python "$@"',
    "    fi",
    "}",
    "",
]


SHAPES = {"gpu": "one device", "node": "one node", "nodes": "several nodes (sbatch --nodes=N)"}


def make_shape_script(target: Target, job: Job, *, purpose: Purpose, name: str = "", script: str = "") -> JobScript:
    """Make an sbatch script for one device, (part of) one node or several nodes; "$@" is the command, else the suite.

    `name` is the name of the job, by default recipe and shape; `script` is the path in the plan folder.
    """
    call = LAUNCHERS[target.site.launch.launcher](target, job, purpose)
    lines = [
        ". run/job.sh",
        *make_port_lines(target, job),
        ". run/container.sh",
        ". run/suite.sh",
        *call.before,
        "",
        "# launch COMMAND...: the command, once a rank",
        "launch() {",
        *[f"    {line}" for line in call.start(*RANK_COMMAND)],
        "}",
        "",
        'if [ "$#" -gt 0 ]; then',
        '    launch "$@"',
        "    exit",
        "fi",
        *make_suite_lines(target, job, purpose=purpose),
    ]
    title = f"{SHAPES[purpose]} of {target.site.title}: runs the given command, or the smoke suite."
    return make_batch_script(
        target,
        job,
        name=name or f"{slugify(target.recipe.name)}-{purpose}",
        title=title,
        lines=lines,
        shape=purpose,
        script=script or f"run/{purpose}.sbatch",
        ranks=True,
    )
