"""SVG as text: every value that goes into it is escaped here and nowhere else.

Scales and their ticks: linear, logarithmic, powers of two.

Plots over two axes: lines, points and floors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from builder.model.text import format_tick


def make_element(name: str, *content: str, **attributes: object) -> str:
    """Write an element whose content is markup already; `class_` and `stroke_width` become class and stroke-width."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(format_value(item), quote=True)}"'
        for key, item in attributes.items()
    )
    inner = "".join(content)
    return f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>"


def make_label(content: str, **attributes: object) -> str:
    """Write a text element; the text is escaped."""
    return make_element("text", escape(content), **attributes)


def make_tooltip(content: str) -> str:
    """Write the title that a browser shows over an element."""
    return make_element("title", escape(content))


def make_path(points: Iterable[tuple[float, float]]) -> str:
    """Write the data of a path through the points."""
    return "M" + "L".join(f"{format_value(x)},{format_value(y)}" for x, y in points)


def format_value(item: object) -> str:
    """Write an attribute; coordinates need no more than a tenth of a unit."""
    return f"{item:.1f}".removesuffix(".0") if isinstance(item, float) else str(item)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A scale from values to units of the drawing, with the ticks it shows."""

    title: str
    ticks: tuple[tuple[float, str], ...]
    low: float
    high: float
    log: bool = False

    def project(self, number: float, *, start: float, end: float) -> float:
        """Return the position of a value between two ends of the drawing; the nearer end for one outside."""
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


def make_linear_axis(
    values: list[float], *, title: str, zero: bool = True, most: int = 5, top: float | None = None
) -> Axis:
    """Make a linear axis over the values with round ticks; `zero` makes it begin at 0, `top` end there at most."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    low = min(low, 0.0) if zero else low
    if high <= low:
        high = low + (abs(low) or 1.0)
    step = _round_step((high - low) / most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    end = last * step if top is None else min(last * step, top)
    ticks = tuple(
        (index * step, format_tick(index * step)) for index in range(first, last + 1) if index * step <= end + 1e-9
    )
    return Axis(title=title, ticks=ticks, low=first * step, high=end)


def make_log_axis(values: list[float], *, title: str) -> Axis:
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
    return Axis(title=title, ticks=tuple((value, format_tick(value)) for value in kept), low=bottom, high=top, log=True)


def make_doubling_axis(values: list[float], *, title: str, written: Callable[[int], str] = str) -> Axis:
    """Make an axis of powers of two, as message sizes and numbers of ranks grow."""
    known = [value for value in values if value > 0] or [1.0]
    first, last = math.floor(math.log2(min(known)) + 1e-9), math.ceil(math.log2(max(known)) - 1e-9)
    last = max(last, first + 1)
    every = math.ceil((last - first + 1) / 5)
    ticks = tuple((2.0**power, written(2**power if power >= 0 else 1)) for power in range(first, last + 1, every))
    return Axis(title=title, ticks=ticks, low=2.0**first, high=2.0**last, log=True)


def _round_step(rough: float) -> float:
    magnitude: float = 10.0 ** math.floor(math.log10(rough))
    return next(mark * magnitude for mark in (1.0, 2.0, 2.5, 5.0, 10.0) if mark * magnitude >= rough * (1 - 1e-9))


WIDTH, HEIGHT = 400, 264  # units of the drawing; a page shows them at about their size in pixels
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 28, 42
COLORS = 8  # classes c0 to c7 of the style sheet


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line: its points, the tooltip of each of them, and how it is drawn."""

    label: str
    points: tuple[tuple[float, float], ...]
    tips: tuple[str, ...] = ()  # one for each point; with them the points are drawn as well
    color: int = 0
    faint: bool = False  # behind another line that is its mean
    dashed: bool = False  # expected, not measured


def draw_lines(series: Sequence[Series], *, x: Axis, y: Axis, name: str, description: str) -> str:
    """Draw series over two axes; `name` and `description` are for screen readers."""
    parts = [make_tooltip(name), make_element("desc", escape(description)), *_grid(x, y)]
    for one in series:
        parts += _series(one, x=x, y=y)
    return make_element("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"{name}. {description}")


def _grid(x: Axis, y: Axis) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [make_label(y.title, x=2, y=12, class_="axis")]
    for at, written in y.ticks:
        height = _y(y, at)
        parts.append(make_element("line", x1=LEFT, x2=right, y1=height, y2=height, class_="grid"))
        parts.append(make_label(written, x=LEFT - 6, y=height + 4.0, class_="tick end"))
    for at, written in x.ticks:
        place = _x(x, at)
        parts.append(make_element("line", x1=place, x2=place, y1=bottom, y2=bottom + 4, class_="mark"))
        last = place > right - 20
        parts.append(
            make_label(written, x=right if last else place, y=bottom + 17, class_="tick end" if last else "tick mid")
        )
    parts.append(make_element("line", x1=LEFT, x2=right, y1=bottom, y2=bottom, class_="mark"))
    parts.append(make_label(x.title, x=(LEFT + right) / 2, y=HEIGHT - 6, class_="axis mid"))
    return parts


def _series(one: Series, *, x: Axis, y: Axis) -> list[str]:
    placed = [(_x(x, first), _y(y, second)) for first, second in one.points]
    color = f"c{one.color % COLORS}"
    kind = "faint" if one.faint else "dashed" if one.dashed else "line"
    parts = [make_element("path", d=make_path(placed), class_=f"{kind} {color}")] if len(placed) > 1 else []
    parts += [
        make_element("circle", make_tooltip(tip), cx=across, cy=up, r=3.5, class_=f"dot {color}")
        for (across, up), tip in zip(placed, one.tips, strict=False)
    ]
    return parts


def _x(axis: Axis, number: float) -> float:
    return axis.project(number, start=float(LEFT), end=float(WIDTH - RIGHT))


def _y(axis: Axis, number: float) -> float:
    return axis.project(number, start=float(HEIGHT - BOTTOM), end=float(TOP))
