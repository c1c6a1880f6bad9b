"""A build script of a site with aarch64 processors, started by hand on this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.matrix import EXAMPLES, target_plan

from builder.parse.recipe import load_recipe


@pytest.mark.parametrize("backend", ["apptainer", "layers"])
def test_a_build_for_aarch64_stops_on_others(backend: str, tmp_path: Path) -> None:
    if os.uname().machine == "aarch64":
        pytest.skip("this machine has the processors of the site")
    plan = target_plan(load_recipe(EXAMPLES / "finetune.txt"), site="roihu-gpu", backend=backend)
    for file in plan.files:
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
    script = (tmp_path / "1-build-image.sh").read_text(encoding="utf-8")
    assert "\nfor_processor aarch64\n" in script
    done = subprocess.run(
        ["bash", "-c", ". ./engine.sh; for_processor aarch64; echo built"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "the image is for aarch64 processors, and this machine has" in done.stderr
    same = f". ./engine.sh; for_processor {os.uname().machine}; echo built"
    done = subprocess.run(["bash", "-c", same], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "built\n")
