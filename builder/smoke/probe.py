"""Record what this rank has: devices, cores, libraries, network, caches, variables, workers; imports torch."""

from __future__ import annotations

import os
import platform
from typing import Any, Dict

import torch
import torch.distributed as dist

from . import dataloader, hardware, libraries, rendezvous
from .ranks import RankRun


def run_rank(run: RankRun, device: Any) -> None:
    """Record everything in the order in which a training would use it; raises RunError."""
    rendezvous.join(run)
    backend = rendezvous.connect(run, device.type)
    run.note(
        state="at its first collective",
        devices=hardware.describe_devices(torch, device.type),
        caches=libraries.find_caches(_vendor(device)),
    )
    total = torch.tensor([float(run.placement.rank + 1)], device=device)
    dist.all_reduce(total)
    world = run.placement.world
    run.note(sum_right=float(total.cpu()[0]) == world * (world + 1) / 2)
    run.note(network=libraries.describe_network(backend, run.log), libraries=_versions())
    tried: Dict[str, Any] = {}
    for method in dataloader.list_methods(run.placement.local_rank):
        run.note(state=f"starting workers by {method}")
        tried[method] = dataloader.try_method(method, min(dataloader.PATIENCE, run.count_seconds_left() * 0.3))
        run.note(workers=tried)
    after = sorted(os.sched_getaffinity(0))
    run.note(affinity_after=after)
    rendezvous.wait_for_all(device)
    run.print_progress(f"{len(run.record['affinity'])} cores, network {run.record['network']['used']}")


def _vendor(device: Any) -> str:
    if device.type == "xpu":
        return "intel"
    if device.type == "cuda":
        return "amd" if torch.version.hip else "nvidia"
    return "cpu"


def _versions() -> Dict[str, str]:
    """Return the versions of the libraries that image and host load into this process."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    found["libc"] = " ".join(platform.libc_ver())
    for name in ("cuda", "hip", "xpu"):
        version = getattr(torch.version, name, None)
        if version:
            found[name] = str(version)
    found.update(libraries.read_versions(torch))
    return found
