"""How an image is run at a site: the folder `run/` of a plan, one script a shape of job, in the site's own launcher.

Three levels, because each value has its time: a job script (early: modules, master address), `rank.sh` (late: what only
a rank knows, such as its device) and `container.sh` (the runtime with its flags and binds), which the others source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from builder.compile import shell
from builder.compile.content import image_name, slug, variables
from builder.compile.scripts import batch_script, module_lines, runtime_command
from builder.model.plan import Expanding, File, Word
from builder.model.site import Job, Launcher
from builder.model.target import Target

Lines = list[str]


def run_files(target: Target) -> tuple[File, ...]:
    """Every script of `run/`."""
    files = [File(path="run/container.sh", text=container_script(target))]
    if target.site.scheduler.kind == "none":
        return (
            *files,
            File(path="run/one.sh", text=plain_script(target, ranks=False)),
            File(path="run/ranks.sh", text=plain_script(target, ranks=True)),
        )
    files += [File(path="run/job.sh", text=job_script(target)), File(path="run/rank.sh", text=rank_script(target))]
    for purpose in ("gpu", "node", "nodes"):
        job = target.site.scheduler.jobs.get(purpose)
        if job is not None:
            files.append(File(path=f"run/{purpose}.sbatch", text=shape_script(target, job, purpose=purpose)))
    return tuple(files)


def container_script(target: Target) -> str:
    """`container.sh`: defines in_image, which runs a command in the image with the site's flags and binds."""
    if target.backend == "tykky":
        return _tykky_container(target)
    first, second = runtime_command(target)
    lines = [
        "# How this site enters the image; sourced by the scripts beside it.",
        "# shellcheck shell=bash",
        f'image=${{RECIPE_IMAGE:-"$PWD/{image_name(target)}.sif"}}',
        f"runtime=$(command -v {first} || command -v {second}) || {{",
        f"    echo 'recipe: error: neither {first} nor {second} is installed' >&2",
        "    exit 1",
        "}",
        *_options(target),
    ]
    lines += [
        "",
        "# in_image COMMAND...: in the folder the script was started in",
        "in_image() {",
        '    "$runtime" exec "${options[@]}" --bind "$PWD" --pwd "$PWD" "$image" "$@"',
        "}",
    ]
    return "\n".join(lines) + "\n"


def _options(target: Target) -> Lines:
    """Flags and binds; what a site binds from its own disks is bound where it exists (its file names drift)."""
    runtime = target.site.runtime
    flags: list[Word] = [*([runtime.gpu_flag] if runtime.gpu_flag else []), *runtime.options]
    flags += [word for bind in runtime.binds for word in ("--bind", Expanding(bind))]
    lines = ["options=(" + " ".join(shell.word(flag) for flag in flags) + ")"]
    if runtime.optional_binds:
        lines.append("for path in \\")
        lines += [f"    {shell.word(Expanding(bind))} \\" for bind in runtime.optional_binds]
        lines[-1] = lines[-1].removesuffix(" \\")
        lines += ["do", '    if [ -e "${path%%:*}" ]; then options+=(--bind "$path"); fi', "done"]
    if target.backend == "cotainr":
        # A cotainr image carries no variables of its own.
        lines += shell.export(variables(target))
    return lines


def _tykky_container(target: Target) -> str:
    lines = [
        "# How this site enters the installation; sourced by the scripts beside it.",
        "# shellcheck shell=bash",
        f'image=${{RECIPE_IMAGE:-"$PWD/{image_name(target)}"}}',
        'export PATH="$image/bin:$PATH"',
        *shell.export(variables(target)),
        "",
        "# in_image COMMAND...: the wrappers of the installation enter its container by themselves",
        "in_image() {",
        '    "$@"',
        "}",
    ]
    return "\n".join(lines) + "\n"


