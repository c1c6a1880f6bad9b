"""What goes into an image of a folder that recipe and other tools write into: its sources, and nothing of theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from builder.execute.plan_folder import write_plan
from builder.inspect.origin import compute_sources_identity
from builder.model.plan import Copy, Plan

PlanOf = Callable[..., Plan]
PACKAGE = Copy(source=".", path="image/local/0/package")
FILES = Copy(source=".", path="image/root/opt/files")
PRODUCTS = ("x.sif", "x.sif.failed", "x.sif.cdx.json", "x.sif.provenance.json", "x.plan/report.json")
OTHERS = ("y.sif", "y.sif.failed", "y.sif.cdx.json", "y.sif.provenance.json", "y.plan/report.json")
CACHES = (
    "thing/__pycache__/a.pyc", ".venv/bin/python", "build/lib/a.py", "src/thing.egg-info/PKG-INFO",
    ".pytest_cache/a", ".mypy_cache/a", ".ruff_cache/a",
)  # fmt: skip


def write(top: Path, *names: str) -> None:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)


def compute(plan: Plan, top: Path) -> str:
    return compute_sources_identity(plan, recipe_folder=top, folder=top / "x.plan")


def copied(plan: Plan, top: Path) -> set[str]:
    """What a new plan folder has of the sources."""
    write_plan(plan, top / "x.plan", recipe_folder=top)
    inside = top / "x.plan" / plan.copies[0].path
    return {str(path.relative_to(inside)) for path in inside.rglob("*") if path.is_file()}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    top = tmp_path / "package"
    write(top, "pyproject.toml", "thing/__init__.py", "src/a.py")
    return top


def test_what_recipe_and_tools_write_is_not_of_a_package(sources: Path, plan_of: PlanOf) -> None:
    plan = plan_of(copies=(PACKAGE,))
    before = compute(plan, sources)
    own = copied(plan, sources)
    assert own == {"pyproject.toml", "thing/__init__.py", "src/a.py"}
    assert compute(plan, sources) == before
    write_plan(plan_of(), sources / "y.plan", recipe_folder=sources)
    write(sources, *PRODUCTS, *OTHERS, *CACHES)
    (sources / "own-name").write_text("an image of another name")
    (sources / "y.plan" / "image.sif").symlink_to("../own-name")
    assert compute(plan, sources) == before
    assert copied(plan, sources) == own


@pytest.mark.parametrize(
    "name", ["thing/data.sif", "x.sif.txt", "z.plan/notes.txt", "build/__init__.py", "a/build/b.py"]
)
def test_the_users_own_files_are_of_a_package(sources: Path, plan_of: PlanOf, name: str) -> None:
    plan = plan_of(copies=(PACKAGE,))
    before = compute(plan, sources)
    write(sources, name)
    assert compute(plan, sources) != before
    assert name in copied(plan, sources)


def test_a_line_of_recipeignore_brings_a_cache_back(sources: Path, plan_of: PlanOf) -> None:
    plan = plan_of(copies=(PACKAGE,))
    write(sources, "build/made.c")
    assert "build/made.c" not in copied(plan, sources)
    (sources / ".recipeignore").write_text("!/build/\n")
    before = compute(plan, sources)
    assert "build/made.c" in copied(plan, sources)
    (sources / "build/made.c").write_text("another text")
    assert compute(plan, sources) != before


def test_what_this_build_writes_into_other_folders_is_skipped(sources: Path, plan_of: PlanOf) -> None:
    plan = plan_of(copies=(FILES,))
    before = compute(plan, sources)
    copied(plan, sources)
    write(sources, *PRODUCTS)
    assert compute(plan, sources) == before
    write_plan(plan_of(), sources / "y.plan", recipe_folder=sources)
    write(sources, *OTHERS, *CACHES)
    assert compute(plan, sources) != before
    assert {*OTHERS, *CACHES} <= copied(plan, sources)
