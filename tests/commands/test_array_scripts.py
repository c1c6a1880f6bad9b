"""Arrays of many kits: what their scripts ask for, run and refuse, and the list of kits beside them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from builder.compile.arrays import ArrayTask, make_array_plan
from builder.execute.build_options import JobOverrides
from builder.model.finding import ConfigError
from builder.model.plan import Plan, PlanFile, Step, StepJob
from builder.parse.site import load_site
from builder.slurm.status import ListedPlan, read_plan_list, write_plan_list
from builder.slurm.submit import SubmitOptions, Task, make_arguments, select_tasks

LUMI = load_site("lumi-g")


def kit(name: str, steps: dict[str, StepJob], *, lead: bool = False) -> ArrayTask:
    """A kit whose steps are given as name -> what its job asks for."""
    kinds = {"verify": "verify", "smoke": "smoke"}
    made, files = [], []
    if lead:
        made.append(Step(name="save", kind="save", why="save", script="0-save.sh"))
    for number, (step, asked) in enumerate(steps.items(), start=1):
        path = f"{number}-{step}.sbatch"
        kind = kinds.get(step, "build")
        made.append(Step(name=step, kind=kind, why=step, script=path, batch=path, job=asked))  # type: ignore[arg-type]
        files.append(PlanFile(path=path, text='#!/bin/bash\necho "$PWD $RECIPE_FOLDER"\n'))
    plan = Plan(
        target=f"{name}.lumi-g.cotainr", recipe=name, site="lumi-g", backend="cotainr", vendor="amd",
        image=f"{name}.sif", image_kind="sif", base="b", steps=tuple(made), files=tuple(files),
    )  # fmt: skip
    return ArrayTask(folder=f"{name}.plan", plan=plan)


SMALL = StepJob(name="own", minutes=60, notice=120, memory="64G", partition="small")
LARGE = StepJob(name="own", minutes=150, notice=120, memory="1000M", partition="small")
SHORT = StepJob(name="own", minutes=15, notice=120)
KITS = (
    kit("a", {"build-image": SMALL, "verify": SHORT, "smoke": SHORT}),
    kit("it's b", {"build-image": LARGE, "smoke": SHORT}),
)


def text_of(plan: Plan, name: str) -> str:
    return next(file.text for file in plan.files if file.path == name)


def test_an_array_a_step_in_their_order() -> None:
    plan = make_array_plan(LUMI, KITS)
    assert [step.script for step in plan.steps] == [
        "array-lumi-g-1-build-image.sbatch",
        "array-lumi-g-2-verify.sbatch",
        "array-lumi-g-3-smoke.sbatch",
    ]
    assert make_array_plan(LUMI, KITS) == plan


def test_it_requests_the_most_that_a_plan_needs() -> None:
    text = text_of(make_array_plan(LUMI, KITS, most=3), "array-lumi-g-1-build-image.sbatch")
    assert [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")] == [
        "job-name=lumi-g-build-image",
        "output=%x-%A_%a.log",
        "array=0-1%3",
        "open-mode=append",
        "signal=B:TERM@120",
        "nodes=1",
        "ntasks-per-node=1",
        "partition=small",
        "mem=64G",
        "time=02:30:00",
    ]


def task(folder: Path, script: str, number: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run an array's script as Slurm would, from its folder."""
    slurm = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_JOB_ID": "7", "SLURM_JOB_NAME": "lumi-g-verify"}
    own = {"PATH": os.environ["PATH"], "SLURM_SUBMIT_DIR": str(folder), **slurm, **environment}
    command = ["bash", str(folder / script)]
    return subprocess.run(command, env=own, cwd="/", capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The kits and their arrays, written."""
    place = tmp_path / "my kits"
    for one in KITS:
        (place / one.folder).mkdir(parents=True)
        (place / one.folder / "plan.json").write_text("{}")
        for file in one.plan.files:
            (place / one.folder / file.path).write_text(file.text)
    names = [ListedPlan(name=one.plan.recipe, site="lumi-g", folder=one.folder) for one in KITS]
    write_plan_list(place, plans=names, arrays=[make_array_plan(LUMI, KITS)])
    return place


def test_a_task_becomes_the_job_of_its_plan(folder: Path) -> None:
    done = task(folder, "array-lumi-g-1-build-image.sbatch", 1)
    assert done.returncode == 0, done.stderr
    log = folder / "it's b.plan" / "lumi-g-verify-7_1.log"
    place = folder / "it's b.plan"
    assert log.read_text() == f"{place} {place}\n"
    assert not list((folder / "a.plan").glob("*.log"))


def test_a_plan_without_the_step_has_nothing_to_do(folder: Path) -> None:
    done = task(folder, "array-lumi-g-2-verify.sbatch", 1)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_missing_plan_folders_are_reported(folder: Path) -> None:
    shutil.rmtree(folder / "a.plan")
    done = task(folder, "array-lumi-g-1-build-image.sbatch", 0)
    assert (done.returncode, "submit this script next to the folder a.plan" in done.stderr) == (2, True)


def test_scripts_are_clean(folder: Path) -> None:
    program = Path(sys.executable).with_name("shellcheck")
    scripts = sorted(str(path) for path in folder.glob("array-*"))
    words = [str(program if program.exists() else "shellcheck"), "--norc", *scripts]
    assert len(scripts) == 4
    assert subprocess.run(words, capture_output=True, text=True, check=False).stdout == ""


def test_by_hand_each_array_follows_the_build_before_it(folder: Path, tmp_path: Path) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text('#!/bin/bash\necho "$@" >>"$LOG"\necho "$(wc -l <"$LOG");cluster"\n')
    sbatch.chmod(0o755)
    log = tmp_path / "log"
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log)}
    command = ["bash", str(folder / "array-lumi-g.sh"), "--account=p_1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "array 1: build-image\narray 2: verify\narray 3: smoke\n"
    after = "--parsable --account=p_1 --dependency=aftercorr:{} --kill-on-invalid-dep=yes array-lumi-g-{}.sbatch"
    assert log.read_text().splitlines() == [
        "--parsable --account=p_1 array-lumi-g-1-build-image.sbatch",
        after.format(1, "2-verify"),
        after.format(2, "3-smoke"),
    ]


def test_what_has_to_be_done_before_is_said() -> None:
    text = text_of(make_array_plan(LUMI, [kit("a", {"smoke": SHORT}, lead=True)]), "array-lumi-g.sh")
    assert "# Run first, in every plan folder, on a machine with the programs: 'bash 0-save.sh'" in text


def test_some_tasks_of_an_array() -> None:
    plan = make_array_plan(LUMI, KITS)
    batch = select_tasks(SubmitOptions(kind="build", overrides=JobOverrides(account="p_1")), [0, 3], most=2)
    assert make_arguments(plan.steps[1], batch=batch, after=("12",)) == (
        "--job-name=lumi-g-verify",
        "--output=lumi-g-verify-%A_%a.log",
        "--array=0,3%2",
        "--account=p_1",
        "--dependency=aftercorr:12",
        "--kill-on-invalid-dep=yes",
        "array-lumi-g-2-verify.sbatch",
    )
    own = Task(number=0, plan=plan, folder=Path("a"), output=Path("a.sif"), steps=plan.steps[:1])
    assert (own.find_step("build-image"), own.find_step("smoke")) == (plan.steps[0], None)


def test_the_list_keeps_the_plans_of_other_calls(folder: Path) -> None:
    more = kit("c", {"build-image": SMALL})
    shutil.rmtree(folder / "a.plan")
    write_plan_list(
        folder, plans=[ListedPlan(name="c", site="lumi-g", folder="c.plan")], arrays=[make_array_plan(LUMI, [more])]
    )
    found = read_plan_list(folder)
    assert found is not None
    assert [one.name for one in found] == ["it's b", "c"]  # one whose folder is gone is no kit
    assert sorted(path.name for path in folder.glob("array-*")) == [
        "array-lumi-g-1-build-image.sbatch",
        "array-lumi-g.sh",
    ]
    assert read_plan_list(folder / "it's b.plan") is None


@pytest.mark.parametrize(
    "change", [{"folder": "../other"}, {"folder": "/etc"}, {"folder": ".."}, {"schema": 2}, {"kits": 7}]
)
def test_a_damaged_list_is_reported(folder: Path, change: dict[str, object]) -> None:
    path = folder / "kits.json"
    content = json.loads(path.read_text())
    if "folder" in change:
        content["kits"][0] |= change
    else:
        content |= change
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_plan_list(folder)


def test_plans_of_one_input_are_the_same_bytes() -> None:
    other = tuple(replace(one) for one in KITS)
    assert make_array_plan(LUMI, other).files == make_array_plan(LUMI, KITS).files
