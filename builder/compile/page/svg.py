"""SVG as text: every value that goes into it is escaped here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def element(name: str, *content: str, **attributes: object) -> str:
    """Write an element whose content is markup already; `class_` and `stroke_width` become class and stroke-width."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value(item), quote=True)}"' for key, item in attributes.items()
    )
    inner = "".join(content)
    return f"<{name}{written}>{inner}</{name}>" if inner else f"<{name}{written}/>"


def label(content: str, **attributes: object) -> str:
    """Write a text element; the text is escaped."""
    return element("text", escape(content), **attributes)


def escaped(content: str) -> str:
    """Write text as the content of an element."""
    return escape(content)


def tooltip(content: str) -> str:
    """Write the title that a browser shows over an element."""
    return element("title", escape(content))


def path(points: Iterable[tuple[float, float]]) -> str:
    """Write the data of a path through the points."""
    return "M" + "L".join(f"{value(x)},{value(y)}" for x, y in points)


def value(item: object) -> str:
    """Write an attribute; coordinates need no more than a tenth of a unit."""
    return f"{item:.1f}".removesuffix(".0") if isinstance(item, float) else str(item)
