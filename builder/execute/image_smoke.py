"""The smoke test of an image that exists, without the rest of a build."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.execute.build_options import Signals
from builder.execute.judgement import judge_answer, judge_results, note_cpu, read_results, select_first_causes
from builder.execute.progress import Progress
from builder.model.finding import Finding
from builder.model.mask import Mask
from builder.model.plan import Plan, Step
from builder.model.report import SmokeCheck, StepResult
from builder.system.layout import LOGS
from builder.system.process import run
from builder.system.scratch import RESULTS


@dataclass(frozen=True, kw_only=True)
class ImageVerdict:
    """The checks of an image, those that failed for a reason of their own, and what is to be said besides."""

    checks: tuple[SmokeCheck, ...]
    causes: tuple[SmokeCheck, ...]
    findings: tuple[Finding, ...] = ()


def test_image(plan: Plan, *, folder: Path, environment: Mapping[str, str], progress: Progress) -> ImageVerdict:
    """Run a plan's smoke step in the image that RECIPE_IMAGE of `environment` names, and judge what it left."""
    (step,) = plan.steps
    log = folder / LOGS / "smoke.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    progress.begin(title=f"{plan.target}: {plan.image}", total=1)
    progress.begin_step(step, number=1)
    try:
        with Signals().catch():
            ended = run(
                ["bash", step.script],
                cwd=folder,
                env={name: value for name, value in environment.items() if name != RESULTS},
                log=log,
                on_line=progress.show_line,
                on_tick=progress.refresh,
                mask=Mask(environment),
            )
        verdict = _judge(plan, step, folder=folder, exit_code=ended.exit_code)
        progress.end_step(
            StepResult(
                name=step.name,
                status="failed" if verdict.causes else "ok",
                seconds=ended.seconds,
                exit_code=ended.exit_code,
                log=str(log),
            )
        )
    finally:
        progress.end()
    return verdict


def _judge(plan: Plan, step: Step, *, folder: Path, exit_code: int) -> ImageVerdict:
    """The one verdict: an exit code that no check explains is a check that failed."""
    results = read_results(step, folder)
    checks = (*judge_answer(step, folder), *judge_results(results, expect=plan.expect))
    if exit_code and not select_first_causes(checks):
        checks = (*checks, SmokeCheck(name="script: exit code", ok=False, measured=str(exit_code), expected="0"))
    note = note_cpu(results, vendor=plan.vendor, site=plan.site)
    return ImageVerdict(checks=checks, causes=select_first_causes(checks), findings=(note,) if note else ())
