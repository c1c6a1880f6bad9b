"""Check the measurements: the integral, bandwidths against floors, the times of the start."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional

from .amounts import format_size
from .checks import Check, ResultView, join_limited, show, to_figure, to_integer, to_number

ROUNDING = 1e-11  # of a sum of 64-bit numbers: far above measured errors, far below a missing trapezoid
SKEW = 1.0  # seconds by which the clocks of two nodes may differ
PHASES = ("exec_to_python", "import_torch", "first_device", "first_step")


def compute_tolerance(steps: int) -> float:
    """Compute the error bound of the trapezoids for 4/(1+x^2) over 0..1: max|f''|/(12 n^2), max|f''| = 8."""
    return 8 / (12 * steps * steps) + ROUNDING


def check_integral(facts: ResultView) -> List[Check]:
    """Check that the sum of all ranks' trapezoids is pi, and that they were shared evenly."""
    value, steps = to_number(facts.find("pi")), to_integer(facts.find("steps"))
    known = value is not None and steps is not None and steps > 0
    limit = compute_tolerance(steps) if steps is not None and steps > 0 else 0.0
    off = abs(value - math.pi) if value is not None else math.inf
    checks = [Check("pi", known and off <= limit, show(value), f"{math.pi!r} within {limit:.3g}")]
    shares = [to_integer(entry.get("trapezoids")) or 0 for entry in facts.list_ranks()]
    even = bool(shares) and max(shares) - min(shares) <= 1
    measured = f"{sum(shares)} on {len(shares)} ranks"
    checks.append(Check("shares", even and sum(shares) == steps, measured, f"{show(steps)} evenly"))
    values = {show(entry.get("pi")) for entry in facts.list_ranks()}
    agree = len(values) == 1 and values == {show(facts.find("pi"))}
    checks.append(Check("ranks agree", agree, f"{len(values)} values of pi", "1 value of pi"))
    return checks


def check_times(facts: ResultView) -> List[Check]:
    """Check that every rank reported the time of its own part."""
    broken = [show(entry.get("rank")) for entry in facts.list_ranks() if not _is_positive(_find_part_seconds(entry))]
    ok = bool(facts.list_ranks()) and not broken
    measured = f"not on rank {join_limited(broken, 8, ', ')}" if broken else f"on {len(facts.list_ranks())} ranks"
    return [Check("times", ok, measured, "on every rank")]


def _find_part_seconds(entry: Dict[str, Any]) -> Any:
    seconds = entry.get("seconds")
    return seconds.get("part") if isinstance(seconds, dict) else None


def check_bandwidth(facts: ResultView) -> List[Check]:
    """Check that every sum was right, that each bandwidth follows from its time, and the floors."""
    found = facts.list_rows("sweep")
    world = to_integer(facts.find("world"))
    wrong = [_format_row_size(row) for row in found if row.get("correct") is not True]
    untrue = [_format_row_size(row) for row in found if not _is_consistent(row, world)]
    good = bool(found)
    return [
        Check("sums", good and not wrong, _describe_faults(wrong, "wrong", len(found)), "right at every size"),
        Check(
            "figures",
            good and not untrue,
            _describe_faults(untrue, "inconsistent", len(found)),
            "follow from size and time",
        ),
        *_floors(facts, found),
    ]


def _format_row_size(row: Dict[str, Any]) -> str:
    return format_size(to_integer(row.get("bytes")) or 0)


def _describe_faults(faults: List[str], word: str, count: int) -> str:
    return f"{word} at {join_limited(faults, 8, ', ')}" if faults else f"{count} sizes"


def _is_consistent(row: Dict[str, Any], world: Optional[int]) -> bool:
    """Whether algbw is size over time and busbw 2(n-1)/n of it, in 10^9 bytes/s, as nccl-tests defines them."""
    size, seconds = to_integer(row.get("bytes")), to_number(row.get("seconds"))
    algorithm, bus = to_number(row.get("algbw")), to_number(row.get("busbw"))
    if size is None or seconds is None or algorithm is None or bus is None or not world or world < 1:
        return False
    if size <= 0 or seconds <= 0:
        return False
    true = size / seconds / 1e9
    close = math.isclose(algorithm, true, rel_tol=0.01, abs_tol=1e-6)
    return close and math.isclose(bus, true * 2 * (world - 1) / world, rel_tol=0.01, abs_tol=1e-6)


def _floors(facts: ResultView, found: List[Dict[str, Any]]) -> List[Check]:
    floors = facts.expected.get("floors")
    by_size = {to_integer(row.get("bytes")): row for row in found}
    checks = []
    for text, least in floors.items() if isinstance(floors, dict) else ():
        size = int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 16 else None
        floor, bus = to_number(least), to_number(by_size.get(size, {}).get("busbw"))
        measured = "not measured" if bus is None else f"{bus:.4g} GB/s"
        ok = size is not None and floor is not None and bus is not None and bus >= floor
        checks.append(Check(f"busbw at {format_size(size or 0)}", ok, measured, f">= {show(least)} GB/s"))
    if checks:
        return checks
    best = max((to_number(row.get("busbw")) or 0.0 for row in found), default=0.0)
    return [Check("busbw", bool(found), f"{best:.4g} GB/s at best", "unknown: no floor is given")]


def check_start(facts: ResultView) -> List[Check]:
    """Check that every phase of the start was timed on every rank."""
    entries = facts.list_ranks() or [facts.result]
    faults = []
    for entry in entries:
        seconds = entry.get("seconds")
        told = {name: to_number(seconds.get(name)) for name in PHASES} if isinstance(seconds, dict) else {}
        for name in PHASES:
            value = told.get(name)
            if value is None or value < (-SKEW if name == "exec_to_python" else 0):
                faults.append(f"rank {show(entry.get('rank', 0))}: {name} {show(value)}")
    shown = to_figure(facts.find("seconds", "exec_to_first_step"))
    ok = not faults and to_number(facts.find("seconds", "exec_to_first_step")) is not None
    return [Check("phases", ok, join_limited(faults) or f"{shown} s to the first step", "timed on every rank")]


def _is_positive(value: object) -> bool:
    found = to_number(value)
    return found is not None and found >= 0
