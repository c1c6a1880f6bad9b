"""Test whether data loading workers start after torch and the network were used in this process; imports torch.

A process forked from one with threads and a network adapter may hang, or break its parent: on Slingshot, on some OpenMP
runtimes. The test uses torch's own loader, as a training does.
"""

from __future__ import annotations

import multiprocessing
import time
from typing import Any, Dict, Optional, Tuple

import torch
from torch.utils.data import DataLoader, TensorDataset

from .run import find_first_line

PATIENCE = 30.0  # seconds; a spawned worker imports torch, maybe from a slow file system
_ITEMS = 32


def list_methods(local_rank: int) -> Tuple[str, ...]:
    """List the start methods: every rank forks; one of a host spawns, which is slow and the same for all."""
    return ("fork", "spawn") if local_rank == 0 else ("fork",)


def try_method(method: str, patience: float) -> Dict[str, Any]:
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
