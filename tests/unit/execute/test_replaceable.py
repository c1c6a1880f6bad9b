"""What --force replaces: images, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from builder.execute.preflight import check_output
from builder.model.finding import ConfigError
from builder.model.plan import Plan

PlanOf = Callable[..., Plan]
SIF = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\0"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("name", ["weights", "weights.sif", "model.h5"])
def test_a_file_that_is_no_image_is_never_replaced(plan_of: PlanOf, tmp_path: Path, name: str, force: bool) -> None:
    (tmp_path / name).write_text("precious")
    with pytest.raises(ConfigError, match="is not an image: it is never replaced") as caught:
        check_output(plan_of(), tmp_path / name, force=force, kept=None)
    assert "--force" not in caught.value.findings[0].fix


def test_an_image_is_replaced_by_force(plan_of: PlanOf, tmp_path: Path) -> None:
    (tmp_path / "x.sif").write_bytes(SIF)
    check_output(plan_of(), tmp_path / "x.sif", force=True, kept=None)


def test_an_image_is_not_replaced_through_a_link(plan_of: PlanOf, tmp_path: Path) -> None:
    (tmp_path / "x.sif").write_bytes(SIF)
    (tmp_path / "link.sif").symlink_to("x.sif")
    with pytest.raises(ConfigError, match="is a link to"):
        check_output(plan_of(), tmp_path / "x.sif", force=True, kept=None, named=tmp_path / "link.sif")


@pytest.mark.parametrize("ending", [".cdx.json", ".provenance.json", ".failed"])
@pytest.mark.parametrize("link", [False, True])
def test_a_file_next_to_an_image_is_never_replaced(plan_of: PlanOf, tmp_path: Path, ending: str, link: bool) -> None:
    place = tmp_path / f"x.sif{ending}"
    if link:
        (tmp_path / "mine").write_text("mine")
        place.symlink_to("mine")
    else:
        place.write_text("mine")
    with pytest.raises(ConfigError, match=f"x.sif{ending}"):
        check_output(plan_of(), tmp_path / "x.sif", force=True, kept=None)
