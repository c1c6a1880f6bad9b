"""The look inside an image that begins before the image has its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from builder.execute.image_scan import BackgroundScan
from builder.model.plan import Plan
from builder.sif.bounded import hash_file

PlanOf = Callable[..., Plan]


def begun(plan: Plan, folder: Path, content: bytes) -> BackgroundScan:
    """Report that an image is whole, and give it its name."""
    part = folder / f"{plan.image}.part"
    part.write_bytes(content)
    ahead = BackgroundScan(plan, folder=folder, digest="")
    ahead.note_whole_image("another.part")
    ahead.note_whole_image(f"{plan.image}.part")
    part.rename(folder / plan.image)
    return ahead


def test_the_digest_is_of_what_was_renamed(plan_of: PlanOf, tmp_path: Path) -> None:
    plan: Any = plan_of()
    ahead = begun(plan, tmp_path, b"an image" * 100_000)
    first = ahead._begun
    assert first is not None
    assert ahead.take_scan(put=True) is first
    assert first.finish() == hash_file(tmp_path / plan.image)


def test_an_image_that_changed_is_looked_into_again(plan_of: PlanOf, tmp_path: Path) -> None:
    plan: Any = plan_of()
    ahead = begun(plan, tmp_path, b"an image" * 100_000)
    with (tmp_path / plan.image).open("ab") as file:
        file.write(b"more")
    assert ahead.take_scan(put=True).finish() == hash_file(tmp_path / plan.image)
