"""A plan folder that another user left in a shared place: not believed, not written, nothing of it run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from user import SHARED_GROUP, User

# A folder as a stranger leaves it: jobs that have ended, whose image is to replace the reader's own file.
HOSTILE = """
import sys
from pathlib import Path
from builder.execute.plan_folder import write_plan
from builder.slurm.ledger import Ledger, SubmittedJob, write_ledger
from builder.model.plan import PlanFile, Plan, Step
folder, output = Path(sys.argv[1]), sys.argv[2]
step = Step(name="build", kind="build", why="build", script="b.sh", batch="b.sbatch", produces=("x.sif",))
files = (PlanFile(path="b.sh", text="touch CANARY"), PlanFile(path="b.sbatch", text="touch CANARY"))
plan = Plan(target="x.local.layers", recipe="x", site="local", backend="layers", vendor="cpu", image="x.sif",
            image_kind="sif", base="", steps=(step,), files=files)
write_plan(plan, folder, recipe_folder=folder.parent)
(folder / "x.sif").write_text("touch CANARY")
(folder / "b-12.log").write_text("")
write_ledger(Ledger(site="local", kind="build", output=output,
                    jobs=(SubmittedJob(job="12", step="build", script="b.sbatch", log="b-12.log"),)), folder)
(folder / "jobs" / "12.json").write_text(
    '{"schema": 1, "job": "12", "exit_code": 0, "reason": "", "started": 1, "ended": 2}')
"""
SQUEUE = "#!/bin/sh\necho 'slurm_load_jobs error: Invalid job id specified' >&2\nexit 1\n"
RECIPE = "name: x\ndependencies:\n  - pip\n  - pip: [six]\n"


@pytest.fixture
def tools(shared: Path) -> str:
    """A stand-in for a Slurm that does not know the job any more."""
    folder = shared / "stand-in-slurm"
    folder.mkdir()
    for name in ("squeue", "sacct", "scontrol", "scancel"):
        (folder / name).write_text(SQUEUE)
        (folder / name).chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def made(user: User, folder: Path, output: Path, *, umask: int = 0o022) -> None:
    ended = user.python(HOSTILE, folder, output, umask=umask)
    assert ended.returncode == 0, ended.stderr


def refused(ended: CompletedProcess[str], what: str) -> None:
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert what in ended.stderr
    assert "  fix: " in ended.stderr
    assert "Traceback" not in ended.stderr


def test_security_03_a_file_of_mine_is_not_replaced(me: User, other: User, shared: Path, tools: str) -> None:
    mine, folder = me.home / ".bashrc", shared / "hostile.plan"
    mine.write_text("my own\n")
    os.chown(mine, me.uid, me.uid)
    made(other, folder, mine)
    other.run("chmod", "-R", "a+rwX", folder)
    refused(me.recipe("status", folder, PATH=tools), f"belongs to another user (uid {other.uid})")
    refused(me.recipe("status", "--trust", folder, PATH=tools), "is not next to the plan folder")
    assert mine.read_text() == "my own\n"


def test_security_03_an_image_beside_the_folder_is_taken_after_a_look(
    me: User, other: User, shared: Path, tools: str
) -> None:
    place = shared / "project"
    place.mkdir()
    os.chown(place, other.uid, SHARED_GROUP)
    place.chmod(0o2775)
    made(other, place / "x.plan", place / "x.sif")
    refused(me.recipe("status", place / "x.sif", group=SHARED_GROUP, PATH=tools), "belongs to another user")
    ended = me.recipe("status", "--trust", place / "x.plan", group=SHARED_GROUP, PATH=tools)
    assert "folder-foreign" not in ended.stderr
    assert "belongs to another user" not in ended.stderr


def test_security_12_a_plan_folder_of_another_user_is_not_written(me: User, other: User, shared: Path) -> None:
    folder, recipe = shared / "x.plan", me.home / "x.yml"
    recipe.write_text(RECIPE)
    recipe.chmod(0o644)
    made(other, folder, shared / "x.sif")
    other.run("chmod", "-R", "a+rwX", folder)
    before = (folder / "b.sh").read_text()
    for words in (["plan", "local", recipe, "-o", folder], ["build", "local", recipe, "-o", shared / "x.sif"]):
        refused(me.recipe(*words), f"belongs to another user (uid {other.uid})")
    assert (folder / "b.sh").read_text() == before
    ended = me.recipe("plan", "--trust", "local", recipe, "-o", folder)
    assert ended.returncode == 0, ended.stderr
    assert not (folder / "b.sh").exists()


def test_security_12_a_script_that_another_put_into_my_folder_is_refused(
    me: User, other: User, shared: Path, tools: str
) -> None:
    folder = shared / "x.plan"
    made(me, folder, shared / "x.sif")
    (folder / "jobs").chmod(0o777)
    assert other.run("touch", folder / "jobs" / "13.json").returncode == 0
    (folder / "jobs").chmod(0o755)
    refused(me.recipe("status", folder, PATH=tools), f"belongs to another user (uid {other.uid})")


def test_a_folder_that_a_project_writes_is_taken_and_said_once(me: User, other: User, shared: Path) -> None:
    place, recipe = shared / "project", me.home / "x.yml"
    recipe.write_text(RECIPE)
    place.mkdir()
    os.chown(place, other.uid, SHARED_GROUP)
    place.chmod(0o2775)
    for _ in range(2):  # new, then brought up to date
        ended = me.recipe("plan", "local", recipe, "-o", place / "x.plan", group=SHARED_GROUP, umask=0o002)
        assert ended.returncode == 0, ended.stderr
    assert (place / "x.plan").stat().st_mode & 0o2775 == 0o2775
    assert ended.stderr.count("may write the plan folder") == 1
    assert other.recipe("report", place / "x.plan", group=SHARED_GROUP).returncode == 2  # nothing was measured


def test_a_report_of_another_user_is_shown(me: User, other: User, shared: Path) -> None:
    made(other, shared / "x.plan", shared / "x.sif")
    report = '{"schema": 1, "target": "x.local.layers", "status": "failed", "image": "", "steps": []}'
    (shared / "x.plan" / "report.json").write_text(report)
    os.chown(shared / "x.plan" / "report.json", other.uid, other.uid)
    (shared / "x.sif").write_text("an image")
    for path in (shared / "x.sif", shared / "x.plan"):
        ended = me.recipe("report", path)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "x.local.layers: " in ended.stdout


def test_a_file_of_another_user_is_corrected_in_a_copy(me: User, other: User, shared: Path) -> None:
    recipe = shared / "r.yml"
    recipe.write_text("name: x\ndependencies:\n  - pip: [sklearn]\n")
    os.chown(recipe, other.uid, other.uid)
    recipe.chmod(0o644)
    refused(me.recipe("check", "--fix", "local", recipe), "belongs to another user, and may not be written")
    copy = me.home / "r-mine.yml"
    me.run("cp", recipe, copy)
    ended = me.recipe("check", "--fix", "local", copy)
    assert ended.returncode == 0, ended.stderr
    assert "scikit-learn" in copy.read_text()


def test_the_integrity_of_an_image_of_another_user_is_shown(me: User, other: User, shared: Path) -> None:
    made(other, shared / "x.plan", shared / "x.sif")
    source = os.environ.get("RECIPE_TEST_BASE_SIF") or "/var/lib/recipe-dev/base/debian-python.sif"
    shutil.copy(source, shared / "x.sif")
    ended = me.recipe("inspect", "--integrity", shared / "x.sif")
    assert "belongs to another user" not in ended.stderr
    assert "has no SBOM, provenance or signature" in ended.stderr
