"""Tests that read our own source, pages and tests: what linters do not know. No process, no other machine."""

from __future__ import annotations

import gc

from support.guards import no_other_machine, no_process, nothing_of_the_caller

__all__ = ["no_other_machine", "no_process", "nothing_of_the_caller"]


def pytest_collection_finish() -> None:
    """Syntax trees live to the end, a million objects that the garbage collector would visit again and again."""
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
