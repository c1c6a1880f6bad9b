"""Whether workers that load data come up, after torch and the network were used in this process; imports torch.

A process that is forked from one with threads and a network adapter may hang, or break its parent: on Slingshot, on
some OpenMP runtimes. What is tried is torch's own loader, as a training uses it.
"""

from __future__ import annotations

import multiprocessing
import time
from typing import Any, Dict, Optional, Tuple

import torch
from torch.utils.data import DataLoader, TensorDataset

from .run import find_first_line

PATIENCE = 30.0  # seconds; a spawned worker imports torch, from a file system that may be slow
_ITEMS = 32


def list_methods(local_rank: int) -> Tuple[str, ...]:
    """Every rank forks; one of a host spawns, which is dear and is the same for all."""
    return ("fork", "spawn") if local_rank == 0 else ("fork",)


def try_method(method: str, patience: float) -> Dict[str, Any]:
    """Load a few batches by one worker; the error is None when they came, else says whether it hung or failed."""
    began = time.monotonic()
    error: Optional[str] = None
    try:
        error = _load_batches(method, patience)
    except Exception as fault:
        _end_children()  # before torch's loader goes, which would wait for them
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
    """Kill what is left: our signals are blocked in a child as they are here, so it would not heed SIGTERM."""
    for child in multiprocessing.active_children():
        try:
            child.kill()
            child.join(5.0)
        except RuntimeError:
            pass  # torch tells, by its handler of SIGCHLD, that its worker was killed
