"""The suite of a shape: which workloads run without a command, and what the site's file expects of each.

Scripts for a machine without a scheduler: one process, or several ranks of it.

The job script of a shape: header, the job's environment, the launcher's line, and the suite without a command.
"""

from __future__ import annotations

from collections.abc import Mapping

from builder.compile import shell
from builder.compile.image_files import slugify
from builder.compile.launch.launchers import LAUNCHERS, is_bound
from builder.compile.launch.scripts import make_port_lines
from builder.compile.launch.shape import count_ranks_per_node, uses_whole_nodes
from builder.compile.scripts import JobScript, make_batch_script
from builder.compile.smoke_step import choose_workloads
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
RESERVED_SECONDS = 60  # seconds of a job's time that no workload may take
# Variables that a launcher or a runtime reads on the way and that need not arrive in the image as they are.
_PASSING_PREFIXES = ("SLURM_", "APPTAINERENV_", "SINGULARITYENV_")


def choose_suite(target: Target, purpose: Purpose) -> tuple[str, ...]:
    """The workloads of a shape: the probe and what the recipe names, else all; none without torch and imports."""
    if not choose_workloads(target):
        return ("imports",) if target.recipe.container.smoke.imports else ()
    chosen = target.recipe.container.smoke.workloads
    suite = SUITES[purpose]
    if chosen is None:
        return suite
    # The probe asks whether the machine and the launch are right, which no recipe can know.
    return tuple(name for name in suite if name in chosen or name == "probe")


def make_suite_lines(target: Target, job: Job | None, *, purpose: Purpose) -> Lines:
    """Bash that runs the suite by the functions of `suite.sh`; without a job on this machine, with `$ranks` ranks."""
    suite = choose_suite(target, purpose)
    if not suite:
        return ['echo "recipe: error: the recipe has no torch to try: give a command" >&2', "exit 2"]
    shape = purpose if job is not None else {"gpu": "one"}.get(purpose, "ranks")
    lines = [shell.quote_command(["begin_suite", shape, *suite])]
    if purpose != "gpu" and job is not None and set(suite) - set(ONE_PROCESS):
        lines.append(f"ranks={_ranks(target, job)}")
    if "allreduce" in suite:
        lines += _floors(target, job)
    lines += _device_lines(target, job) if suite != ("imports",) else []
    limit = max(60, (job.minutes * 60 - RESERVED_SECONDS) // len(suite)) if job is not None else 600
    for name in suite:
        words: list[Word] = ["--timeout", str(limit), *_expectations(target, job, purpose=purpose, name=name)]
        lines.append(_workload(name, words))
    return [*lines, "conclude_suite"]


def _ranks(target: Target, job: Job) -> str:
    """How many ranks the launcher is to start; on Dawn the hierarchy of devices decides, late."""
    each = "tasks" if target.site.launch.launcher == "mpiexec" else str(count_ranks_per_node(target, job))
    return f"$(({each} * SLURM_JOB_NUM_NODES))"


def _workload(name: str, words: list[Word]) -> str:
    call = shell.quote_command([f"{'one_process' if name in ONE_PROCESS else 'every_rank'}", name, *words])
    more = ' "${device[@]}"' if name != "imports" else ""
    more += ' "${floors[@]}"' if name == "allreduce" else ""
    return call + more + (' --started "$(date +%s.%N)"' if name == "startup" else "")


def _device_lines(target: Target, job: Job | None) -> Lines:
    """A job must use the site's GPUs. A machine without a scheduler has CPUs, or says by RECIPE_DEVICE what it has."""
    vendor = target.site.vendor
    if vendor == "cpu":
        return ["device=(--device cpu)"]
    if job is None:
        return ["device=(--device ${RECIPE_DEVICE:-auto})"]
    return [f"device=(--expect-vendor {vendor})"]


def _expectations(target: Target, job: Job | None, *, purpose: Purpose, name: str) -> list[Word]:
    words: list[Word] = []
    if name == "imports":
        return [*target.recipe.container.smoke.imports]
    if purpose != "gpu" and name not in ONE_PROCESS:
        # A launcher whose variables never reach the image must not pass as a world of one.
        words += ["--expect-ranks", ShellExpr("${ranks}")]
    if name == "ddp" and job is not None:
        # At the time limit it saves, and the job that is submitted again, or requeued, goes on from there.
        words += ["--snapshot", ShellExpr("${results}/ddp-${ranks}.snapshot")]
    if name == "probe" and job is not None:
        words += _probe(target, job, purpose=purpose)
    return words


def _probe(target: Target, job: Job, *, purpose: Purpose) -> list[Word]:
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
    if purpose == "nodes" and launch.expect_network:
        words += ["--expect-network", "|".join(launch.expect_network)]
    for path in launch.cache_not_under:
        words += ["--cache-not-under", path]
    for variable, value in _variables(target, purpose=purpose).items():
        words += ["--expect-variable", f"{variable}={value}"]
    return words


def _variables(target: Target, *, purpose: Purpose) -> dict[str, str]:
    """What every rank must find in its environment; what is expanded late has no value yet."""
    launch = target.site.launch
    near = launch.multi_node_environment if purpose == "nodes" else launch.one_node_environment
    found = {"PYTHONNOUSERSITE": "1", **launch.environment, **near}
    return {
        name: value for name, value in found.items() if "${" not in value and not name.startswith(_PASSING_PREFIXES)
    }


def _floors(target: Target, job: Job | None) -> Lines:
    """The bandwidth that must be reached, by the number of nodes: known for whole nodes, unknown elsewhere."""
    bandwidth = target.site.launch.bandwidth
    if job is None or not bandwidth or not uses_whole_nodes(target, job):
        return ["floors=()"]
    lines = ["floors=()", "case $SLURM_JOB_NUM_NODES in"]
    for nodes, sizes in bandwidth.items():
        words = [word for size, figure in sizes.items() for word in ("--floor", f"{size}={_floor(target, figure)}")]
        lines.append(f"    {nodes}) floors=({' '.join(shell.quote_word(word) for word in words)}) ;;")
    return [*lines, "esac"]


def _floor(target: Target, figure: str) -> str:
    """The measured figure less the site's tolerance, in GB/s."""
    return f"{float(figure) * (100 - target.site.launch.bandwidth_tolerance) / 100:.4g}"


def make_local_script(target: Target, *, ranks: bool) -> str:
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
        *make_suite_lines(target, None, purpose="node" if ranks else "gpu"),
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


SHAPES = {"gpu": "one device", "node": "one node", "nodes": "several nodes (sbatch --nodes=N)"}


def make_shape_script(target: Target, job: Job, *, purpose: Purpose, name: str = "", script: str = "") -> JobScript:
    """An sbatch script for one device, (a part of) one node or several nodes; "$@" is the command, none is the suite.

    `name` is the job's name, by default that of the recipe and the shape; `script` the path in the plan folder.
    """
    before, call = LAUNCHERS[target.site.launch.launcher](target, job, purpose)
    lines = [
        ". run/job.sh",
        *make_port_lines(target, job),
        ". run/container.sh",
        ". run/suite.sh",
        *before,
        "",
        "# launch COMMAND...: the command, once a rank",
        "launch() {",
        *[f"    {line}" for line in call],
        "}",
        "",
        'if [ "$#" -gt 0 ]; then',
        '    launch "$@"',
        "    exit",
        "fi",
        *make_suite_lines(target, job, purpose=purpose),
    ]
    title = f"{SHAPES[purpose]} of {target.site.title}: runs the command that is given, or the smoke suite."
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
