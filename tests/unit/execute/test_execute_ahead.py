"""The look inside an image that begins before the image has its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from builder.execute.background_scan import Ahead
from builder.layers import build as layering
from builder.model.plan import Plan
from builder.system.checksums import sha256_of
from builder.system.layout import WHOLE

PlanOf = Callable[..., Plan]


def begun(plan: Plan, folder: Path, content: bytes) -> Ahead:
    """Hear that an image is whole, and give it its name."""
    part = folder / f"{plan.image}.part"
    part.write_bytes(content)
    ahead = Ahead(plan, folder=folder, digest="")
    ahead.hear("another line")
    ahead.hear(WHOLE.format(image=plan.image))
    part.rename(folder / plan.image)
    return ahead


def test_the_digest_is_of_what_was_renamed(plan_of: PlanOf, tmp_path: Path) -> None:
    plan: Any = plan_of()
    ahead = begun(plan, tmp_path, b"an image" * 100_000)
    first = ahead._begun
    assert first is not None
    assert ahead.inside(put=True) is first
    assert first.settle() == sha256_of(tmp_path / plan.image)


def test_an_image_that_changed_is_looked_into_again(plan_of: PlanOf, tmp_path: Path) -> None:
    plan: Any = plan_of()
    ahead = begun(plan, tmp_path, b"an image" * 100_000)
    with (tmp_path / plan.image).open("ab") as file:
        file.write(b"more")
    assert ahead.inside(put=True).settle() == sha256_of(tmp_path / plan.image)


def test_what_the_script_says_is_what_is_heard() -> None:
    from builder.compile.render import verbatim

    said = next(line for line in verbatim("engine.sh").splitlines() if "is whole" in line)
    heard = WHOLE.format(image="x.sif")
    assert f"recipe: {layering.WHOLE.format('x.sif.part')}".startswith(heard)
    assert said.split('"')[1].replace("$1", "x.sif.part").startswith(heard)
