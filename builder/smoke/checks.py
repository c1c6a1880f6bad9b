"""What a judgement is, and how to read a result that may be altered: every look-up may miss, none raises."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Union

BACKENDS = {"cuda": ("nccl",), "xpu": ("xccl", "ccl"), "cpu": ("gloo",)}

Plain = Union[str, int, float]


@dataclass(frozen=True)
class Check:
    """One judgement: what was measured against what was expected."""

    name: str
    ok: bool
    measured: Plain
    expected: Plain


class ResultView:
    """A result read with care."""

    def __init__(self, result: Dict[str, Any], expected: Optional[Mapping[str, Any]]) -> None:
        self.result = result
        own = result.get("expected")
        self.expected: Mapping[str, Any] = expected if expected is not None else own if isinstance(own, dict) else {}

    def find(self, *keys: str) -> Any:
        """The value under these keys, None where there is none."""
        return look_up(self.result, *keys)

    def list_ranks(self) -> List[Dict[str, Any]]:
        """The rows of the ranks."""
        return self.list_rows("ranks")

    def list_rows(self, name: str) -> List[Dict[str, Any]]:
        """The objects in the list of this name."""
        return select_rows(self.result.get(name))

    def count_expected_ranks(self) -> Optional[int]:
        """How many ranks there should be."""
        return to_integer(self.expected.get("ranks"))


def select_rows(found: object) -> List[Dict[str, Any]]:
    """The objects in a list, none where it is no list."""
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def look_up(entry: object, *keys: str) -> Any:
    """The value under these keys, None where there is none."""
    value: Any = entry
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def to_number(value: object) -> Optional[float]:
    """The value as a finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def to_integer(value: object) -> Optional[int]:
    """The value as a whole number that anything here could count, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**15 else None


def to_figure(value: object) -> Plain:
    """A number in four decimals, anything else as it can be shown."""
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
    """The first few of many, and how many more there are."""
    return joint.join(parts[:most]) + (f" and {len(parts) - most} more" if len(parts) > most else "")


def find_vendor(torch: object, kind: object) -> str:
    """Name the vendor that a run was on, from torch's build versions and the device type it used."""
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
