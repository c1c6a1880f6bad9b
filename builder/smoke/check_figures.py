"""Check the numbers: trainings, the integral, bandwidths against floors, the times of the start."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional

from .checks import Check, ResultView, join_limited, show, to_figure, to_integer, to_number
from .options import format_size

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


# A net that learns nothing scores 0.1. Two epochs of 8,000 images reach 0.97 on MNIST and 0.98 on drawn digits.
ACCURACY_FLOORS = {"mnist": 0.95, "drawn": 0.90}
LOSS_FRACTION = 0.5  # the last tenth of the steps against the first tenth
_ORDERED = 4  # samples of a share whose order is unlikely to repeat by chance


def check_accuracy(facts: ResultView) -> List[Check]:
    """Check the share of test images that were recognized."""
    source = facts.find("data", "source")
    floor = ACCURACY_FLOORS.get(source) if isinstance(source, str) else None
    value = to_number(facts.find("accuracy"))
    ok = floor is not None and value is not None and floor <= value <= 1.0
    limit = f">= {floor}" if floor is not None else f"a floor for {show(source)} digits"
    return [Check("accuracy", ok, to_figure(facts.find("accuracy")), limit)]


def check_loss(facts: ResultView) -> List[Check]:
    """Check that the loss fell and was finite at every step."""
    first, last = to_number(facts.find("training", "first_loss")), to_number(facts.find("training", "last_loss"))
    ok = first is not None and last is not None and 0 <= last <= LOSS_FRACTION * first
    measured = f"{to_figure(facts.find('training', 'first_loss'))} to {to_figure(facts.find('training', 'last_loss'))}"
    broken = to_integer(facts.find("training", "non_finite"))
    return [
        Check("loss falls", ok, measured, f"to <= {LOSS_FRACTION} of the first"),
        Check("losses finite", broken == 0, show(facts.find("training", "non_finite")), "0 not finite"),
    ]


def check_checksums(facts: ResultView) -> List[Check]:
    """Check that all ranks ended with the same parameters, different from those that any started with."""
    world, entries = facts.count_expected_ranks(), facts.list_ranks()
    owners: Dict[str, List[str]] = {}
    for entry in entries:
        text = entry.get("checksum")
        owners.setdefault(text if isinstance(text, str) else "", []).append(show(entry.get("rank")))
    known = set(owners) - {""}
    one = len(known) == 1 and "" not in owners and len(entries) == world
    start = {entry.get("initial_checksum") for entry in entries if isinstance(entry.get("initial_checksum"), str)}
    moved = one and not (known & start)
    idle = to_integer(facts.find("training", "epochs_run")) == 0  # resumed at its end, without any training left
    still = one and not moved and not idle
    measured = f"{len(known)} among {len(entries)} ranks" + (", as before the training" if still else "")
    if len(known) > 1:
        most = max(sorted(known), key=lambda text: len(owners[text]))
        others = [rank for text in sorted(known - {most}) for rank in owners[text]]
        measured += f": rank {join_limited(others, 8, ', ')} differs from rank {owners[most][0]}"
    return [Check("parameters agree", one and (moved or idle), measured, f"1 among {show(world)} ranks")]


def check_shares(facts: ResultView) -> List[Check]:
    """Check that every rank trained on its share of the images, less those before a resume."""
    world, train = facts.count_expected_ranks(), to_integer(facts.find("data", "train"))
    epochs = to_integer(facts.find("training", "epochs_run"))
    seen = [to_integer(entry.get("samples")) for entry in facts.list_ranks()]
    if not world or world < 1 or train is None or epochs is None:
        return [Check("samples", False, show(facts.find("data", "train")), "an equal share for each rank")]
    before = (to_integer(facts.find("training", "resumed_step")) or 0) * (
        to_integer(facts.find("training", "batch")) or 0
    )
    share = train // world * epochs - before
    lowest = min((count for count in seen if count is not None), default=None)
    ok = len(seen) == world and all(count == share for count in seen)
    return [Check("samples", ok, f"{show(lowest)} at least on {len(seen)} ranks", f"{show(share)} on each of {world}")]


def check_orders(facts: ResultView) -> List[Check]:
    """Check that the sampler gave every rank another order in every epoch."""
    world, train = facts.count_expected_ranks(), to_integer(facts.find("data", "train")) or 0
    epochs = to_integer(facts.find("training", "epochs_run"))
    seen: Dict[str, str] = {}
    faults = []
    for entry in facts.list_ranks():
        found = entry.get("orders")
        digests = found if isinstance(found, list) else []
        if len(digests) != epochs:
            faults.append(f"rank {show(entry.get('rank'))} reported {len(digests)} orders")
        for epoch, digest in enumerate(digests):
            here = f"rank {show(entry.get('rank'))} epoch {epoch + 1}"
            before = seen.setdefault(show(digest), here)
            if before != here and world and train // world >= _ORDERED:
                faults.append(f"{here} as {before}")
    ok = bool(facts.list_ranks()) and not faults
    measured = join_limited(faults) if faults else f"{len(seen)} orders over {show(epochs)} epochs"
    return [Check("reshuffled", ok, measured, "another order for every rank and epoch")]


def check_rank_losses(facts: ResultView) -> List[Check]:
    """Check that every rank's loss is finite."""
    broken = [show(entry.get("rank")) for entry in facts.list_ranks() if to_number(entry.get("last_loss")) is None]
    ok = bool(facts.list_ranks()) and not broken
    measured = f"not on rank {', '.join(broken[:8])}" if broken else f"on {len(facts.list_ranks())} ranks"
    return [Check("rank losses finite", ok, measured, "on every rank")]
