"""Edits of several lines for `recipe check --fix`: keys of `container:`, items of pip, tabs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from builder.model.finding import Edit

ITEMS = "items"  # an edit's `below`: the items after the line go below it
CONTAINER = "container"  # an edit's `below`: the key with its value goes into that section
_CONDA = re.compile(r"(?<![=<>!~])=(?!=)|::")  # a spec that pip does not take


def without_tabs(text: str) -> str | None:
    """Replace each tab of the indentation by two spaces; None if spaces indent lines too."""
    indents = [line[: len(line) - len(line.lstrip())] for line in text.splitlines() if line.strip()]
    if any(" " in indent for indent in indents) or not any(indents):
        return None
    return re.sub(r"^\t+", lambda found: "  " * len(found[0]), text, flags=re.MULTILINE)


def indent_items(lines: list[str], head: int) -> bool:
    """Put the items after an empty `- pip:` below it, in place; False if one of them may be conda's."""
    indent = _indent(lines[head])
    end = next(
        (at for at in range(head + 1, len(lines)) if _said(lines[at]) and not _item(lines[at], indent)), len(lines)
    )
    items = [at for at in range(head + 1, end) if _item(lines[at], indent)]
    if not items or any(_CONDA.search(lines[at].split(" #")[0]) for at in items):
        return False
    if any(re.match(r"\s*-\s+[\w.-]+\s*:", lines[at]) for at in items):  # `- pip:` once more
        return False
    for at in range(head + 1, items[-1] + 1):
        if lines[at].strip():
            lines[at] = "  " + lines[at]
    return True


def into_container(lines: list[str], edits: Sequence[Edit], gone: set[int]) -> tuple[int, str]:
    """Move keys with their values to the end of `container:`, in place; returns their number and what follows."""
    heads = [at for at, line in enumerate(lines) if re.match(r"container\s*:", line)]
    if len(heads) > 1 or (heads and not re.match(r"container\s*:\s*(?:#.*)?$", lines[heads[0]].rstrip())):
        return 0, ""
    inside = _block(lines, heads[0]) if heads else range(0)
    pad = next((lines[at][: _indent(lines[at])] for at in inside[1:] if _said(lines[at])), "") or "  "
    known = {lines[at].strip().partition(":")[0] for at in inside[1:] if lines[at].startswith(pad)}
    moved: list[str] = []
    made = 0
    for edit in edits:
        at = (edit.line or 0) - 1
        if edit.old in known or not (0 <= at < len(lines)) or not re.match(rf"{re.escape(edit.old)}\s*:", lines[at]):
            continue
        block = [number for number in _block(lines, at) if number not in gone]
        moved += [pad + lines[number] if lines[number].strip() else lines[number] for number in block]
        gone.update(block)
        made += 1
    if not moved:  # an empty file has no first line
        return made, ""
    end = "\r\n" if lines[0].endswith("\r\n") else "\n"
    text = "".join(line if line.endswith("\n") else line + end for line in moved)
    if heads:
        last = inside[-1]
        lines[last] = (lines[last] if lines[last].endswith("\n") else lines[last] + end) + text
        return made, ""
    return made, f"container:{end}{text}"


def _block(lines: Sequence[str], head: int) -> range:
    """The lines of a top-level key: what is indented below it, or an unindented list."""
    end = head + 1
    for at in range(head + 1, len(lines)):
        line = lines[at]
        if line.strip() and not line.startswith((" ", "\t", "- ")):
            break
        if line.strip():
            end = at + 1
    return range(head, end)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _said(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _item(line: str, indent: int) -> bool:
    return _indent(line) == indent and line.lstrip().startswith("- ")
