"""Steps without a job: what runs here before the jobs, and what is said where that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.rows import rows

from builder.execute.execution import LocalPrefix
from builder.model.finding import BuilderError, ToolError, UnsupportedError
from builder.model.plan import Plan
from builder.model.report import StepResult
from builder.slurm.ledger import Ledger, SubmittedJob, forget_ledger, read_ledger, write_ledger
from builder.slurm.submit import split_steps

PlanOf = Callable[..., Plan]
ARCHIVE = {"text": "", "produces": ("x.tar",), "programs": ("docker",)}
JOB = {"text": "", "batch": "x.sbatch"}


def split(plan: Plan, *, path: Path, programs: tuple[str, ...] = ()) -> tuple[list[str], list[str]]:
    for name in programs:
        (path / name).write_text("#!/bin/sh\n")
        (path / name).chmod(0o755)
    lead, jobs = split_steps(plan, plan.steps, folder=path, environment={"PATH": str(path)})
    return [step.name for step in lead], [step.name for step in jobs]


def test_leading_steps_without_a_job_run_here(plan_of: PlanOf, tmp_path: Path) -> None:
    plan = plan_of({"build": ARCHIVE, "convert": JOB, "smoke": JOB})
    assert split(plan, path=tmp_path, programs=("sbatch", "docker")) == (["build"], ["convert", "smoke"])


def test_with_jobs_alone_nothing_runs_or_is_searched_here(plan_of: PlanOf, tmp_path: Path) -> None:
    assert split(plan_of({"build": JOB, "smoke": JOB}), path=tmp_path) == ([], ["build", "smoke"])


@rows(
    ("steps", "programs", "error", "said"),
    [
        ({"build": ARCHIVE, "smoke": {"text": ""}}, (), UnsupportedError, "add a job 'build'"),
        ({"build": JOB, "verify": {"text": ""}}, (), UnsupportedError, "'verify' has no job"),
        ({"build": ARCHIVE, "convert": JOB}, ("docker",), ToolError, "go on there with --from convert --submit"),
        ({"build": ARCHIVE, "convert": JOB}, ("sbatch",), ToolError, "put 'x.tar' there, and submit with --from conv"),
    ],
)
def test_what_cannot_be_says_what_to_do(
    plan_of: PlanOf, tmp_path: Path, steps: dict, programs: tuple[str, ...], error: type[BuilderError], said: str
) -> None:
    with pytest.raises(error) as caught:
        split(plan_of(steps), path=tmp_path, programs=programs)
    assert any(said in f"{finding.message} {finding.fix}" for finding in caught.value.findings)


def test_what_ran_here_is_kept_with_the_jobs(tmp_path: Path) -> None:
    result = StepResult(name="build", status="ok", seconds=1.5, exit_code=0, log="logs/build.log")
    lead = LocalPrefix(results=(result,), proof={"torch": "2"}, versions={"docker": "27"}, began=100.0)
    job = SubmittedJob(job="7", step="convert", script="c.sbatch", log="c-7.log", submitted=150.0)
    ledger = Ledger(site="s", kind="build", output="/x.sif", jobs=(job,), lead=lead)
    write_ledger(ledger, tmp_path)
    assert (read_ledger(tmp_path), ledger.began) == (ledger, 100.0)
    assert Ledger(site="s", kind="build", output="/x.sif", jobs=(job,)).began == 150.0
    forget_ledger(tmp_path)
    assert read_ledger(tmp_path) is None
