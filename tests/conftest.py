"""Options of the tests. What the suites share is in the package `support` beside this file."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` rewrites tests/golden; the diff is what has to be read."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the files in tests/golden")
