"""A check, and tolerant access to a result that may have been altered: a look-up may miss but never raises."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Union

BACKENDS = {"cuda": ("nccl",), "xpu": ("xccl", "ccl"), "cpu": ("gloo",)}

Plain = Union[str, int, float]


@dataclass(frozen=True)
class Check:
    """One check: the measured value against the expected one."""

    name: str
    ok: bool
    measured: Plain
    expected: Plain


class ResultView:
    """Tolerant access to a result."""

    def __init__(self, result: Dict[str, Any], expected: Optional[Mapping[str, Any]]) -> None:
        self.result = result
        own = result.get("expected")
        self.expected: Mapping[str, Any] = expected if expected is not None else own if isinstance(own, dict) else {}

    def find(self, *keys: str) -> Any:
        return look_up(self.result, *keys)

    def list_ranks(self) -> List[Dict[str, Any]]:
        return self.list_rows("ranks")

    def list_rows(self, name: str) -> List[Dict[str, Any]]:
        return select_rows(self.result.get(name))

    def count_expected_ranks(self) -> Optional[int]:
        return to_integer(self.expected.get("ranks"))


def select_rows(found: object) -> List[Dict[str, Any]]:
    """Select the objects of a list; none if the value is not a list."""
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def look_up(entry: object, *keys: str) -> Any:
    """Return the value under these keys, None if missing."""
    value: Any = entry
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def to_number(value: object) -> Optional[float]:
    """Return a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def to_integer(value: object) -> Optional[int]:
    """Return an integer of plausible size, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**15 else None


def to_figure(value: object) -> Plain:
    """Round a number to four decimals; show anything else."""
    found = to_number(value)
    return show(value) if found is None else round(found, 4)


def show(value: object) -> str:
    """Show any value in at most 160 printable characters."""
    if value is None:
        return "missing"
    if isinstance(value, (dict, list)):
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, int) and abs(value) > 10**30:
        return "a huge number"  # str() of one refuses past 4300 digits
    text = "".join(letter if letter.isprintable() else " " for letter in str(value))
    return text if len(text) <= 160 else text[:157] + "..."


def join_limited(parts: List[str], most: int = 4, joint: str = "; ") -> str:
    """Join the first few parts, with the number of the others."""
    return joint.join(parts[:most]) + (f" and {len(parts) - most} more" if len(parts) > most else "")


def find_vendor(torch: object, kind: object) -> str:
    """Return the vendor that a run used, from torch's build versions and the device type."""
    builds = torch if isinstance(torch, dict) else {}
    if kind == "cpu":
        return "cpu"
    if kind == "xpu":
        return "intel"
    if kind == "cuda" and builds.get("hip"):
        return "amd"
    if kind == "cuda" and builds.get("cuda"):
        return "nvidia"
    return "unknown"
