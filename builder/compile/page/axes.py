"""Scales and their ticks: linear, logarithmic, powers of two."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from builder.compile.page.words import plain


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A scale from values to units of the drawing, with the ticks it shows."""

    title: str
    ticks: tuple[tuple[float, str], ...]
    low: float
    high: float
    log: bool = False

    def place(self, number: float, *, start: float, end: float) -> float:
        """Return where a value lies between two ends of the drawing; one outside lies at the nearer end."""
        low, high, at = (
            (math.log(value) for value in (self.low, self.high, max(number, 1e-300)))
            if self.log
            else (
                self.low,
                self.high,
                number,
            )
        )
        share = (at - low) / (high - low)
        return start + min(1.0, max(0.0, share)) * (end - start)


def linear(values: list[float], *, title: str, zero: bool = True, most: int = 5, top: float | None = None) -> Axis:
    """Make a linear axis over the values with round ticks; `zero` makes it begin at 0, `top` end there at most."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    low = min(low, 0.0) if zero else low
    if high <= low:
        high = low + (abs(low) or 1.0)
    step = _round_step((high - low) / most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    end = last * step if top is None else min(last * step, top)
    ticks = tuple((index * step, plain(index * step)) for index in range(first, last + 1) if index * step <= end + 1e-9)
    return Axis(title=title, ticks=ticks, low=first * step, high=end)


def decades(values: list[float], *, title: str) -> Axis:
    """Make a logarithmic axis over positive values: ticks at 1, 10, 100, with 2 and 5 between when there is room."""
    known = [value for value in values if value > 0] or [1.0]
    low, high = math.log10(min(known)), math.log10(max(known))
    wide = high - low > 2
    marks = (1,) if wide else (1, 2, 5)
    every = [(mark * 10.0**power) for power in range(math.floor(low) - 1, math.ceil(high) + 2) for mark in marks]
    bottom = max(value for value in every if value <= min(known) * (1 + 1e-9))
    top = min(value for value in every if value >= max(known) * (1 - 1e-9))
    if bottom == top:
        top = min(value for value in every if value > bottom)
    inside = [value for value in every if bottom <= value <= top]
    kept = inside[:: math.ceil(len(inside) / 7)]
    return Axis(title=title, ticks=tuple((value, plain(value)) for value in kept), low=bottom, high=top, log=True)


def doublings(values: list[float], *, title: str, written: Callable[[int], str] = str, most: int = 5) -> Axis:
    """Make an axis of powers of two, as message sizes and numbers of ranks grow."""
    known = [value for value in values if value > 0] or [1.0]
    first, last = math.floor(math.log2(min(known)) + 1e-9), math.ceil(math.log2(max(known)) - 1e-9)
    last = max(last, first + 1)
    every = math.ceil((last - first + 1) / most)
    ticks = tuple((2.0**power, written(2**power if power >= 0 else 1)) for power in range(first, last + 1, every))
    return Axis(title=title, ticks=ticks, low=2.0**first, high=2.0**last, log=True)


def _round_step(rough: float) -> float:
    magnitude: float = 10.0 ** math.floor(math.log10(rough))
    return next(mark * magnitude for mark in (1.0, 2.0, 2.5, 5.0, 10.0) if mark * magnitude >= rough * (1 - 1e-9))