def job_script(target: Target) -> str:
    """`job.sh`: what holds for the whole job, expanded once, on its first node."""
    site, launch = target.site, target.site.launch
    lines = ["# What holds for a whole job; sourced by the job scripts beside it.", "# shellcheck shell=bash"]
    lines += [". ./engine.sh", *module_lines((*site.runtime.modules, *site.runtime.run_modules)), "set -u"]
    lines += [f"unset {' '.join(launch.unset)}"] if launch.unset else []
    first_host = 'scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1'
    lines += [
        f"MASTER_ADDR=$({first_host})"
        if launch.master_addr == "first-host"
        else "MASTER_ADDR=$(hostname -i | cut -d ' ' -f 1)"
    ]
    lines += [f"MASTER_PORT={shell.word(Expanding(launch.master_port))}", "export MASTER_ADDR MASTER_PORT"]
    lines += shell.export({**site.network.proxy, **launch.environment}, expand=True)
    if launch.multi_node_environment:
        lines.append('if [ "${SLURM_JOB_NUM_NODES:-1}" -gt 1 ]; then')
        lines += [f"    {line}" for line in shell.export(launch.multi_node_environment, expand=True)]
        lines.append("fi")
    return "\n".join(lines) + "\n"


RANK_VARIABLES: Mapping[Launcher, tuple[str, str, str]] = {
    "srun": ("${SLURM_PROCID}", "${SLURM_NTASKS}", "${SLURM_LOCALID}"),
    "mpiexec": ("${PMI_RANK}", "${PMI_SIZE}", "${MPI_LOCALRANKID}"),
}


def rank_script(target: Target) -> str:
    """`rank.sh`: run by the launcher once a task; what only the rank knows is expanded here, late."""
    launch = target.site.launch
    lines = [
        "#!/usr/bin/env bash",
        "# One task of a job: run by the launcher, not by hand.",
        "set -eu",
        ". run/container.sh",
    ]
    ranks = RANK_VARIABLES.get(launch.launcher)
    local = "${SLURM_LOCALID}"
    if ranks is not None:
        rank, world, local = ranks
        lines += shell.export({"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": local}, expand=True)
    lines += shell.export(launch.rank_environment, expand=True)
    if launch.node_local_dirs:
        folders = " ".join(shell.word(Expanding(folder)) for folder in launch.node_local_dirs)
        lines.append(f"mkdir -p {folders}")
    if launch.launcher == "srun-torchrun":
        lines += _torchrun_lines()
    else:
        lines.append('in_image "$@"')
    return "\n".join(lines) + "\n"


def _torchrun_lines() -> Lines:
    """One task a node; torchrun starts the node's ranks. The node's number is late: srun knows it, the job does not."""
    return [
        "# RECIPE_RANKS: ranks of a node, set by the job script",
        "in_image python3 -m torch.distributed.run \\",
        '    --nproc_per_node "$RECIPE_RANKS" --nnodes "$SLURM_JOB_NUM_NODES" --node_rank "$SLURM_PROCID" \\',
        '    --rdzv_id "$SLURM_JOB_ID" --rdzv_backend c10d --rdzv_endpoint "$MASTER_ADDR:$MASTER_PORT" \\',
        '    --max_restarts 0 --tee 3 --no-python "$@"',
    ]


def shape_script(target: Target, job: Job, *, purpose: str) -> str:
    """A job script for one device, one node or several nodes; without a command it runs the smoke test."""
    shape = {"gpu": "one device", "node": "one node", "nodes": "several nodes (sbatch --nodes=N)"}[purpose]
    title = f"{shape} of {target.site.title}: runs the command that is given, or the smoke test."
    default = SMOKE_DEFAULT["gpu" if purpose == "gpu" else "ranks"]
    words = [*default, *([] if target.site.vendor == "cpu" else ["--expect-vendor", target.site.vendor])]
    if purpose != "gpu":
        # A launcher whose variables never reach the image must not pass as a world of one.
        words += ["--expect-ranks", f'"$(({ranks_per_node(target, job)} * SLURM_JOB_NUM_NODES))"']
    result = f"smoke-{purpose}.json"
    lines = [
        ". run/job.sh",
        'if [ "$#" -eq 0 ]; then',
        f"    rm -f {result} {result}.rank*.json",
        f"    set -- {' '.join([*words, '--result', result])}",
        "fi",
        *LAUNCHERS[target.site.launch.launcher](target, job, purpose),
    ]
    return batch_script(target, job, name=f"{slug(target.recipe.name)}-{purpose}", title=title, lines=lines)


