"""Unit tests are pure: nothing of the caller, no other machine, no process."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from support.guards import no_other_machine, no_process, nothing_of_the_caller

__all__ = ["no_other_machine", "no_process", "nothing_of_the_caller"]


# They read all of our source (support/own_code.py): the first tests of a run, on one worker, which parses it once.
OWN_CODE = ("test_check_pages.py", "test_explain.py", "test_floors.py", "test_foreign_folders.py", "test_names.py")
OWN_CODE += ("test_words.py",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what reads our source; the others keep their order."""
    items.sort(key=lambda item: item.path.name not in OWN_CODE)


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
