"""A second build as jobs, to compare: the same job scripts once more, in a copy of the plan below the plan folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from builder.execute.image.again import Verified, again_steps, compared, copy_plan, fresh_cache, not_built, note_again
from builder.execute.jobs.ledger import Ledger
from builder.execute.jobs.steps import JobSteps
from builder.execute.names import AGAIN, JOBS, PLAN_FILE
from builder.execute.run import Lead, Run
from builder.execute.tree import remove_tree
from builder.model.finding import ConfigError, Finding
from builder.model.plan import Plan, Step


def check_jobs_again(plan: Plan) -> None:
    """Raise ConfigError where a step of a second build could not be a job."""
    jobless = [step.name for step in again_steps(plan) if not step.batch]
    if jobless:
        message = (
            f"--verify with --submit: step '{jobless[0]}' has no job on '{plan.site}', and a second build needs one"
        )
        fix = "leave out --verify, or leave out --submit"
        raise ConfigError(Finding(code="verify-job", message=message, fix=fix))


def name_again(step: Step) -> str:
    """The name that a step has in a second build."""
    return f"{AGAIN}-{step.name}"


def prepare_again(plan: Plan, folder: Path, *, environment: Mapping[str, str]) -> dict[str, str]:
    """Copy a plan for a second build, with a cache of downloads alone; the variables of its jobs. Raises OSError."""
    place = folder / AGAIN
    remove_tree(place)
    place.mkdir()
    copy_plan(plan, folder, place)
    shutil.copy2(folder / PLAN_FILE, place / PLAN_FILE)
    (folder / JOBS).mkdir(exist_ok=True)
    (place / JOBS).symlink_to(Path("..", JOBS))  # where whoever follows looks for the records
    return fresh_cache(environment, place=place / "cache")


def was_submitted(ledger: Ledger, plan: Plan) -> tuple[Step, ...]:
    """The steps of the second build, with their products as seen from the plan folder; none where there is no such."""
    return tuple(
        replace(step, name=name_again(step), produces=tuple(f"{AGAIN}/{name}" for name in step.produces))
        for step in again_steps(plan)
        if ledger.of(name_again(step))
    )


def judge_again(run: Run, steps: tuple[Step, ...], *, carrier: JobSteps, image: Path) -> None:
    """Follow the jobs of a second build, and note what they gave."""
    plan = replace(run.plan, image=f"{AGAIN}/{run.plan.image}", steps=steps)
    second = Run(
        plan=plan,
        folder=run.folder,
        output=run.folder / AGAIN / "again.sif",
        carrier=carrier,
        progress=run.progress,
        signals=run.signals,
        versions=run.versions,
        environment=run.environment,
        went_before=Lead(results=tuple(run.results)),
        origin=run.origin,
    )
    run.progress.note("the second build, to compare")

    def build() -> Verified:
        if not second.lead(steps):
            last = next(step for step in steps if step.name == second.results[-1].name)
            return not_built(second, log=carrier.log(last))
        taken = sum(carrier.ends[step.name].seconds for step in steps)
        return compared(run, second, image=image, seconds=taken)

    note_again(run, build)


def remove_again(folder: Path) -> None:
    """Remove what a second build was made in."""
    remove_tree(folder / AGAIN)
