"""`rank.sh`: one task of a job. What only the rank knows is expanded here, late."""

from __future__ import annotations

from collections.abc import Mapping

from builder.compile import shell
from builder.model.plan import Expanding
from builder.model.site import Launcher
from builder.model.target import Target

RANK_VARIABLES: Mapping[Launcher, tuple[str, str, str]] = {
    "srun": ("${SLURM_PROCID}", "${SLURM_NTASKS}", "${SLURM_LOCALID}"),
    "mpiexec": ("${PMI_RANK}", "${PMI_SIZE}", "${MPI_LOCALRANKID}"),
}
TASK = {"mpiexec": "PMI_RANK"}


def rank_script(target: Target) -> str:
    """Run by the launcher once a task; it becomes the command, so that signals of the launcher reach that."""
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
        lines += shell.export({"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": local}, expand=True)
    lines += shell.export(launch.rank_environment, expand=True)
    if launch.node_local_dirs:
        # All ranks of a node do this at once.
        lines.append(". ./engine.sh")
        for folder in launch.node_local_dirs:
            words = f"{shell.word(Expanding(folder))} 'node-local folder' 'submit the job again'"
            lines.append(f"private_folder {words} || fail 'a node-local folder cannot be made'")
    lines += [*_one_process(target), "watch_stop"]
    if launch.launcher == "srun-torchrun":
        lines += _torchrun_lines()
    else:
        lines.append('exec_image "$@"')
    return "\n".join(lines) + "\n"


def _one_process(target: Target) -> list[str]:
    task = TASK.get(target.site.launch.launcher, "SLURM_PROCID")
    return [
        "# RECIPE_ONE_PROCESS: a workload of one process, for which the other tasks have nothing to do",
        'if [ "${RECIPE_ONE_PROCESS:-no}" = yes ]; then',
        f'    if [ "${task}" -ne 0 ]; then exit 0; fi',
        "    unset RANK WORLD_SIZE LOCAL_RANK",
        "    watch_stop",
        '    exec_image "$@"',
        "fi",
    ]


def _torchrun_lines() -> list[str]:
    """One task a node; torchrun starts the node's ranks. The node's number is late: srun knows it, the job does not."""
    return [
        "# RECIPE_RANKS: ranks of a node; PET_RDZV_*: where and by which id they meet; set by the job script",
        "exec_image python3 -m torch.distributed.run \\",
        '    --nproc_per_node "$RECIPE_RANKS" --nnodes "$SLURM_JOB_NUM_NODES" --node_rank "$SLURM_PROCID" \\',
        '    --rdzv_backend c10d --max_restarts 0 --tee 3 --no-python "$@"',
    ]
