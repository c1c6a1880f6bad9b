"""A plan folder for one command on this terminal; it is removed afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from builder.execute.plan_folder import write_plan
from builder.model.plan import Plan
from builder.system.scratch import find_private_parent


@contextmanager
def write_scratch_plan(plan: Plan, *, shared: bool) -> Iterator[Path]:
    """Write a plan's files into a new folder; with `shared` where every node of an allocation sees it."""
    place = Path.cwd() if shared else find_private_parent(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=".recipe-run-", dir=place) as scratch:
        folder = Path(scratch) / "plan"
        write_plan(plan, folder, recipe_folder=folder)
        yield folder
