"""Unit tests are pure: nothing of the caller, no other machine, no process."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.guards import no_other_machine, no_process, nothing_of_the_caller

__all__ = ["no_other_machine", "no_process", "nothing_of_the_caller"]


@pytest.fixture
def recipes() -> Path:
    """The example recipes that ship with us."""
    return Path(__file__).parents[2] / "recipes"
