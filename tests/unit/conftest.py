"""Unit tests are pure: nothing of the caller, no other machine, no process."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from support.guards import no_other_machine, no_process, nothing_of_the_caller

__all__ = ["no_other_machine", "no_process", "nothing_of_the_caller"]


def pytest_collection() -> None:
    """What is collected lives to the end: the garbage collector finds nothing in it."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Thousands of short tests: a third of their time was the collector, looking at what the collection made."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(200_000, 50, 100)


@pytest.fixture
def recipes() -> Path:
    """The example recipes that ship with us."""
    return Path(__file__).parents[2] / "recipes"
