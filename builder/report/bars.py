"""Stacked horizontal bars: what a whole is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from builder.report.svg import COLORS, WIDTH, Axis, escape_text, make_element, make_label, make_tooltip
from builder.report.units import format_duration

ROW, TOP, BOTTOM, LEFT, RIGHT = 42, 4, 42, 2, 14


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar: its label and its parts in order."""

    label: str
    parts: tuple[tuple[str, float], ...]
    floor: float | None = None  # a mark that it must reach

    @property
    def total(self) -> float:
        """The sum of its parts."""
        return sum(seconds for _, seconds in self.parts)


def draw_bars(
    bars: Sequence[Bar],
    *,
    x: Axis,
    colors: Mapping[str, int],
    name: str,
    description: str,
    written: Callable[[float], str] = format_duration,
) -> str:
    """Draw a bar a row, its label above it; a part of one name has one colour in all of them."""
    height = TOP + ROW * len(bars) + BOTTOM
    bottom = height - BOTTOM
    parts = [make_tooltip(name), make_element("desc", escape_text(description))]
    for at, tick in x.ticks:
        place = _x(x, at)
        kind = "tick end" if place > WIDTH - RIGHT - 20 else "tick mid" if place > LEFT + 6 else "tick"
        parts.append(make_element("line", x1=place, x2=place, y1=TOP, y2=bottom + 4, class_="grid"))
        parts.append(make_label(tick, x=place, y=bottom + 17, class_=kind))
    for number, bar in enumerate(bars):
        parts += _bar(bar, top=float(TOP + ROW * number), x=x, colors=colors, written=written)
    parts.append(make_label(x.title, x=(LEFT + WIDTH - RIGHT) / 2, y=height - 6, class_="axis mid"))
    return make_element("svg", *parts, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=f"{name}. {description}")


def _bar(bar: Bar, *, top: float, x: Axis, colors: Mapping[str, int], written: Callable[[float], str]) -> list[str]:
    shown = bar.label if len(bar.label) <= 40 else bar.label[:37] + "..."
    parts = [
        make_label(shown, x=LEFT, y=top + 14, class_="row"),
        make_label(written(bar.total), x=WIDTH - RIGHT, y=top + 14, class_="row end"),
    ]
    sum_before = 0.0
    for name, seconds in bar.parts:
        start, end = _x(x, sum_before), _x(x, sum_before + seconds)
        sum_before += seconds
        tip = make_tooltip(f"{bar.label}, {name}: {written(seconds)}")
        width = max(
            end - start - 1.0, 0.5
        )  # a gap separates neighbours for readers who cannot tell their colours apart
        parts.append(
            make_element("rect", tip, x=start, y=top + 20, width=width, height=16, class_=f"c{colors[name] % COLORS}")
        )
    if bar.floor is not None:
        place = _x(x, bar.floor)
        tip = make_tooltip(f"floor {written(bar.floor)}")
        parts.append(make_element("line", tip, x1=place, x2=place, y1=top + 16, y2=top + 40, class_="floor"))
    return parts


def _x(axis: Axis, number: float) -> float:
    return axis.project(number, start=float(LEFT), end=float(WIDTH - RIGHT))
