"""Which steps of a submission run on this machine first, since the site has no job for them, and which are jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from builder.execute.asking import which
from builder.execute.preflight import find_programs
from builder.model.finding import Finding, ToolError, UnsupportedError
from builder.model.plan import Plan, Step

Steps = tuple[Step, ...]


def split_steps(
    plan: Plan, steps: Sequence[Step], *, folder: Path, environment: Mapping[str, str]
) -> tuple[Steps, Steps]:
    """Split into the leading steps that have no job, to run here, and the jobs after them.

    Raises UnsupportedError when a later step cannot be a job of the site, and ToolError when this machine has not both
    sbatch and what the leading steps need.
    """
    count = next((number for number, step in enumerate(steps) if step.batch), len(steps))
    lead, jobs = tuple(steps[:count]), tuple(steps[count:])
    jobless = [step for step in (jobs or lead) if not step.batch]
    if jobless:
        raise UnsupportedError(*[_no_job(plan, step) for step in jobless])
    if lead:
        _check_machine(lead, jobs[0], folder=folder, environment=environment)
    return lead, jobs


def _no_job(plan: Plan, step: Step) -> Finding:
    message = f"step '{step.name}' has no job on '{plan.site}': {step.why}"
    fix = "run it without --submit, or add a job 'build' to a site of your own"
    return Finding(code="step-no-job", message=message, fix=fix)


def _check_machine(lead: Steps, first: Step, *, folder: Path, environment: Mapping[str, str]) -> None:
    names = ", ".join(f"'{step.name}'" for step in lead)
    scripts = " and ".join(f"`bash {step.script}`" for step in lead)
    made = ", ".join(f"'{name}'" for step in lead for name in step.produces)
    if which("sbatch", env=environment) is None:
        message = f"there is no 'sbatch' on PATH: {names} can run here, the jobs after it cannot"
        fix = f"write '{folder.name}' with `recipe plan`, run {scripts} in it, copy it to the site, "
        fix += f"and go on there with --from {first.name} --submit"
        raise ToolError(Finding(code="no-program", message=message, fix=fix))
    try:
        find_programs(lead, environment=environment)
    except ToolError as error:
        elsewhere = f"or run {scripts} of '{folder}' where it is, put {made} there, and submit with --from {first.name}"
        raise ToolError(
            *[
                Finding(code=finding.code, message=finding.message, fix=f"{finding.fix}; {elsewhere}")
                for finding in error.findings
            ]
        ) from None
