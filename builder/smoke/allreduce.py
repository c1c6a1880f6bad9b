"""The bandwidth of all-reduce over its size, as nccl-tests defines it; imports torch.

algbw = size / time, busbw = algbw * 2 (n - 1) / n, in GB/s of 10^9 bytes (nccl-tests, doc/PERFORMANCE.md); the time is
the mean of one operation among many in a row, over all ranks. The sums are checked in every element.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional

import torch
import torch.distributed as dist

from . import hardware, rendezvous
from .options import format_size
from .ranks import RankRun

_LARGEST = {"cpu": 16 << 20}  # gloo finishes this in seconds
_LARGEST_ELSEWHERE = 4 << 30
_WARM_UPS = 2
_SECONDS_A_SIZE = 3.0
_KEPT_FREE = 0.2  # of the time, reserved for the report
_PERIOD = 1024  # elements of 32 bits
_BLOCK = 4 * _PERIOD
_ROWS = 16384  # of 4096 bytes, checked at once
_FACTORS, _STEPS, _LEVELS = 61, 8, 7  # small enough that sums over thousands of ranks are exact in 32 bits


def run_rank(run: RankRun, device: Any) -> None:
    """Measure size after size while memory and time suffice; raises RunError."""
    options, world = run.options, run.placement.world
    rendezvous.join(run)
    rendezvous.connect(run, device.type)
    run.note(state="measuring", world=world, sweep=[])
    limit = _measure_room(device)
    ended: Optional[str] = None
    largest = options.largest or _LARGEST.get(device.type, _LARGEST_ELSEWHERE)
    for size in list_sizes(options.smallest, largest, options.floor):
        # all ranks decide alike: by the least free memory and the longest time of any rank
        room, late = rendezvous.reduce_max(
            [-limit / _BLOCK, float(run.count_seconds_left() < run.options.timeout * _KEPT_FREE)], device
        )
        if size > -room * _BLOCK or late:
            ended = f"no {'time' if late else 'memory'} for {format_size(size)}"
            break
        run.note(state=f"measuring {format_size(size)}")
        row = _measure(run, device, size)
        run.record["sweep"].append(row)
        run.print_progress(
            "{}: {busbw:.3f} GB/s bus, {algbw:.3f} GB/s algorithm, {seconds:.6f} s".format(format_size(size), **row)
        )
    run.note(sweep_ended=ended)


def list_sizes(smallest: int, largest: int, floors: Any) -> List[int]:
    """List the sizes by doubling, and those that have a floor, all as multiples of 4096 bytes."""
    found = {size for size, _ in floors}
    size = max(_BLOCK, smallest)
    while size <= largest:
        found.add(size)
        size *= 2
    return sorted({size // _BLOCK * _BLOCK for size in found}) or [_BLOCK]


def _measure_room(device: Any) -> float:
    """Measure the bytes that one operand may have: half of the free memory, as the backend may need as much again."""
    free = hardware.measure_free_memory(torch, device)
    return max(4096.0, free / 2)


def _measure(run: RankRun, device: Any, size: int) -> Dict[str, Any]:
    rank, world = run.placement.rank, run.placement.world
    tensor = torch.empty(size // 4, dtype=torch.float32, device=device)
    _fill(tensor, rank)
    dist.all_reduce(tensor)
    right = _is_right(tensor, world)
    tensor.zero_()  # sums of zeros stay finite
    seconds = _time(tensor, device, _WARM_UPS)
    most = rendezvous.reduce_max([seconds], device)[0]
    iterations = max(2, min(run.options.iterations, int(_SECONDS_A_SIZE / max(most, 1e-6))))
    seconds = _time(tensor, device, iterations)
    total = torch.tensor([seconds, float(not right)], dtype=torch.float32, device=device)
    dist.all_reduce(total)
    mean, wrong = (float(value) for value in total.cpu().tolist())
    mean /= world
    algorithm = size / mean / 1e9
    return {
        "bytes": size,
        "seconds": mean,
        "algbw": algorithm,
        "busbw": algorithm * 2 * (world - 1) / world,
        "correct": wrong == 0,
        "iterations": iterations,
    }


def _time(tensor: Any, device: Any, iterations: int) -> float:
    rendezvous.wait_for_all(device)
    hardware.synchronize(torch, device)
    began = time.perf_counter()
    for _ in range(iterations):
        dist.all_reduce(tensor)
    hardware.synchronize(torch, device)
    return (time.perf_counter() - began) / iterations


def _pattern(device: Any) -> Any:
    return torch.arange(_PERIOD, device=device).remainder(_STEPS).add(1).float()


def _levels(rows: int, first: int, device: Any) -> Any:
    return torch.arange(first, first + rows, device=device).remainder(_LEVELS).float().unsqueeze(1)


def compute_factor(rank: int) -> int:
    """Compute the factor of a rank's pattern."""
    return rank % _FACTORS + 1


def _fill(tensor: Any, rank: int) -> None:
    """Fill the tensor with a pattern that differs between ranks and along the tensor."""
    table = tensor.view(-1, _PERIOD)
    table.copy_(_pattern(tensor.device).mul(compute_factor(rank)).expand_as(table))
    table.add_(_levels(len(table), 0, tensor.device))


def _is_right(tensor: Any, world: int) -> bool:
    """Whether every element is the sum of all ranks' patterns."""
    table = tensor.view(-1, _PERIOD)
    wanted = _pattern(tensor.device).mul(sum(compute_factor(rank) for rank in range(world)))
    for first in range(0, len(table), _ROWS):
        rows = table[first : first + _ROWS]
        if not bool((rows == wanted + _levels(len(rows), first, tensor.device) * world).all()):
            return False
    return True
