"""One execution under way: the steps, the image, the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from builder.execute.causes.own import PROOF
from builder.execute.environment import step_environment
from builder.execute.explain import UNKNOWN, explain
from builder.execute.judgement import failed, judge_results, proof_in, read_results
from builder.execute.names import LOGS
from builder.execute.options import Interrupted, Options, Signals
from builder.execute.process import Ended, run
from builder.execute.product import faults, look
from builder.execute.progress import Progress, duration
from builder.execute.publish import measure, publish
from builder.model.finding import BuilderError, Finding, Place
from builder.model.plan import Plan, Step
from builder.model.report import Report, SmokeCheck, Status, StepResult

RunStatus = Literal["passed", "failed", "smoke-failed", "interrupted"]


def failed_copy_of(output: Path) -> Path:
    """Where an image goes that the smoke test failed in."""
    return output.with_name(f"{output.name}.failed")


@dataclass(kw_only=True)
class Run:
    """What an execution knows and has found out so far; `status` is None until something is known."""

    plan: Plan
    folder: Path
    output: Path
    options: Options
    progress: Progress
    signals: Signals
    scratch: Path
    versions: Mapping[str, str]
    mask: Callable[[str], str]
    status: RunStatus | None = None
    image: Path | None = None
    image_bytes: int | None = None
    image_sha256: str | None = None
    results: list[StepResult] = field(default_factory=list)
    checks: list[SmokeCheck] = field(default_factory=list)
    smoke: dict[str, Any] = field(default_factory=dict)
    proof: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    _number: int = 0
    _under_way: tuple[Step, float] | None = None

    def go(self, steps: Sequence[Step]) -> None:
        """Run the steps, put the image into its place and settle the status."""
        build = [step for step in steps if step.kind != "smoke"]
        built = all(self._step(step) for step in build) and self._image_is_there()
        if not built:
            # A build that the proof of its torch stopped is an image that failed, not an engine that did.
            disproved = any(finding.code in PROOF for finding in self.findings)
            self.status = "smoke-failed" if disproved else "failed"
            return
        # A smoke test says something even after another has failed.
        proven = all([self._step(step) for step in steps if step.kind == "smoke"])  # noqa: C419
        self.status = self._publish(proven=proven)

    def interrupted(self, stop: Interrupted) -> None:
        """Note that a signal stopped it."""
        if self._under_way is not None:
            step, started = self._under_way
            self._ends(step, started=started, status="interrupted", exit_code=stop.exit_code)
        self.status = "interrupted"
        fix = "start it again; --from STEP uses what the finished steps have left"
        self.findings.append(Finding(code="interrupted", message=f"the build was stopped by {stop}", fix=fix))

    def report(self, seconds: float) -> Report:
        """Say what happened, a line for every step of the plan."""
        done = {result.name: result for result in self.results}
        idle = {step.name: StepResult(name=step.name, status="skipped", seconds=0.0) for step in self.plan.steps}
        return Report(
            target=self.plan.target,
            status=self.status or "failed",
            image=str(self.image or ""),
            steps=tuple({**idle, **done}.values()),
            checks=tuple(self.checks),
            image_bytes=self.image_bytes,
            image_sha256=self.image_sha256,
            seconds=round(seconds, 3),
            versions=self.versions,
            smoke=self.smoke,
            findings=tuple(self.findings),
            proof=self.proof,
        )

    def _step(self, step: Step) -> bool:
        """Run one step and note how it ended; False when it failed."""
        self._number += 1
        self.progress.step_begins(step, number=self._number)
        started = time.monotonic()
        self._under_way = (step, started)
        self._drop_link(step)
        before = {name: look(self.folder / name) for name in step.produces}
        try:
            ended = self._script(step)
        except BuilderError as error:
            return self._ends(step, started=started, status="failed", finding=error.findings[0])
        self.proof = proof_in(ended.tail) or self.proof
        missing = faults(self.folder, step.produces, before=before)
        finding = self._fault(step, ended, missing=missing)
        if step.kind == "smoke":
            finding = self._judge(step, missing=missing) or finding
        status: Status = "failed" if finding else "ok"
        return self._ends(step, started=started, status=status, exit_code=ended.exit_code, finding=finding)

    def _drop_link(self, step: Step) -> None:
        """Remove the link to the published image: a step that writes in place must not write through it."""
        image = self.folder / self.plan.image
        if self.plan.image in step.produces and image.is_symlink():
            image.unlink()

    def _script(self, step: Step) -> Ended:
        log = self._log(step)
        with suppress(OSError):
            log.replace(log.with_suffix(".previous.log"))
        return run(
            ["bash", step.script],
            cwd=self.folder,
            env=step_environment(self.options.environment, scratch=self.scratch),
            log=log,
            on_line=self.progress.line,
            on_tick=self.progress.tick,
            mask=self.mask,
            timeout=self.options.step_seconds,
        )

    def _fault(self, step: Step, ended: Ended, *, missing: str) -> Finding | None:
        log = str(self._log(step))
        if ended.timed_out:
            message = f"step '{step.name}' was ended after {duration(ended.seconds)}, the longest a step may take"
            return Finding(code="step-timeout", message=message, fix="allow it more time", at=Place(file=log))
        if ended.exit_code:
            return explain(step, ended.tail, ended.exit_code, log=log)
        if not missing:
            return None
        known = explain(step, ended.tail, 0, log=log)
        if known.code != UNKNOWN:
            return known  # an engine that says what is wrong and exits 0: cotainr at a prompt
        message = f"step '{step.name}' ended with exit code 0 but {missing}"
        return Finding(code="no-product", message=message, fix=f"read its log, '{log}'", at=Place(file=log))

    def _judge(self, step: Step, *, missing: str) -> Finding | None:
        """Judge what a smoke step measured; results of an earlier run are no results."""
        results = {} if missing else read_results(step, self.folder)
        checks = judge_results(results, expect=self.plan.expect)
        self.smoke.update(results)
        self.checks.extend(checks)
        bad = failed(checks)
        if not bad:
            return None
        log = str(self._log(step))
        message = f"the smoke test '{step.name}' failed: {bad}"
        return Finding(code="smoke-failed", message=message, fix=f"read its log, '{log}'", at=Place(file=log))

    def _ends(
        self,
        step: Step,
        *,
        started: float,
        status: Status,
        exit_code: int | None = None,
        finding: Finding | None = None,
    ) -> bool:
        seconds = round(time.monotonic() - started, 3)
        log = self._log(step).relative_to(self.folder)
        result = StepResult(
            name=step.name, status=status, seconds=seconds, exit_code=exit_code, log=str(log), finding=finding
        )
        self._under_way = None
        self.results.append(result)
        if finding is not None:
            self.findings.append(finding)
        self.progress.step_ends(result)
        return status == "ok"

    def _log(self, step: Step) -> Path:
        return self.folder / LOGS / f"{step.name}.log"

    def _image_is_there(self) -> bool:
        image = self.folder / self.plan.image
        if image.exists():
            return True
        message = f"all steps have ended, and there is no image '{self.plan.image}'"
        fix = "this plan is faulty: write it again with `recipe plan`, and report this"
        self.findings.append(Finding(code="no-image-made", message=message, at=Place(file=str(image)), fix=fix))
        return False

    def _publish(self, *, proven: bool) -> RunStatus:
        """Put the image where it belongs; one that the smoke test failed in never replaces an older output."""
        image = self.folder / self.plan.image
        in_place = self.output.exists() and image.samefile(self.output)
        target = self.output if proven or in_place else failed_copy_of(self.output)
        try:
            publish(image, target, undisturbed=self.signals.held)
            self.image = target
            self.image_bytes, self.image_sha256 = measure(target)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            message = f"the image could not be put at '{target}': {reason}; it is still at '{image}'"
            fix = "make room and rights there, then start again with --from and the last step"
            self.findings.append(Finding(code="not-published", message=message, fix=fix, at=Place(file=str(target))))
            return "failed"
        if not proven:
            fix = f"look into it, or test it again with --from {self._first_smoke()}"
            message = f"the image that failed was kept as '{target}'"
            self.findings.append(Finding(code="image-kept", message=message, fix=fix, level="note"))
        return "passed" if proven else "smoke-failed"

    def _first_smoke(self) -> str:
        return next((step.name for step in self.plan.steps if step.kind == "smoke"), "")
