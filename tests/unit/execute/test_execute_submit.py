"""The one submitter: a plan as a chain of jobs, several as a chain of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from builder.execute.build_options import JobOverrides
from builder.execute.plan_folder import write_plan
from builder.model.finding import Finding, StepError
from builder.model.plan import Plan, Step, StepJob
from builder.slurm.client import Slurm
from builder.slurm.ledger import Ledger, read_ledger
from builder.slurm.submit import SubmitOptions, Task, select_tasks, submit

PlanOf = Callable[..., Plan]
STEPS = {
    name: {"text": "", "kind": kind, "batch": f"{name}.sbatch", "job": StepJob(name=f"demo-{name}")}
    for name, kind in (("build", "build"), ("one", "smoke"), ("two", "smoke"))
}


class StandInSlurm(Slurm):
    """Numbers what is submitted from 7 on, and refuses the step `refused`."""

    def __init__(self, *, refused: str = "") -> None:
        super().__init__({})
        self.refused, self.said, self.cancelled = refused, list[tuple[str, ...]](), list[str]()

    def submit(self, arguments: Sequence[str], *, folder: Path, step: str, more: Mapping[str, str]) -> str:
        del folder, more
        if step == self.refused:
            raise StepError(Finding(code="job-refused", message="no", fix="no"))
        self.said.append(tuple(arguments))
        return str(6 + len(self.said))

    def cancel(self, jobs: Sequence[str]) -> None:
        self.cancelled += jobs


def tasks_of(plan_of: PlanOf, folder: Path, count: int) -> list[Task]:
    tasks = []
    for number in range(count):
        place = folder / f"{number}.plan"
        plan = plan_of(STEPS)
        write_plan(plan, place, recipe_folder=folder)
        tasks.append(
            Task(number=number, plan=plan, folder=place, output=place.with_suffix(".sif"), steps=tuple(plan.steps))
        )
    return tasks


def submitted(slurm: StandInSlurm, tasks: list[Task], folder: Path, *, options: SubmitOptions) -> list[Ledger | None]:
    steps: tuple[Step, ...] = tasks[0].steps
    submit(steps, tasks, batch=options, folder=folder, slurm=slurm, undisturbed=nullcontext)
    return [read_ledger(task.folder) for task in tasks]


OPTIONS = SubmitOptions(kind="build", overrides=JobOverrides())


def test_one_plan_is_a_chain_of_jobs(plan_of: PlanOf, tmp_path: Path) -> None:
    slurm = StandInSlurm()
    (ledger,) = submitted(slurm, tasks_of(plan_of, tmp_path, 1), tmp_path / "0.plan", options=OPTIONS)
    assert ledger is not None
    assert [(job.job, job.step, job.after, job.log) for job in ledger.jobs] == [
        ("7", "build", (), "demo-build-7.log"),
        ("8", "one", ("7",), "demo-one-8.log"),
        ("9", "two", ("7",), "demo-two-9.log"),  # after the build, not after the other test
    ]
    assert "--dependency=afterok:7" in slurm.said[2]


def test_several_are_a_chain_of_arrays(plan_of: PlanOf, tmp_path: Path) -> None:
    slurm, tasks = StandInSlurm(), tasks_of(plan_of, tmp_path, 3)
    tasks[1] = replace(tasks[1], steps=tasks[1].steps[1:])  # its image is there: it has no build
    options = select_tasks(OPTIONS, [task.number for task in tasks], most=2)
    ledgers = submitted(slurm, tasks, tmp_path, options=options)
    assert [[(job.job, job.after) for job in ledger.jobs] for ledger in ledgers if ledger] == [
        [("7_0", ()), ("8_0", ("7_0",)), ("9_0", ("7_0",))],
        [("8_1", ()), ("9_1", ())],
        [("7_2", ()), ("8_2", ("7_2",)), ("9_2", ("7_2",))],
    ]
    assert ledgers[2] is not None
    assert ledgers[2].jobs[0].log == "demo-build-7_2.log"
    assert {"--array=0,1,2%2", "--dependency=aftercorr:7"} <= set(slurm.said[1])


@pytest.mark.parametrize(("refused", "cancelled", "jobs"), [("build", [], None), ("two", ["7", "8"], ["7_0", "8_0"])])
def test_what_is_in_the_queue_is_cancelled_with_what_is_refused(
    plan_of: PlanOf, tmp_path: Path, refused: str, cancelled: list[str], jobs: list[str] | None
) -> None:
    slurm, tasks = StandInSlurm(refused=refused), tasks_of(plan_of, tmp_path, 2)
    with pytest.raises(StepError):
        submitted(slurm, tasks, tmp_path, options=select_tasks(OPTIONS, [0, 1], most=2))
    assert slurm.cancelled == cancelled
    ledger = read_ledger(tasks[0].folder)
    assert (None if ledger is None else [job.job for job in ledger.jobs]) == jobs
