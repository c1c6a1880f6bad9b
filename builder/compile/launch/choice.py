"""The user's choice of how ranks are started and which devices they see, in place of the site's.

The choice changes the site: its jobs request one task for each rank (srun) or one task a node that starts the ranks
(torchrun).
"""

from __future__ import annotations

from dataclasses import replace

from builder.model.finding import Finding, Location, UnsupportedError
from builder.model.site import LAUNCHER_NAMES, GpuVisibility, Job, Launcher, Site

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
        raise _make_refusal("option-value", message, "leave it out; `--gpus N` starts N ranks with torchrun")
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
