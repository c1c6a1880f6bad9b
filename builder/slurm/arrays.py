"""Submit the arrays of many kits; each kit keeps a ledger of its own tasks, as if it had been submitted alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from builder.execute.run import Lead
from builder.execute.runner import make_room
from builder.inspect.origin import Origin
from builder.model.finding import BuilderError
from builder.model.plan import Plan, Step
from builder.slurm.client import Slurm
from builder.slurm.state import Ledger, Submitted, write_ledger
from builder.slurm.submit import Batch, Undisturbed, arguments, job_of, variables_of


@dataclass(frozen=True, kw_only=True)
class Task:
    """One kit in the arrays: the number of its task, and those of its steps that are to run."""

    number: int
    plan: Plan
    folder: Path
    output: Path
    steps: tuple[Step, ...]
    lead: Lead = field(default_factory=Lead)
    origin: Origin = field(default_factory=Origin)

    def step(self, name: str) -> Step | None:
        """Its own step of a name."""
        return next((step for step in self.steps if step.name == name), None)


def submit_arrays(
    plan: Plan,
    steps: Sequence[Step],
    tasks: Sequence[Task],
    *,
    batch: Batch,
    folder: Path,
    slurm: Slurm,
    undisturbed: Undisturbed,
) -> dict[int, Ledger]:
    """Submit the steps of an array plan for some of its kits; the ledger of each, by the number of its task.

    The tasks of a build step follow those of the one before it, every smoke test those of the last. What is in the
    queue when one of the arrays is refused is cancelled. Raises StepError, or OSError when a folder cannot be written.
    """
    ledgers = {
        task.number: Ledger(
            site=plan.site, kind=batch.kind, output=str(task.output), lead=task.lead, origin=task.origin
        )
        for task in tasks
    }
    arrays: list[str] = []
    after: tuple[str, ...] = ()
    try:
        for step in steps:
            with undisturbed():
                number = _submit(step, tasks, after, ledgers, batch=batch, folder=folder, slurm=slurm)
            arrays.append(number)
            if step.kind != "smoke":
                after = (number,)
    except (BuilderError, OSError):
        slurm.cancel(arrays)
        raise
    return ledgers


def _submit(
    step: Step,
    tasks: Sequence[Task],
    after: tuple[str, ...],
    ledgers: dict[int, Ledger],
    *,
    batch: Batch,
    folder: Path,
    slurm: Slurm,
) -> str:
    """Submit one array and note its tasks in the ledgers; returns its number."""
    before = {task.number: make_room(task.plan, own, task.folder) for task in tasks if (own := task.step(step.name))}
    argv = arguments(step, batch=batch, after=after)
    number = slurm.submit(argv, folder=folder, step=step.name, more=variables_of(batch, folder))
    for task in tasks:
        own = task.step(step.name)
        if own is None:
            continue
        last = [job.job for job in ledgers[task.number].jobs if job.job.partition("_")[0] in after]
        job = Submitted(
            job=f"{number}_{task.number}",
            step=own.name,
            script=own.batch,
            log=f"{job_of(step).name}-{number}_{task.number}.log",
            after=tuple(last),
            submitted=time.time(),
            argv=("sbatch", *argv),
            before=before[task.number],
        )
        ledgers[task.number] = ledgers[task.number].with_job(job)
        write_ledger(ledgers[task.number], task.folder)
    return number


def of_tasks(batch: Batch, numbers: Sequence[int], *, most: int) -> Batch:
    """For some tasks only: a task that has nothing to do is left out of every array."""
    return replace(batch, array=f"{','.join(map(str, numbers))}%{most}")
