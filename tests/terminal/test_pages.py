"""Every command line of README and docs, typed as it stands, with the exit code that the page's reader gets here.

Files are made from the page's own examples, else from `recipe init`. There is no engine, batch system or network here,
so some lines end with 4, and say what is missing: `WITHOUT` knows which, and why.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT, Seat
from screen import Shown, broken, faults

CHECKS = ROOT / "docs" / "checks"
FENCED = re.compile(r"^`(?P<name>[\w.-]+)`[^\n`]*:\n\n```(?:yaml|text)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LEVEL = re.compile(r"Level: (error|warning|note)\.$", re.MULTILINE)
ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
ENVIRONMENT = re.compile(r"[\w./-]+\.(?:yml|txt)")

# The beginning of a line -> the codes that are right here, and why they are. The first that fits counts; else it is 0.
WITHOUT: tuple[tuple[str, tuple[int, ...], str], ...] = (
    ("recipe check lumi-g mnist-local.yml", (3,), "README's own refusal"),
    ("recipe check lumi-g mn5 environment.yml", (0, 3), "the answer depends on the reader's file"),
    ("recipe check --fix", (0, 2, 3), "the file in its place has nothing to correct"),
    ("recipe check", (0, 3), "what it says of the page's example is in its text: tests/source/test_check_pages.py"),
    ("recipe init --from", (0, 2), "the reader's own file is not here"),
    ("recipe build lumi-g a.yml", (3, 4), "the example in its place asks for a torch that LUMI has no build of"),
    ("recipe build", (4,), "no engine, and no site's machine"),
    ("recipe lock", (4, 5), "no index can be reached"),
    ("recipe doctor local", (4,), "no engine"),
    ("recipe fetch", (4, 5), "no registry can be reached"),
    ("recipe bundle", (3, 4, 5), "no registry can be reached"),
    ("recipe push", (2,), "no image was built"),
    ("recipe status", (2,), "nothing was submitted: there is no plan folder"),
    ("recipe run", (2,), "no image was built"),
    ("recipe shell", (2,), "no image was built"),
    ("recipe module", (2,), "no image was built"),
    ("recipe kernel", (2,), "no image was built"),
    ("recipe convert", (2,), "no archive was saved"),
    ("recipe inspect", (2,), "no image was built"),
    ("recipe report", (2,), "no image was built"),
    ("recipe diff", (2,), "no image was built"),
    ("recipe smoke", (2,), "no image was built"),
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A command line, the page that it stands on and the lines of ours before it there."""

    page: str
    text: str
    before: tuple[str, ...] = ()


def lines() -> Iterator[Line]:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        before: list[str] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            found = re.match(r"(?: {4}(?:\$ )?|\$ )(?=recipe )(.*)", line)
            if found is None:
                continue
            text = re.split(r"\|\||&&|  #| > ", found[1])[0].strip()
            yield Line(page=path.relative_to(ROOT).as_posix(), text=text, before=tuple(before))
            before.append(text)


LINES = list(lines())


def right_codes(line: Line) -> tuple[int, ...]:
    """The exit codes that are right: those of a finding's level, of the table, or 0."""
    path = ROOT / line.page
    if path.parent == CHECKS and (level := LEVEL.search(path.read_text(encoding="utf-8"))):
        return {"error": (2, 3)}.get(level[1], (0, 3))  # the example may have more than the page's finding
    return next((codes for start, codes, _ in WITHOUT if line.text.startswith(start)), (0,))


def furnish(seat: Seat, line: Line) -> None:
    """Make the files that a line names: from the page, by the line before it, or an example under its name."""
    text = (ROOT / line.page).read_text(encoding="utf-8")
    seat.write({found["name"]: found["text"] for found in FENCED.finditer(text)})
    sites = re.findall(r"^```yaml\n(# [\w./-]*|)(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if "tiger" in line.text and not (seat.work / "tiger.yaml").exists():
        folder = Path(seat.env["HOME"]) / ".config" / "recipe" / "sites"
        folder.mkdir(parents=True)
        (folder / "tiger.yaml").write_text("".join(sites[0]), encoding="utf-8")
    for name in ("mypackage/pyproject.toml", "notes.txt/pyproject.toml"):
        if name.partition("/")[0] in text:
            seat.write({name: ""})
    for earlier in line.before:
        if earlier.startswith("recipe init"):
            assert seat.type_again(earlier, columns=None).code == 0
    if line.text.startswith(
        ("recipe check", "recipe plan", "recipe build", "recipe lock", "recipe fetch", "recipe bundle")
    ):
        for word in ENVIRONMENT.findall(line.text):
            if not (seat.work / word).exists():
                example = word[:-4] if (ROOT / "recipes" / word).is_file() else "mnist-local"
                assert seat.type_again(f"recipe init {example} -o {word}", columns=None).code == 0
                if example != word[:-4]:  # several of them have names of their own
                    path = seat.work / word
                    path.write_text(re.sub(r"^name: .*", f"name: {path.stem}", path.read_text(), flags=re.MULTILINE))


def test_the_table_has_a_use() -> None:
    texts = [line.text for line in LINES if not line.page.startswith("docs/checks")]
    for start, _, why in WITHOUT:
        assert why
        assert any(text.startswith(start) for text in texts) or start == "recipe smoke", start
    assert len(LINES) > 100


@pytest.mark.parametrize("line", LINES, ids=[f"{line.page}: {line.text}" for line in LINES])
def test_a_line_of_a_page(line: Line, seat: Seat) -> None:
    furnish(seat, line)
    # The pages of findings have one command, `recipe check`, which README and the other pages start.
    narrow = (seat.type_again if (ROOT / line.page).parent == CHECKS else seat.type)(line.text)
    assert (narrow.code in right_codes(line), faults(narrow)) == (True, []), (narrow.code, narrow.lines)
    if "-o" in shlex.split(line.text) or "init" in line.text:
        return  # the second time it says that its output exists
    wide = _another(seat, line)
    assert (wide.code, faults(wide)) == (narrow.code, [])
    if not narrow.text.startswith("{"):
        assert broken(narrow, wide) == []


def _another(seat: Seat, line: Line) -> Shown:
    """The same, wide and without colour; through a pipe for every other line."""
    if LINES.index(line) % 2 or line.text == "recipe config":  # which shows that colours are switched off
        return seat.type_again(line.text, columns=None)
    return seat.type_again(line.text, columns=120, color=False)
