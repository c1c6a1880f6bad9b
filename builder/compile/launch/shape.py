"""The shape of a job: nodes, devices and ranks, from the shapes in the site's file and the user's choice.

The choice changes the site: its jobs request one task for each rank (srun) or one task a node that starts the ranks
(torchrun).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from builder.model.finding import ConfigError, Finding, Location, UnsupportedError
from builder.model.site import LAUNCHER_NAMES, GpuVisibility, Job, Launcher, Purpose, Site
from builder.model.target import Target

_MEMORY = re.compile(r"(\d+)([KMGT]?)")
_KIB = {"K": 1, "": 1024, "M": 1024, "G": 1024**2, "T": 1024**3}  # Slurm reads a bare number as MiB


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The size of a job: devices per node as ranks count them (0 on CPU sites), and ranks per node."""

    nodes: int
    devices: int
    ranks_per_node: int


def make_shape(target: Target, job: Job) -> Shape:
    return Shape(nodes=job.nodes, devices=job.devices, ranks_per_node=count_ranks_per_node(target, job))


def count_ranks_per_node(target: Target, job: Job) -> int:
    """Count the ranks per node: torchrun starts one per device, the other launchers one per task."""
    if target.site.launch.launcher == "srun-torchrun":
        return job.ranks or max(1, job.devices)
    return job.tasks_per_node


def uses_whole_nodes(target: Target, job: Job) -> bool:
    """Whether a job has its nodes to itself: it requests all of a node, or the site allocates whole nodes only."""
    site = target.site
    if site.scheduler.whole_nodes or "exclusive" in job.options:
        return True
    if site.gpu is not None:
        return job.devices == site.gpu.devices
    return (
        site.node.usable_cores is not None and job.tasks_per_node * (job.cpus_per_task or 0) >= site.node.usable_cores
    )


def choose_job(target: Target, *, nodes: int | None, devices: int | None) -> tuple[Purpose, Job]:
    """Choose and adapt the site's job for the given nodes and devices of each; the default is one device.

    `devices` counts as ranks do (a GCD, a stack). Raises ConfigError if the site has no such shape.
    """
    site, jobs = target.site, target.site.scheduler.jobs
    if site.scheduler.kind == "none":
        raise _make_error(f"'{site.name}' has no scheduler: it has no jobs", "run the command on this machine")
    for what, count in (("nodes", nodes), ("devices", devices)):
        if count is not None and count < 1:
            raise _make_error(f"a job of {count} {what}", "give at least 1")
    most = site.gpu.devices if site.gpu else 0
    if devices is not None and devices > most:
        here = f"a node of '{site.name}' has {most} devices, not {devices}" if most else f"'{site.name}' has no GPUs"
        raise _make_error(here, f"request 1 to {most}, on more nodes" if most else "leave the number of GPUs out")
    if nodes is not None and nodes > 1:
        return "nodes", _adapt_to_nodes(target, nodes=nodes, devices=devices)
    if nodes is None and devices in (None, 1):
        return "gpu", _find_job(target, "gpu")
    if devices is None or devices == most:
        return "node", _find_job(target, "node")
    if devices == 1 and "gpu" in jobs:
        return "gpu", jobs["gpu"]
    return "node", make_partial_job(target, devices=devices)


def _adapt_to_nodes(target: Target, *, nodes: int, devices: int | None) -> Job:
    """Adapt the job for several nodes; with fewer devices than they have, the CPU masks do not apply."""
    site = target.site
    job = replace(_find_job(target, "nodes"), nodes=nodes)
    if devices is None or site.gpu is None or devices == site.gpu.devices:
        return job
    if site.scheduler.several_whole:
        message = f"a job of {nodes} nodes of '{site.name}' takes all {site.gpu.devices} devices of each"
        raise _make_error(message, "leave the number of GPUs out, or request one node")
    return _scale(target, job, devices=devices, one=job, share=devices / site.gpu.devices)


def make_partial_job(target: Target, *, devices: int) -> Job:
    """Make a job for a part of one node: cores and memory in proportion to the devices, without CPU masks."""
    jobs = target.site.scheduler.jobs
    if "gpu" in jobs:
        # Parts of a node use the partition for single devices.
        whole = jobs.get("node", jobs["gpu"])
        one = replace(jobs["gpu"], minutes=max(whole.minutes, jobs["gpu"].minutes))
        return _scale(target, one, devices=devices, one=whole, share=float(devices))
    node = _find_job(target, "node")
    assert target.site.gpu is not None, "devices are requested"
    return _scale(target, node, devices=devices, one=node, share=devices / target.site.gpu.devices)


