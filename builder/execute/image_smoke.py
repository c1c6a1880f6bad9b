"""The smoke test of an image that exists, without the rest of a build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from builder.execute.build_options import Signals
from builder.execute.judgement import judge_results, read_results
from builder.execute.progress import Progress
from builder.model.mask import Mask
from builder.model.plan import Plan
from builder.model.report import SmokeCheck, StepResult
from builder.system.layout import LOGS
from builder.system.process import run
from builder.system.scratch import RESULTS


def test_image(
    plan: Plan, *, folder: Path, environment: Mapping[str, str], progress: Progress
) -> tuple[SmokeCheck, ...]:
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
        status = "ok" if ended.exit_code == 0 else "failed"
        progress.end_step(
            StepResult(
                name=step.name,
                status="ok" if status == "ok" else "failed",
                seconds=ended.seconds,
                exit_code=ended.exit_code,
                log=str(log),
            )
        )
    finally:
        progress.end()
    return judge_results(read_results(step, folder), expect=plan.expect)
