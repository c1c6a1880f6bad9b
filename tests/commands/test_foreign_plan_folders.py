"""A plan folder that somebody else has filled: an image goes beside it and nowhere else, and no job loses its plan.

Two users: tests/users/test_plan_folders.py.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from builder.cli.main import run
from builder.execute.plan_folder import write_plan
from builder.model.plan import Plan, PlanFile, Step
from builder.slurm.ledger import Ledger, SubmittedJob, write_ledger
from builder.system.trust import TRUST

FORGOTTEN = "echo 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1\n"
RUNNING = "echo '12|RUNNING|node1|2026-01-01T00:00:00|None'\n"
RECORD = '{"schema": 1, "job": "12", "exit_code": 0, "reason": "", "started": 1, "ended": 2}'
STEP = Step(name="build", kind="build", why="build", script="b.sh", batch="b.sbatch", produces=("x.sif",))
FILES = (PlanFile(path="b.sh", text="true"), PlanFile(path="b.sbatch", text="true"))
PLAN = Plan(
    target="x.local.layers", recipe="x", site="local", backend="layers", vendor="cpu", image="x.sif", image_kind="sif",
    base="", steps=(STEP,), files=FILES,
)  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with something of the user's, and a Slurm that has forgotten the job."""
    (tmp_path / "bin").mkdir()
    slurm(tmp_path, FORGOTTEN)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(TRUST, "trusted", False)
    monkeypatch.setattr(TRUST, "reported", set())
    (tmp_path / "id_ed25519").write_text("my key\n")
    return tmp_path


def slurm(place: Path, says: str) -> None:
    for name in ("squeue", "sacct", "scontrol", "scancel"):
        (place / "bin" / name).write_text(f"#!/bin/sh\n{says if name == 'squeue' else FORGOTTEN}")
        (place / "bin" / name).chmod(0o755)


def submitted(place: Path, *, output: Path, record: str = RECORD) -> Path:
    """A plan folder whose only job has ended well, and is to be published."""
    folder = place / "x.plan"
    write_plan(PLAN, folder, recipe_folder=place)
    (folder / "b-12.log").touch()
    job = SubmittedJob(job="12", step="build", script="b.sbatch", log="b-12.log")
    write_ledger(Ledger(site="local", kind="build", output=str(output), jobs=(job,)), folder)
    if record:
        (folder / "jobs" / "12.json").write_text(record)
    return folder


def recipe(*words: str | Path) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run([str(word) for word in words])
    assert "Traceback" not in said.getvalue()
    return code, said.getvalue()


def test_an_image_is_put_beside_its_folder(place: Path) -> None:
    folder = submitted(place, output=place / "x.sif")
    (folder / "x.sif").write_text("an image")
    assert recipe("status", folder)[0] == 0
    assert (place / "x.sif").read_text() == "an image"


@pytest.mark.parametrize("name", ["id_ed25519", "x.plan/y.sif", "y.sif", "bin/x.sif"])
@pytest.mark.parametrize("trust", [(), ("--trust",)], ids=["", "trusted"])
def test_security_03_status_puts_an_image_nowhere_else(place: Path, name: str, trust: tuple[str, ...]) -> None:
    folder = submitted(place, output=place / name)
    (folder / "x.sif").write_text("touch CANARY")
    code, said = recipe("status", *trust, folder)
    assert (code, "is not next to the plan folder" in said) == (2, True)
    assert (place / "id_ed25519").read_text() == "my key\n"
    assert (folder / "x.sif").read_text() == "touch CANARY"


@pytest.mark.parametrize("trust", [(), ("--trust",)], ids=["", "trusted"])
def test_security_03_status_takes_no_file_that_a_link_leads_to(place: Path, trust: tuple[str, ...]) -> None:
    folder = submitted(place, output=place / "x.sif")
    (folder / "x.sif").symlink_to(place / "id_ed25519")
    code, said = recipe("status", *trust, folder)
    assert (code, "is a link that leads out of the plan folder" in said) == (2, True)
    assert (place / "id_ed25519").read_text() == "my key\n"
    assert not (place / "id_ed25519").is_symlink()
    assert not (place / "x.sif").exists()


def test_fault_01_no_plan_is_written_over_that_of_jobs_that_run(place: Path) -> None:
    folder = submitted(place, output=place / "x.sif", record="")
    slurm(place, RUNNING)
    (place / "env.yml").write_text("name: x\ndependencies: [pip: [six]]\n")
    before = (folder / "plan.json").read_bytes()
    words = ("plan", "local", place / "env.yml", "-o", folder)
    for more in ((), ("--force",)):
        code, said = recipe(*words, *more)
        assert (code, "job 12 of this folder is still waiting or running" in said) == (2, True), said
        assert (folder / "plan.json").read_bytes() == before
    slurm(place, FORGOTTEN)
    assert recipe(*words, "--force")[0] == 0
    assert (folder / "plan.json").read_bytes() != before
