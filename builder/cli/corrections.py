"""recipe check --fix: apply the exact edits of findings to their files."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from builder.cli.output import emit
from builder.model.finding import ConfigError, Edit, Finding, Location
from builder.model.secrets import redact
from builder.parse.other_formats import PIP_SUFFIXES
from builder.parse.yaml import parse_yaml, read_text
from builder.system.files import write_atomic

ITEMS = "items"  # an edit's `below`: the items after the line go below it
CONTAINER = "container"  # an edit's `below`: the key with its value goes into that section
BOM = "\ufeff"  # some editors begin a file with it; it is no part of the text that is read
_CONDA = re.compile(r"(?<![=<>!~])=(?!=)|::")  # a spec that pip does not take


def replace_tabs(text: str) -> str | None:
    """Replace each tab of the indentation by two spaces; None if spaces indent lines, other than comments, too."""
    indents = [line[: len(line) - len(line.lstrip())] for line in text.splitlines() if _has_content(line)]
    if any(" " in indent for indent in indents) or not any(indents):
        return None
    return re.sub(r"^[ \t]*\t[ \t]*", lambda found: found[0].expandtabs(2), text, flags=re.MULTILINE)


def indent_items(lines: list[str], head: int) -> bool:
    """Put the items after an empty `- pip:` below it, in place; False if one of them may be conda's."""
    indent = _count_indent(lines[head])
    end = next(
        (at for at in range(head + 1, len(lines)) if _has_content(lines[at]) and not _is_item(lines[at], indent)),
        len(lines),
    )
    items = [at for at in range(head + 1, end) if _is_item(lines[at], indent)]
    if not items or any(_CONDA.search(lines[at].split(" #")[0]) for at in items):
        return False
    if any(re.match(r"\s*-\s+[\w.-]+\s*:", lines[at]) for at in items):  # `- pip:` once more
        return False
    for at in range(head + 1, items[-1] + 1):
        if lines[at].strip():
            lines[at] = "  " + lines[at]
    return True


def move_into_container(lines: list[str], edits: Sequence[Edit], gone: set[int]) -> tuple[int, str]:
    """Move keys with their values to the end of `container:`, in place; returns their number and what follows."""
    heads = [at for at, line in enumerate(lines) if re.match(r"container\s*:", line)]
    if len(heads) > 1 or (heads and not re.match(r"container\s*:\s*(?:#.*)?$", lines[heads[0]].rstrip())):
        return 0, ""
    inside = _find_block(lines, heads[0]) if heads else range(0)
    pad = next((lines[at][: _count_indent(lines[at])] for at in inside[1:] if _has_content(lines[at])), "") or "  "
    known = {lines[at].strip().partition(":")[0] for at in inside[1:] if lines[at].startswith(pad)}
    moved: list[str] = []
    made = 0
    for edit in edits:
        at = (edit.line or 0) - 1
        if edit.old in known or not (0 <= at < len(lines)) or not re.match(rf"{re.escape(edit.old)}\s*:", lines[at]):
            continue
        block = [number for number in _find_block(lines, at) if number not in gone]
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


def _find_block(lines: Sequence[str], head: int) -> range:
    """The lines of a top-level key: what is indented below it, or an unindented list."""
    end = head + 1
    for at in range(head + 1, len(lines)):
        line = lines[at]
        if line.strip() and not line.startswith((" ", "\t", "- ")):
            break
        if line.strip():
            end = at + 1
    return range(head, end)


def _count_indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _has_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _is_item(line: str, indent: int) -> bool:
    return _count_indent(line) == indent and line.lstrip().startswith("- ")


_PIP = re.compile(r"(\s*)-\s+pip\s*:\s*(?:#.*)?$")


def apply_findings(files: Sequence[Path], findings: Iterable[Finding], *, texts: Mapping[Path, str]) -> dict[Path, str]:
    """Make the exact edits of findings in the files; `texts` are those that were corrected before.

    Returns the texts that are not what their files hold.
    """
    every = list(dict.fromkeys(finding.edit for finding in findings if finding.edit is not None))
    found = dict(texts)
    for file in files:
        own = [edit for edit in every if edit.file == str(file)]
        if file.suffix.lower() in (".toml", ".json"):  # items have commas: none is moved or removed
            own = [edit for edit in own if edit.new and not edit.below and '"' not in edit.new]
        if not own:  # it may not be readable at all
            continue
        before = found[file] if file in found else _read(file)
        after, made = apply_edits(before, own)
        if made and after != before and _is_readable(after, file=file):
            found[file] = after
    return found


def emit_changes(texts: Mapping[Path, str]) -> int:
    """Print the difference of each text from its file, and return the number of changed lines."""
    changed = 0
    for file, after in texts.items():
        before = _read(file)
        lines = list(difflib.unified_diff(_split_lines(before), _split_lines(after), f"a/{file}", f"b/{file}"))
        marks = [line[0] for line in lines[2:]]
        changed += max(marks.count("-"), marks.count("+"))
        shown = (line[:-2] + "\n" if line.endswith("\r\n") else line for line in lines)
        ended = (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in shown)
        emit(redact("".join(ended)), end="")  # a line next to the change may contain a token
    return changed


def _read(file: Path) -> str:
    """Read an environment file as it was read before: UTF-16 by its mark, where it is no YAML."""
    return read_text(file, what="recipe", name=str(file), marked=file.suffix.lower() in PIP_SUFFIXES)


def write_texts(texts: Mapping[Path, str]) -> None:
    """Write each text into its file; the byte order mark of UTF-8 and the mode of a file stay.

    A file in UTF-16 is UTF-8 afterwards.
    """
    for file, text in texts.items():
        mark = BOM if file.read_bytes().startswith(BOM.encode()) else ""
        write_atomic(file.resolve(), mark + text, keep=True)


