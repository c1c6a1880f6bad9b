"""Pi as the integral of 4/(1+x^2) over 0..1, in trapezoids over the CPUs of all ranks, by gloo; imports torch.

The application of the MareNostrum 5 hands-on, corrected: the trapezoids at the ends count half, none is dropped if they
do not divide by the ranks, timing needs no GPU, and the time is that of the slowest rank instead of a sum.
"""

from __future__ import annotations

import math
import time
from typing import Any, Dict, List, Tuple

import torch
import torch.distributed as dist

from . import rendezvous
from .ranks import RankRun

STEPS = 20_000_000
_TRIALS = 3
_CHUNK = 1 << 18  # trapezoids at once: two megabytes, which fit into a cache


def run_rank(run: RankRun, device: Any) -> None:
    """Integrate over 1, 2, 4, ... and all ranks; raises RunError."""
    del device  # the CPU, on every machine
    world, steps = run.placement.world, run.options.steps or STEPS
    rendezvous.join(run)
    rendezvous.connect(run, "cpu")
    run.note(state="integrating", world=world, steps=steps)
    rows = []
    for count in list_counts(world):
        value, seconds, own = _time_ranks(run, count, steps)
        rows.append({"ranks": count, "seconds": seconds})
        run.print_progress(f"{count} ranks: pi {value!r} in {seconds:.4f} s")
    first, last = assign_share(steps, run.placement.rank, world)
    run.record["seconds"].update(part=round(own, 6), all_ranks=rows[-1]["seconds"], one_rank=rows[0]["seconds"])
    run.note(pi=value, deviation=abs(value - math.pi), trapezoids=last - first, scaling=_scaling(rows))


def list_counts(world: int) -> List[int]:
    """List 1, 2, 4, ... and the number of ranks."""
    found = [1]
    while found[-1] * 2 < world:
        found.append(found[-1] * 2)
    return [*found, world] if world > 1 else found


def assign_share(steps: int, rank: int, count: int) -> Tuple[int, int]:
    """Assign the trapezoids from .. to (exclusive) of one rank; the first ranks have one more."""
    base, extra = divmod(steps, count)
    first = rank * base + min(rank, extra)
    return first, first + base + (rank < extra)


def sum_trapezoids(first: int, last: int, steps: int) -> float:
    """Sum the area of the trapezoids from .. to (exclusive)."""
    if first >= last:
        return 0.0
    width = 1.0 / steps
    ends = [4.0 / (1.0 + (end * width) ** 2) for end in (first, last)]
    total = sum(ends) / 2
    for start in range(first + 1, last, _CHUNK):
        x = torch.arange(start, min(start + _CHUNK, last), dtype=torch.float64).mul_(width)
        total += float(x.mul_(x).add_(1.0).reciprocal_().sum()) * 4.0
    return total * width


def _time_ranks(run: RankRun, count: int, steps: int) -> Tuple[float, float, float]:
    """Compute pi over the first ``count`` ranks; return the slowest rank's mean time and that of this rank's part."""
    first, last = assign_share(steps, run.placement.rank, count) if run.placement.rank < count else (0, 0)
    taken, own = [], []
    total = torch.zeros(1, dtype=torch.float64)
    for trial in range(1 + _TRIALS):  # the first one is a warm-up
        rendezvous.wait_for_all("cpu")
        began = time.perf_counter()
        total[0] = sum_trapezoids(first, last, steps)
        mine = time.perf_counter() - began
        dist.all_reduce(total)
        slowest = rendezvous.reduce_max([time.perf_counter() - began], "cpu")[0]
        if trial:
            taken.append(slowest)
            own.append(mine)
    return float(total), round(sum(taken) / _TRIALS, 6), sum(own) / _TRIALS


def _scaling(rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Compute the speedup over one rank and the efficiency."""
    one = rows[0]["seconds"]
    found = []
    for row in rows:
        speedup = one / row["seconds"] if row["seconds"] else 0.0
        found.append({**row, "speedup": round(speedup, 3), "efficiency": round(speedup / row["ranks"], 3)})
    return found