def _scale(target: Target, job: Job, *, devices: int, one: Job, share: float) -> Job:
    """Change the devices of a job: tasks, cores and cards follow, memory is multiplied by `share`.

    `one` is the job that defines the cores of a rank.
    """
    gpu = target.site.gpu
    assert gpu is not None, "devices are requested"
    cores = one.cpus_per_task
    tasks = devices
    if target.site.launch.launcher == "srun-torchrun":
        tasks = 1
        cores = cores * devices // max(1, one.devices) if cores else None
    stacks = max(1, gpu.devices // gpu.scheduled)
    return replace(
        job,
        tasks_per_node=tasks,
        cpus_per_task=cores,
        gpus=-(-devices // stacks),
        devices=devices,
        ranks=devices if job.ranks else 0,
        bind=False,
        options=_scale_memory(job.options, share=share),
    )


def parse_kibibytes(size: str) -> int:
    """A size of memory as Slurm writes it, 0 for another text."""
    found = _MEMORY.fullmatch(size)
    return int(found[1]) * _KIB[found[2]] if found else 0


def _scale_memory(options: Mapping[str, str], *, share: float) -> dict[str, str]:
    """Scale the memory option; `mem-per-gpu` and `mem-per-cpu` need no change."""
    scaled = dict(options)
    if size := parse_kibibytes(scaled.get("mem", "")):
        mebibytes = int(size * share) // 1024
        scaled["mem"] = f"{mebibytes // 1024}G" if mebibytes % 1024 == 0 else f"{mebibytes}M"
    return scaled


def _find_job(target: Target, purpose: Purpose) -> Job:
    jobs = target.site.scheduler.jobs
    if purpose not in jobs:
        has = ", ".join(name for name in ("gpu", "node", "nodes") if name in jobs) or "none"
        message = f"the file of '{target.site.name}' has no job '{purpose}'"
        raise _make_error(message, f"it has: {has}; add the job to a site of your own")
    return jobs[purpose]


def _make_error(message: str, fix: str) -> ConfigError:
    return ConfigError(Finding(code="launch-shape", message=message, fix=fix))


_SHAPES = ("gpu", "node", "nodes")


def choose_launch(site: Site, *, launcher: str | None = None, gpu_visibility: str | None = None) -> Site:
    """Return the site with another launcher or visibility; None keeps the site's own.

    Raises UnsupportedError with the reason if the site does not allow it.
    """
    if gpu_visibility:
        site = _choose_visibility(site, gpu_visibility)
    if not launcher or LAUNCHER_NAMES[launcher] == site.launch.launcher:
        return site
    wanted = LAUNCHER_NAMES[launcher]
    _check_launcher(site, launcher)
    jobs = {name: _reshape(job, wanted) if name in _SHAPES else job for name, job in site.scheduler.jobs.items()}
    launch = replace(site.launch, launcher=wanted)
    return replace(site, launch=launch, scheduler=replace(site.scheduler, jobs=jobs))


def _choose_visibility(site: Site, word: str) -> Site:
    if site.gpu is None:
        raise _make_refusal("option-value", f"'{site.name}' has no GPUs", "leave it out", option="--gpu-visibility")
    visibility: GpuVisibility = "rank" if word == "rank" else "node"
    return replace(site, launch=replace(site.launch, gpu_visibility=visibility))


def _check_launcher(site: Site, launcher: str) -> None:
    launch = site.launch
    if launcher == "torchrun" and launch.torchrun_refused:
        message = f"torchrun must not be used on '{site.name}': {launch.torchrun_refused}"
        raise _make_refusal("launch-torchrun", message, f"leave it out: {launch.launcher} starts the ranks")
    if site.scheduler.kind == "none":
        message = f"'{site.name}' has no Slurm: its ranks are processes of this machine"
        fix = "leave it out; in an image with torch `--gpus N` has torchrun start N ranks"
        if launcher == "srun":
            fix += ", and `-- mpiexec -n N COMMAND` starts those of MPI"
        raise _make_refusal("option-value", message, fix)
    if launch.launcher not in LAUNCHER_NAMES.values():
        message = f"the ranks of '{site.name}' are started by {launch.launcher}, which its variables are for"
        raise _make_refusal("option-value", message, f"leave it out; no other launcher is known to work on {site.name}")


def _make_refusal(code: str, message: str, fix: str, *, option: str = "--launcher") -> UnsupportedError:
    return UnsupportedError(Finding(code=code, message=message, at=Location(key=option), fix=fix))


def _reshape(job: Job, launcher: Launcher) -> Job:
    """Change the tasks of a job: its cores and devices stay."""
    if launcher == "srun-torchrun":
        cores = job.cpus_per_task * job.tasks_per_node if job.cpus_per_task else None
        return replace(job, tasks_per_node=1, cpus_per_task=cores, ranks=job.tasks_per_node, bind=False)
    ranks = job.ranks or max(1, job.devices)
    cores = max(1, job.cpus_per_task // ranks) if job.cpus_per_task else None
    return replace(job, tasks_per_node=ranks, cpus_per_task=cores, ranks=0)