def check_writable(files: Sequence[Path]) -> None:
    """Raise ConfigError for files that must not be changed: a rename would replace them without asking."""
    refused = [file for file in files if file.is_file() and not _is_writable(file)]
    if refused:
        raise ConfigError(*(_explain_refusal(file) for file in refused))


def _explain_refusal(file: Path) -> Finding:
    word, at = shlex.quote(str(file)), Location(file=str(file))
    if file.stat().st_uid == os.geteuid():
        fix = f"`chmod u+w {word}`, or make the changes that --diff prints in a copy"
        return Finding(code="path-refused", message=f"'{file}' may not be written", at=at, fix=fix)
    copy = shlex.quote(f"{file.stem}-mine{file.suffix}")
    message = f"'{file}' belongs to another user, and may not be written"
    return Finding(code="path-refused", message=message, at=at, fix=f"correct a copy: `cp {word} {copy}`")


def _is_writable(file: Path) -> bool:
    """Whether a file may be written; for root, too, a mode without any write permission says no."""
    return os.access(file, os.W_OK) and bool(file.stat().st_mode & 0o222)


def apply_edits(text: str, edits: Sequence[Edit]) -> tuple[str, int]:
    """The text with every exact edit, and their number; comments and the order of lines stay."""
    if any(edit.old == "\t" for edit in edits):  # nothing else of such a file was read
        spaced = replace_tabs(text)
        return (text, 0) if spaced is None else (spaced, len(_split_lines(text)) - _count_same_lines(spaced, text))
    lines, made = _split_lines(text), 0
    moved: list[str] = []
    gone: set[int] = set()
    for edit in edits:
        number = (edit.line or 0) - 1
        if not 0 <= number < len(lines) or number in gone:
            continue
        if edit.below == CONTAINER:
            continue
        if edit.below == ITEMS:
            made += indent_items(lines, number)
        elif edit.below or not edit.new:
            item = lines[number].split(" #")[0].strip()
            if item in (f"- {edit.old}", f'- "{edit.old}"', f"- '{edit.old}'", edit.old):
                gone.add(number)
                made += 1
                moved += [lines[number].strip()] if edit.below else []
            continue
        elif (line := _replace_words(lines[number], edit)) is not None:
            lines[number], made = line, made + 1
    if moved and not _move(lines, moved, gone):
        return text, 0
    count, behind = move_into_container(lines, [edit for edit in edits if edit.below == CONTAINER], gone)
    after = "".join(line for number, line in enumerate(lines) if number not in gone)
    if behind and not after.endswith("\n"):
        after += "\r\n" if after.endswith("\r") or "\r\n" in after else "\n"
    return after + behind, made + count


def _count_same_lines(one: str, other: str) -> int:
    """The number of lines that two texts have in common, position by position."""
    return sum(a == b for a, b in zip(_split_lines(one), _split_lines(other), strict=True))


def _is_readable(text: str, *, file: Path) -> bool:
    """Whether the result is still valid YAML, JSON or TOML; a requirements file need not be."""
    if file.suffix.lower() == ".toml":
        from builder.parse.toml import parse_toml

        try:
            parse_toml(text, file=str(file))
        except ConfigError:
            return False
        return True
    if file.suffix.lower() not in (".yml", ".yaml", ".json"):
        return True
    try:
        parse_yaml(text, file=str(file), faults=[])
    except ConfigError:
        return False
    return True


def _replace_words(line: str, edit: Edit) -> str | None:
    """The line with its words replaced; None unless they occur once outside of comments."""
    head, mark, comment = line.partition(" #")
    found = list(re.finditer(rf"(?<![\w.-]){re.escape(edit.old)}(?![\w-])" if edit.old[0].isalnum() else
                             rf"(?<![=<>!~-]){re.escape(edit.old)}(?![=<>])", head))  # fmt: skip
    if len(found) != 1:
        return None
    start, end = found[0].span()
    if ": " in edit.old and ": " not in edit.new:  # a key with its value becomes a text: its braces go with it
        before, after = head[:start].rstrip(), head[end:].lstrip()
        if before.endswith("{") and after.startswith("}"):
            start, end = len(before) - 1, len(head) - len(after) + 1
        elif "{" in before:
            return None  # one of several keys
    return head[:start] + edit.new + head[end:] + mark + comment


def _move(lines: list[str], moved: Sequence[str], gone: set[int]) -> bool:
    """Put items below `- pip:`, in place, as more lines of its last one; False if the list's end is unknown."""
    heads = [number for number, line in enumerate(lines) if _PIP.match(line)]
    items = [number for number in range(len(lines)) if lines[number].lstrip().startswith("- ") and number not in gone]
    if len(heads) > 1:
        return False
    if not heads:
        last = max([*items[-1:], *gone])
        pad = lines[min(gone)][: len(lines[min(gone)]) - len(lines[min(gone)].lstrip())]
        added = [f"{pad}- pip:", *(f"{pad}  {item}" for item in moved)]
    else:
        last = head = heads[0]
        indent = len(lines[head]) - len(lines[head].lstrip())
        pad = " " * (indent + 2)
        for number in range(head + 1, len(lines)):
            rest = lines[number].lstrip()
            if not rest or len(lines[number]) - len(rest) <= indent:
                break
            last = number
            if rest.startswith("- "):
                pad = lines[last][: len(lines[last]) - len(rest)]
        added = [f"{pad}{item}" for item in moved]
    end = "\r\n" if lines[0].endswith("\r\n") else "\n"
    kept = "" if last in gone else lines[last] if lines[last].endswith("\n") else lines[last] + end
    gone.discard(last)
    lines[last] = kept + "".join(line + end for line in added)
    return True


def _split_lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+$", text)
