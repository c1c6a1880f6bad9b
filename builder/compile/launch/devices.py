"""Which devices a rank sees: those of its node, or one of its own.

A program selects its device by LOCAL_RANK or SLURM_LOCALID where it sees those of the node, and takes device 0 where it
sees one. LOCAL_RANK is an index that exists in both cases.
"""

from __future__ import annotations

from collections.abc import Mapping

from builder.compile import shell
from builder.compile.launch.shape import uses_whole_nodes
from builder.model.plan import Word
from builder.model.site import GpuVisibility, Job, Launch, Purpose, Vendor
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
