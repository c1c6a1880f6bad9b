"""The names of tests are short sentences in plain words, and helpers of several suites are in one place."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
LONGEST = 60
NAME = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
NUMBERED = re.compile(r"^test_(security|fault)_\d+_")
# As whole words of a name.
UNWANTED = re.compile(r"_(nobody|whoever|anew|kits?|told_of|leaves?_with)(_|$)")


def names() -> list[str]:
    """Each test of all suites, without the number of the finding that it belongs to."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))]
    return [NUMBERED.sub("", name) for text in texts for name in NAME.findall(text)]


def test_names_have_at_most_60_characters() -> None:
    assert len(names()) > 1000
    assert [name for name in names() if len(name) > LONGEST] == []


def test_names_use_plain_words() -> None:
    assert [name for name in names() if UNWANTED.search(name)] == []


def test_no_helper_module_lies_between_the_suites() -> None:
    assert [path.name for path in TESTS.glob("*.py")] == ["conftest.py"]
