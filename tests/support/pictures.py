"""The pictures of the pages: a terminal with its text as text, and the floors of the code; light and dark by CSS."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

WIDE, HIGH, EDGE = 7.85, 18, 16  # of a character, of a line, around the text
STYLE = """\
.ground { fill: #ffffff; stroke: #d0d7de } text { fill: #1f2328; font: 13px ui-monospace, Menlo, Consolas, monospace }
.typed { font-weight: bold }
.good { fill: #1a7f37 } .doubt { fill: #9a6700 } .bad { fill: #cf222e } .dim { fill: #656d76 }
@media (prefers-color-scheme: dark) {
  .ground { fill: #0d1117; stroke: #30363d } text { fill: #e6edf3 }
  .good { fill: #3fb950 } .doubt { fill: #d29922 } .bad { fill: #f85149 } .dim { fill: #8d96a0 }
}"""
KINDS = (
    ("typed", re.compile(r"^\$ .*")),
    ("good", re.compile(r"\b(?:ok|passed)\b(?=\s|:)")),
    ("doubt", re.compile(r"\bwarnings\b")),
    ("bad", re.compile(r"\b(?:refused|error)\b")),
    ("dim", re.compile(r"^next: .*|^\[\d/\d\] [\w-]+:")),
)


def terminal(lines: Sequence[str], *, title: str) -> str:
    """Draw what was typed and printed."""
    rows = [f'<text x="{EDGE}" y="{EDGE + HIGH * (i + 1) - 5}">{_row(line)}</text>' for i, line in enumerate(lines)]
    return _svg(rows, width=max(map(len, lines)) * WIDE, height=HIGH * len(lines), title=title)


def floors(names: Sequence[tuple[str, str]], *, title: str) -> str:
    """Draw the floors of the code, the highest first: a name and what is done there."""
    rows = []
    for i, (name, duty) in enumerate(names):
        y = EDGE + i * (HIGH + 10)
        rows.append(f'<rect class="ground" x="{EDGE}" y="{y}" width="760" height="{HIGH + 6}" rx="4"/>')
        rows.append(f'<text x="{EDGE + 10}" y="{y + 16}"><tspan class="typed">{escape(name)}</tspan></text>')
        rows.append(f'<text class="dim" x="{EDGE + 110}" y="{y + 16}">{escape(duty)}</text>')
    return _svg(rows, width=760, height=len(names) * (HIGH + 10), title=title)


def _row(line: str) -> str:
    marked = escape(line, quote=False)
    for kind, pattern in KINDS:
        found = pattern.search(marked)
        if found:
            span = f'<tspan class="{kind}">{found[0]}</tspan>'
            return marked[: found.start()] + span + marked[found.end() :]
    return marked


def _svg(rows: Sequence[str], *, width: float, height: float, title: str) -> str:
    wide, high = round(width) + 2 * EDGE, round(height) + 2 * EDGE
    size = f'viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    ground = f'<rect class="ground" x="0.5" y="0.5" width="{wide - 1}" height="{high - 1}" rx="6"/>'
    kept = [row.replace("<text ", '<text xml:space="preserve" ', 1) for row in rows]
    return (
        "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", ground, *kept, "</svg>"]) + "\n"
    )
