"""Words that we do not use."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from support.own_code import comments_of, files, nodes_of, text_of

ROOT = Path(__file__).parents[2]
WORDS = (
    "nobody", "whoever", "told of", "is told", "are told", "leaves with", "leave with", "anew", "for ever",
    "wants to know", "it is said", "half-made", "to be mended", "beside", "stands", "lies", "the last time",
    "asked for", "speaks against", "speak against", "bad days", "in the way", "without a word", "goes on",
    "is no image", "wish", "wishes", "papers", "counterpart among", "says how it goes", "not at the end yet",
)  # fmt: skip
UNWANTED = re.compile(
    rf"\b(?:{'|'.join(map(re.escape, WORDS))})\b|\bkits?\b(?!\.json|-file)|(?<!there )\b(?-i:is none)\b", re.IGNORECASE
)
KEY = "kits"  # of a JSON file, which keeps its names


def texts() -> Iterator[tuple[str, str]]:
    """Every text of a room: pages, strings and comments."""
    pages = {"README.md": "README.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        room = pages.get(path.name, "") if path.parent == ROOT else path.parent.relative_to(ROOT).as_posix()
        yield room, path.read_text(encoding="utf-8")
    for path in files():
        room = "/".join(path.relative_to(ROOT).parts[:2])
        for node in nodes_of(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield room, node.value
        # The tokens of a file take long: only where what follows a # on its line has such a word.
        if any(UNWANTED.search(line[line.index("#") :]) for line in text_of(path).splitlines() if "#" in line):
            yield from ((room, comment) for comment in comments_of(path))


def test_texts_have_no_unwanted_words() -> None:
    found: Counter[str] = Counter()
    for room, text in texts():
        if text != KEY:
            found.update({f"{room}: {word}": 1 for word in UNWANTED.findall(text)})
    assert found == {}, "write it in plain words"


def test_the_word_list_finds_its_words() -> None:
    assert UNWANTED.findall("Nobody is told of a kit; kitchen, beside.") == ["Nobody", "is told", "kit", "beside"]
    assert UNWANTED.findall('"" is none, None is None, there is none') == ["is none"]


def test_prose_of_pages_fits_120_columns() -> None:
    """Tables, code and headings are one line by their form."""
    faults = []
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        code = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            code ^= line.lstrip().startswith("```")
            if len(line) > 120 and not code and not line.startswith(("|", "#", "    ", "[", "!", "<")):
                faults.append(f"{path.relative_to(ROOT)}:{number}")
    assert faults == []
