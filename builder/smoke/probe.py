"""Record what this rank has: devices, cores, libraries, network, caches, variables, workers; imports torch.

A process forked from one with threads and a network adapter may hang, or break its parent: on Slingshot, on some OpenMP
runtimes. Whether workers start is tried with torch's own loader, as a training does.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import time
from typing import Any, Dict, Optional, Tuple

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from . import hardware, rendezvous
from .ranks import RankRun
from .run import find_first_line

PATIENCE = 30.0  # seconds; a spawned worker imports torch, maybe from a slow file system
_ITEMS = 32


def run_rank(run: RankRun, device: Any) -> None:
    """Record everything in the order in which a training would use it; raises RunError."""
    rendezvous.join(run)
    backend = rendezvous.connect(run, device.type)
    run.note(
        state="at its first collective",
        devices=hardware.describe_devices(torch, device.type),
        caches=hardware.find_caches(_vendor(device)),
    )
    total = torch.tensor([float(run.placement.rank + 1)], device=device)
    dist.all_reduce(total)
    world = run.placement.world
    run.note(sum_right=float(total.cpu()[0]) == world * (world + 1) / 2)
    run.note(network=hardware.describe_network(backend, run.log), libraries=_versions())
    tried: Dict[str, Any] = {}
    for method in _list_methods(run.placement.local_rank):
        run.note(state=f"starting workers by {method}")
        tried[method] = _try_method(method, min(PATIENCE, run.count_seconds_left() * 0.3))
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
    found.update(hardware.read_versions(torch))
    return found


def _list_methods(local_rank: int) -> Tuple[str, ...]:
    """List the start methods: every rank forks; one of a host spawns, which is slow and the same for all."""
    return ("fork", "spawn") if local_rank == 0 else ("fork",)


def _try_method(method: str, patience: float) -> Dict[str, Any]:
    """Load a few batches with one worker; the error says whether it hung or failed, None if it succeeded."""
    began = time.monotonic()
    error: Optional[str] = None
    try:
        error = _load_batches(method, patience)
    except Exception as fault:
        _end_children()  # before torch's loader is destroyed, which would wait for them
        text = find_first_line(fault)
        error = f"hung for {patience:.0f} s" if "timed out" in text else f"failed: {text[:200]}"
    finally:
        _end_children()
    return {"error": error, "seconds": round(time.monotonic() - began, 3)}


def _load_batches(method: str, patience: float) -> Optional[str]:
    data = TensorDataset(torch.arange(_ITEMS, dtype=torch.float32).unsqueeze(1))
    loader = DataLoader(data, batch_size=8, num_workers=1, multiprocessing_context=method, timeout=max(1.0, patience))
    total = sum(float(batch.sum()) for (batch,) in loader)
    wanted = _ITEMS * (_ITEMS - 1) / 2
    return None if total == wanted else f"failed: the items add up to {total:g} instead of {wanted:g}"


def _end_children() -> None:
    """Kill the remaining children: they inherit our blocked signals, so SIGTERM has no effect."""
    for child in multiprocessing.active_children():
        try:
            child.kill()
            child.join(5.0)
        except RuntimeError:
            pass  # torch's SIGCHLD handler reports the killed worker