def ranks_per_node(target: Target, job: Job) -> int:
    """How many ranks a job starts on each node; torchrun starts one a device, the others one a task."""
    return max(1, job.devices) if target.site.launch.launcher == "srun-torchrun" else job.tasks_per_node


SMOKE_DEFAULT = {"gpu": ["python3", "-B", "smoke", "mnist"], "ranks": ["python3", "-B", "smoke", "ddp"]}


def _srun(target: Target, job: Job, purpose: str) -> Lines:
    launch = target.site.launch
    words: list[Word] = ["srun"]
    if job.bind and launch.cpu_masks:
        words.append(f"--cpu-bind=mask_cpu:{','.join(launch.cpu_masks)}")
    words += launch.one_gpu_options if purpose == "gpu" and launch.one_gpu_options else launch.options
    # srun does not take --cpus-per-task over from the job since Slurm 22.05.
    words += [Expanding("--cpus-per-task=${SLURM_CPUS_PER_TASK}")] if job.cpus_per_task else []
    return [shell.command([*words, "bash", "run/rank.sh"]) + ' "$@"']


def _srun_torchrun(target: Target, job: Job, purpose: str) -> Lines:
    words: list[Word] = ["srun", "--ntasks-per-node=1", *target.site.launch.options]
    words += [Expanding("--cpus-per-task=${SLURM_CPUS_PER_TASK}")] if job.cpus_per_task else []
    del purpose
    return [
        f"export RECIPE_RANKS={ranks_per_node(target, job)}",
        shell.command([*words, "bash", "run/rank.sh"]) + ' "$@"',
    ]


def _mpiexec(target: Target, job: Job, purpose: str) -> Lines:
    """Intel MPI's Hydra; the devices of a node are counted as ranks see them (two stacks a card in FLAT)."""
    del purpose
    tasks = job.tasks_per_node
    lines = [f"tasks={tasks}", 'hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)']
    if target.site.vendor == "intel":
        lines.append('ZE_AFFINITY_MASK=$(seq -s , 0 "$((tasks - 1))")')
        lines.append("export ZE_AFFINITY_MASK")
    words: list[Word] = [
        "mpiexec",
        "-n",
        Expanding("${world}"),
        "-ppn",
        Expanding("${tasks}"),
        "--hosts",
        Expanding("${hosts}"),
    ]
    words += target.site.launch.options
    lines.append("world=$((tasks * SLURM_JOB_NUM_NODES))")
    return [*lines, shell.command([*words, "bash", "run/rank.sh"]) + ' "$@"']


def _plain(target: Target, job: Job, purpose: str) -> Lines:
    del target, job, purpose
    return ['bash run/rank.sh "$@"']


LAUNCHERS: Mapping[Launcher, Callable[[Target, Job, str], Lines]] = {
    "srun": _srun,
    "srun-torchrun": _srun_torchrun,
    "mpiexec": _mpiexec,
    "plain": _plain,
}


def plain_script(target: Target, *, ranks: bool) -> str:
    """A script for a machine without a scheduler: one process, or several ranks started by torchrun."""
    usage = "run/ranks.sh [RANKS [COMMAND...]]" if ranks else "run/one.sh [COMMAND...]"
    lines = [
        "#!/usr/bin/env bash",
        shell.comment(f"Runs a command in the image on this machine; without one, the smoke test. Usage: bash {usage}"),
        "set -euo pipefail",
        'cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."',
        ". run/container.sh",
    ]
    if ranks:
        lines += [
            "ranks=${1:-2}",
            'if [ "$#" -gt 0 ]; then shift; fi',
            'if [ "$#" -eq 0 ]; then set -- python3 -B smoke ddp --result smoke-ranks.json; fi',
            'in_image python3 -m torch.distributed.run --standalone --nproc_per_node "$ranks" --no-python "$@"',
        ]
    else:
        lines += ['if [ "$#" -eq 0 ]; then set -- python3 -B smoke mnist --result smoke-one.json; fi', 'in_image "$@"']
    del target
    return "\n".join(lines) + "\n"
