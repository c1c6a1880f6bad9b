"""Plots over two axes: lines, points and floors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from builder.compile.page.axes import Axis
from builder.compile.page.svg import element, escaped, label, path, tooltip

WIDTH, HEIGHT = 400, 264  # units of the drawing; a page shows them at about their size in pixels
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 28, 42
COLORS = 8  # classes c0 to c7 of the style sheet


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line: its points, what a pointer over each of them is told, and how it is drawn."""

    label: str
    points: tuple[tuple[float, float], ...]
    told: tuple[str, ...] = ()  # one a point; with it the points are drawn as well
    color: int = 0
    faint: bool = False  # behind another line that is its mean
    dashed: bool = False  # expected, not measured


def line_plot(series: Sequence[Series], *, x: Axis, y: Axis, name: str, description: str) -> str:
    """Draw series over two axes; `name` and `description` are read to those who cannot see it."""
    parts = [tooltip(name), element("desc", escaped(description)), *_grid(x, y)]
    for one in series:
        parts += _series(one, x=x, y=y)
    return element("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"{name}. {description}")


def _grid(x: Axis, y: Axis) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [label(y.title, x=2, y=12, class_="axis")]
    for at, written in y.ticks:
        height = _y(y, at)
        parts.append(element("line", x1=LEFT, x2=right, y1=height, y2=height, class_="grid"))
        parts.append(label(written, x=LEFT - 6, y=height + 4.0, class_="tick end"))
    for at, written in x.ticks:
        place = _x(x, at)
        parts.append(element("line", x1=place, x2=place, y1=bottom, y2=bottom + 4, class_="mark"))
        last = place > right - 20
        parts.append(
            label(written, x=right if last else place, y=bottom + 17, class_="tick end" if last else "tick mid")
        )
    parts.append(element("line", x1=LEFT, x2=right, y1=bottom, y2=bottom, class_="mark"))
    parts.append(label(x.title, x=(LEFT + right) / 2, y=HEIGHT - 6, class_="axis mid"))
    return parts


def _series(one: Series, *, x: Axis, y: Axis) -> list[str]:
    placed = [(_x(x, first), _y(y, second)) for first, second in one.points]
    color = f"c{one.color % COLORS}"
    kind = "faint" if one.faint else "dashed" if one.dashed else "line"
    parts = [element("path", d=path(placed), class_=f"{kind} {color}")] if len(placed) > 1 else []
    parts += [
        element("circle", tooltip(told), cx=across, cy=up, r=3.5, class_=f"dot {color}")
        for (across, up), told in zip(placed, one.told, strict=False)
    ]
    return parts


def _x(axis: Axis, number: float) -> float:
    return axis.place(number, start=float(LEFT), end=float(WIDTH - RIGHT))


def _y(axis: Axis, number: float) -> float:
    return axis.place(number, start=float(HEIGHT - BOTTOM), end=float(TOP))
