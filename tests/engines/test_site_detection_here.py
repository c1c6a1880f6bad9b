"""recipe init site --detect on this machine: its real Slurm, its engines; the file builds and its jobs are taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_program import Room, run

from builder.parse.site import load_site

pytestmark = pytest.mark.engines

RECIPE = "name: x\ndependencies: [{pip: [six==1.16.0]}]\ncontainer: {smoke: {imports: [six]}}\n"


def test_this_machine_becomes_a_site_that_slurm_takes(tmp_path: Path, base_sif: Path) -> None:
    room = Room(tmp_path)
    path = room.folder / "here.yaml"
    done = room.recipe("init", "site", "here", "--detect", "-o", path).expect(0)
    assert done.out == f"{path}\n"
    assert "unknown: the GPUs of the partition test" in done.err
    site = load_site(str(path))
    assert (site.scheduler.kind, site.scheduler.account, site.launch.launcher) == ("slurm", "optional", "srun")
    assert site.scheduler.version is not None
    assert {name: job.options for name, job in site.scheduler.jobs.items()} == {
        "gpu": {"partition": "test"},
        "build": {"partition": "test"},
    }
    assert site.runtime.version is not None
    assert site.runtime.version.startswith("1.")
    assert site.build.user_namespaces == "yes"
    plan = room.folder / "plan"
    room.recipe("plan", path, room.write("x.yml", RECIPE), "--base", base_sif, "-o", plan).expect(0)
    for script in ("1-build-image.sbatch", "run/gpu.sbatch"):
        run(["sbatch", "--test-only", script], cwd=plan, env=room.environment()).expect(0)
    assert room.left_behind() == []
