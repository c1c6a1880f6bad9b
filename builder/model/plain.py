"""What a value of foreign JSON can be taken for; a value of another kind is None or empty, never an exception."""

from __future__ import annotations

import math
from typing import Any

from builder.model.safe import shown

LARGEST = 1e15  # no time, size or rate here is beyond it
TEXT_LIMIT = 400  # characters


def number(value: object) -> float | None:
    """Return the value as a number that something could be measured with, else None; next to nothing is 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    if not math.isfinite(found) or abs(found) > LARGEST:
        return None
    return found if abs(found) > 1 / LARGEST else 0.0


def whole(value: object) -> int | None:
    """Return the value as a whole number that something could be counted with, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**15 else None


def text(value: object, *, limit: int = TEXT_LIMIT) -> str:
    """Return a scalar as one printable line, "" for what is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and abs(value) > 10**30:
        return "a huge number"  # str() of one refuses past 4300 digits
    return shown(str(value), limit=limit) if isinstance(value, (str, int, float)) else ""


def table(value: object) -> dict[str, Any]:
    """Return an object, {} for what is none."""
    return value if isinstance(value, dict) else {}


def listing(value: object, *, limit: int = 10_000) -> list[Any]:
    """Return a list cut to `limit` items, [] for what is none."""
    return value[:limit] if isinstance(value, list) else []


def numbers(value: object, *, limit: int = 10_000) -> tuple[float, ...]:
    """Return the finite numbers of a list."""
    return tuple(found for item in listing(value, limit=limit) if (found := number(item)) is not None)
