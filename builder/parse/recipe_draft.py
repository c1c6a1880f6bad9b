"""The text of an environment file that is made of another file: its items, and what of that file is not in it."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from builder.model.finding import ConfigError, Finding, Location
from builder.model.recipe import Recipe
from builder.model.secrets import MASK, find_command_secret, redact
from builder.model.text import CONTROL
from builder.parse.recipe import load_recipe
from builder.parse.yaml import to_yaml

Part = Literal["conda", "pip", "system", "files", "env", "run", "labels", "base", "channels"]
SHOWN = 160  # characters of a line of the other file, in a comment
LONG = 5000  # characters of a value, up to which YAML's own writer does not fold it


@dataclass(frozen=True, kw_only=True)
class DraftItem:
    """A value of a part, with its line in the other file; `name` is the key of files, env and labels."""

    part: Part
    value: str
    line: int
    name: str = ""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class LeftLine:
    """A line of the other file that is not in the recipe, and why."""

    line: int
    text: str
    why: str
    missing: bool = False  # it names a file of packages that is not there


@dataclass(kw_only=True)
class RecipeDraft:
    """What is known so far; the first item with a name or a value is kept."""

    items: list[DraftItem] = field(default_factory=list)
    left: list[LeftLine] = field(default_factory=list)
    known: set[tuple[str, str, str]] = field(default_factory=set)

    def add(self, item: DraftItem) -> None:
        """Add an item; a variable and a label that are set again have the later value."""
        value = "" if item.part in ("env", "labels") else item.value
        key = (item.part, item.name, value)
        if key in self.known and item.part in ("env", "labels"):
            self.items = [one for one in self.items if (one.part, one.name) != (item.part, item.name)]
        if item.part in ("run", "env", "labels") or key not in self.known:
            self.items.append(item)
        self.known.add(key)

    def leave(self, line: int, text: str, why: str, *, missing: bool = False) -> None:
        """Note a line that is not in the recipe."""
        self.left.append(LeftLine(line=line, text=text, why=why, missing=missing))

    def select(self, part: Part) -> list[DraftItem]:
        return [one for one in self.items if one.part == part]


def write_draft(draft: RecipeDraft, *, name: str, source: str, path: Path) -> tuple[str, Recipe]:
    """Write the environment file and read it back; what a recipe cannot have becomes a comment. Raises ConfigError."""
    while True:
        text, lines = _render(draft, name=name, source=source)
        try:
            return text, load_recipe(path, text=text)
        except ConfigError as error:
            if not _leave_faulty(draft, error, lines=lines):
                raise _make_error(error, source=source) from None


def _make_error(error: ConfigError, *, source: str) -> ConfigError:
    """What is wrong with a draft in which no item is wrong: it has none."""
    if any(finding.code == "recipe-empty" for finding in error.findings):
        message = f"'{source}' installs nothing that a recipe can name"
        fix = "`recipe init` writes an example to start from"
        return ConfigError(Finding(code="init-from", message=message, at=Location(file=source), fix=fix))
    return ConfigError(*(replace(one, at=Location(file=source)) for one in error.findings))


def _leave_faulty(draft: RecipeDraft, error: ConfigError, *, lines: Sequence[DraftItem | None]) -> bool:
    """Take the items out that a reader refuses; whether there was one."""
    faulty: set[int] = set()
    for finding in error.findings:
        number = finding.at.line if finding.at and finding.at.line else 0
        item = lines[number - 1] if 0 < number <= len(lines) else None
        item = item or _find_including(draft, finding)
        if item is not None and id(item) not in faulty:
            faulty.add(id(item))
            secret = item.name or f"a value of {item.part}" if "secret" in finding.code else ""
            draft.leave(item.line, secret or _describe(item), finding.message)
    draft.items = [one for one in draft.items if id(one) not in faulty]
    return bool(faulty)


def _find_including(draft: RecipeDraft, finding: Finding) -> DraftItem | None:
    """The line that names the file of requirements which has a fault."""
    name = Path(finding.at.file).name if finding.at else ""
    return next((one for one in draft.select("pip") if re.match(rf"-[rc] (?:.*/)?{re.escape(name)}$", one.value)), None)


def _describe(item: DraftItem) -> str:
    words = {"env": f"{item.name}={item.value}", "labels": f"{item.name} {item.value}", "files": item.name}
    return words.get(item.part, item.value)


def _render(draft: RecipeDraft, *, name: str, source: str) -> tuple[str, list[DraftItem | None]]:
    """Write the file; for each of its lines the item that it is of."""
    rows: list[tuple[str, DraftItem | None]] = [
        (f"# Made of {_comment(source)}: read it before you build it.", None), (f"name: {_scalar(name)}", None),
    ]  # fmt: skip
    if channels := draft.select("channels"):
        rows += [("channels:", None), *((f"  - {_scalar(one.value)}{_note(one)}", one) for one in channels)]
    conda, pip = draft.select("conda"), draft.select("pip")
    if conda or pip:
        rows.append(("dependencies:", None))
        rows += [(f"  - {_scalar(one.value)}{_note(one)}", one) for one in conda]
    if pip:
        rows += [("  - pip:", None), *((f"      - {_scalar(one.value)}{_note(one)}", one) for one in pip)]
    inner = list(_render_container(draft))
    rows += [("container:", None), *inner] if inner else []
    rows += [(text, None) for text in _render_left(draft.left)]
    lines = [(line, item) for text, item in rows for line in text.split("\n")]
    return "\n".join(line for line, _ in lines) + "\n", [item for _, item in lines]


def _render_container(draft: RecipeDraft) -> Iterable[tuple[str, DraftItem | None]]:
    for one in draft.select("base")[:1]:
        yield f"  base: {_scalar(one.value)}{_note(one)}", one
    parts: tuple[Part, ...] = ("system", "files", "env", "run", "labels")
    for part in parts:
        items = draft.select(part)
        if items:
            yield f"  {part}:", None
        for one in items:
            if one.name:
                yield f"    {_scalar(one.name)}: {_scalar(one.value)}{_note(one)}", one
            elif body := _block(one.value):
                yield f"    - |{_note(one)}\n{body}", one
            else:
                yield f"    - {_scalar(one.value)}{_note(one)}", one


def _block(text: str) -> str:
    """Several lines as YAML's literal block has them, "" where it cannot."""
    plain = textwrap.dedent(text).strip("\n")
    if "\n" not in plain or plain[0].isspace() or CONTROL.search(re.sub(r"[\n\t]", "", plain)):
        return ""
    return textwrap.indent(plain, " " * 6, lambda _: True)


def _render_left(left: Sequence[LeftLine]) -> Iterable[str]:
    if left:
        yield "# Not taken over:"
    for one in sorted(dict.fromkeys(left), key=lambda one: one.line):
        yield f"#   {f'line {one.line}: ' if one.line else ''}{_comment(one.text)}"
        yield f"#     {_comment(one.why)}"


def _scalar(value: str) -> str:
    """A value in one line, quoted where YAML needs it."""
    if len(value) > LONG or "\n" in value:
        return json.dumps(value, ensure_ascii=False)
    return to_yaml({"k": value})[3:].rstrip("\n") if not CONTROL.search(value) else json.dumps(value)


def _note(item: DraftItem) -> str:
    return f"  # {f'line {item.line}: ' if item.line else ''}{_comment(item.note)}" if item.note else ""


def _comment(text: str) -> str:
    """A text in one line that a file shows, without what looks like a secret."""
    plain = CONTROL.sub(" ", redact(" ".join(text.split())))
    if find_command_secret(plain):
        plain = f"{plain.partition(' ')[0].partition('=')[0]} {MASK}"
    return plain if len(plain) <= SHOWN else plain[: SHOWN - 3] + "..."
