"""Tests of commands start bash, Python or a linter here, and stand-ins for engines: real ones are in tests/engines."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.guards import no_other_machine, nothing_of_the_caller

__all__ = ["no_other_machine", "nothing_of_the_caller"]


@pytest.fixture
def recipes() -> Path:
    """The example recipes that ship with us."""
    return Path(__file__).parents[2] / "recipes"
