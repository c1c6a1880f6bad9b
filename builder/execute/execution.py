"""The state of one execution: what its steps have left, the image, the verdict; it publishes and reports."""

from __future__ import annotations

import errno
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from builder.audit import CODE as AUDIT
from builder.audit import REPORT as AUDIT_REPORT
from builder.execute.build_options import SignalInterrupt, Signals
from builder.execute.progress import Progress
from builder.execute.signature import Signer
from builder.execute.step_runner import StepRunner, find_output_faults
from builder.inspect.attestations import name_attestations
from builder.inspect.origin import Origin, compute_identity
from builder.model.finding import BuilderError, Finding, Location
from builder.model.plan import Plan, Step
from builder.model.report import Report, SmokeCheck, Status, StepResult
from builder.model.text import escape_line, format_clock
from builder.system.files import remove_tree
from builder.system.layout import PROOF, name_failed_copy
from builder.system.process import ProcessResult
from builder.system.publish import Digest, measure_image, publish
from builder.system.step_output import Event
from builder.system.trust import is_published, link_error

if TYPE_CHECKING:
    from builder.execute.image_scan import SbomTask

WIDTH = 40  # columns for the name of what is being done
RunStatus = Literal["passed", "failed", "smoke-failed", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class LocalPrefix:
    """What came of the steps that ran before others were submitted; `began` in seconds since 1970."""

    results: tuple[StepResult, ...] = ()
    proof: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    began: float = 0.0


@dataclass(kw_only=True)
class Execution:
    """What an execution knows and has found out so far; `status` is None until something is known."""

    plan: Plan
    folder: Path
    output: Path
    runner: StepRunner
    progress: Progress
    signals: Signals
    versions: Callable[[float], Mapping[str, str]]  # answers, waited for so many seconds
    environment: Mapping[str, str] = field(default_factory=dict)
    signer: Signer | None = None
    status: RunStatus | None = None
    image: Path | None = None
    image_bytes: int | None = None
    image_sha256: str | None = None
    results: list[StepResult] = field(default_factory=list)
    checks: list[SmokeCheck] = field(default_factory=list)
    smoke: dict[str, Any] = field(default_factory=dict)
    proof: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    verified: Mapping[str, Any] = field(default_factory=dict)
    sbom: str = ""
    prefix: LocalPrefix = field(default_factory=LocalPrefix)
    origin: Origin = field(default_factory=Origin)
    _inside: SbomTask | None = None
    began: float = field(default_factory=time.time)
    _number: int = 0
    _under_way: tuple[Step, float] | None = None
    _error: Event | None = None  # the last one that a program of the step has reported

    def __post_init__(self) -> None:
        places = (self.output, name_failed_copy(self.output), *name_attestations(self.output))
        self.new = frozenset(path for path in places if not os.path.lexists(path))
        from builder.execute.image_scan import BackgroundScan  # read by a build that runs, as is the judgement

        self._scan = BackgroundScan(self.plan, folder=self.folder, digest=self.origin.plan)
        self.results += self.prefix.results
        self.proof = dict(self.prefix.proof)
        self._number = len(self.results)

    def run_all(self, steps: Sequence[Step]) -> None:
        """Run the steps, put the image into its place and settle the status."""
        build = [step for step in steps if step.kind != "smoke"]
        if not (self.run_steps(build) and self._has_image()):
            if self.status == "smoke-failed" and self._find_last_kind() == "verify":
                self.status = self._publish(proven=False)
            return
        self._tell_unproven()
        self._inside = self.look_inside()  # while the smoke test runs
        # A smoke test says something even after another has failed.
        proven = all([self._run_step(step) for step in steps if step.kind == "smoke"])  # noqa: C419
        self.status = self._publish(proven=proven)

    def run_steps(self, steps: Sequence[Step]) -> bool:
        """Run steps that others follow; False, and a settled status, when one of them failed."""
        if all(self._run_step(step) for step in steps):
            return True
        # A build that the proof of its torch stopped is an image that failed, not an engine that did.
        disproved = any(finding.code in PROOF for finding in self.findings)
        self.status = "smoke-failed" if disproved else "failed"
        self._note_draft()
        return False

    def _note_draft(self) -> None:
        """Say where the draft is that the audit of its packages kept from being the image."""
        draft = self.folder / f"{self.plan.image}.failed"
        if any(finding.code == AUDIT for finding in self.findings) and draft.exists():
            message = f"the image that failed was kept as '{draft}'"
            fix = f"see '{self.folder / AUDIT_REPORT}', the verdict on each package"
            self.findings.append(Finding(code="image-kept", message=message, fix=fix, level="note"))

    def look_inside(self) -> SbomTask:
        """Begin to read what is in the image; one that is in use already stays as it is."""
        return self._scan.take_scan(put=not self._is_output(self.folder / self.plan.image))

    def _tell_unproven(self) -> None:
        """Say that a torch does not say which GPUs it was built for, where that was asked."""
        wanted = self.plan.expect.get("architecture")
        if wanted and "torch" in self.proof and not self.proof.get("architectures"):
            message = f"the image's torch does not say which GPUs it was built for: {wanted} is not proven"
            fix = "run the smoke test on a GPU node"
            self.findings.append(Finding(code="architecture-unknown", message=message, fix=fix, level="note"))
            self.progress.note(f"{message}; {fix}")

    def note_interrupt(self, stop: SignalInterrupt) -> None:
        """Note that a signal stopped it."""
        if self._under_way is not None:
            step, started = self._under_way
            self._end_step(step, started=started, status="interrupted", exit_code=stop.exit_code)
        if self.status != "passed":  # the image is in its place: only the second build was stopped
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
            versions={**self.prefix.versions, **self.versions(0.5 if self.status == "interrupted" else 10.0)},
            smoke=self.smoke,
            findings=tuple(self.findings),
            proof=self.proof,
            verified=self.verified,
            base=self.plan.base,
            vendor=self.plan.vendor,
            tool=self.plan.tool,
            plan=self.origin.plan,
            sources=self.origin.sources,
            identity=compute_identity(self.image) if self.image else "",
            started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.began)),
        )

    def _run_step(self, step: Step) -> bool:
        """Run one step and note how it ended; False when it failed."""
        self._number += 1
        self.progress.begin_step(step.name_output(self.plan.image, self.output.name), number=self._number)
        started = time.monotonic()
        self._under_way, self._error = (step, started), None
        try:
            before = dict(self.runner.prepare_step(step))
            ended = self.runner.run_step(step, on_event=self._note_event)
        except BuilderError as error:
            return self._end_step(step, started=started, status="failed", finding=error.findings[0])
        if step.kind == "verify":
            from builder.execute.judgement import read_proof

            self.proof = read_proof(self.folder) or self.proof
        missing = find_output_faults(self.folder, step.produces, before=before)
        known = self.runner.find_fault(step, ended) if ended.exit_code else None
        finding = known or self._find_fault(step, ended, missing=missing)
        if step.kind == "smoke":
            judged = self._judge(step, missing=missing, exit_code=ended.exit_code or 0)
            # Of a job that was stopped no number says why, nor of an image whose files cannot be read.
            unread = finding if finding and finding.code == "base-damaged" else None
            finding = known or unread or judged or finding
        status: Status = "failed" if finding else "ok"
        return self._end_step(step, started=started, status=status, exit_code=ended.exit_code, finding=finding)

    def _note_event(self, event: Event) -> None:
        """Note what a program of the step reports."""
        if event.name == "whole":
            self._scan.note_whole_image(event.get_text("image"))
        elif event.name == "answer":
            from builder.execute.judgement import find_answer

            self.proof = dict(event.get_table("found") or find_answer(event.get_table("answer"))) or self.proof
        elif event.name == "error":
            self._error = event
        elif event.name == "progress":
            what = escape_line(event.get_text("what"))[:WIDTH]
            self.progress.show_amount(what, done=event.count("done"), total=event.count("total"))

    def _find_fault(self, step: Step, ended: ProcessResult, *, missing: str) -> Finding | None:
        log = str(self.runner.log(step))
        if ended.timed_out:
            message = f"step '{step.name}' was ended after {format_clock(ended.seconds)}, the longest a step may take"
            return Finding(code="step-timeout", message=message, fix="allow it more time", at=Location(file=log))
        if not ended.exit_code and not missing:
            return None
        from builder.execute.diagnose import UNKNOWN, explain  # read when something failed, which is seldom

        if ended.exit_code:
            return explain(step, ended.tail, ended.exit_code, log=log, error=self._error, base=self.plan.base)
        known = explain(step, ended.tail, 0, log=log, error=self._error)
        if known.code != UNKNOWN:
            return known  # an engine that says what is wrong and exits 0: cotainr at a prompt
        message = f"step '{step.name}' ended with exit code 0 but {missing}"
        return Finding(code="no-product", message=message, fix=f"read its log, '{log}'", at=Location(file=log))

    def _judge(self, step: Step, *, missing: str, exit_code: int) -> Finding | None:
        """Judge what a smoke step measured; results of an earlier run are no results."""
        from builder.execute import judgement

        results = {} if missing else judgement.read_results(step, self.folder)
        checks = judgement.judge_results(results, expect=self.plan.expect)
        answer = () if missing else judgement.judge_answer(step, self.folder)
        for shape in judgement.list_suite_shapes(step):
            found, more = judgement.judge_suite(shape, self.folder) if not missing else ({}, ())
            results, checks = {**results, **found}, (*checks, *more)
        self.smoke.update(results)
        self.checks.extend((*answer, *checks))
        if note := judgement.note_cpu(results, vendor=self.plan.vendor, site=self.plan.site, image=str(self.output)):
            self.findings.append(note)
            self.progress.note(f"{note.message}; {note.fix}")
        bad = judgement.describe_failed_checks((*answer, *checks))
        # The script's own end says more than results which only say that nothing was run.
        if not bad or (judgement.is_not_run(results) and exit_code):
            return None
        log = str(self.runner.log(step))
        message, fix = f"the smoke test '{step.name}' failed: {bad}", f"read its log, '{log}'"
        if "mpi4py.MPI" in bad:
            fix = "add mpich to the pip packages, or choose a base image that has an MPI"
        return Finding(code="smoke-failed", message=message, fix=fix, at=Location(file=log))

    def _end_step(
        self,
        step: Step,
        *,
        started: float,
        status: Status,
        exit_code: int | None = None,
        finding: Finding | None = None,
    ) -> bool:
        seconds = round(time.monotonic() - started, 3)
        log = self.runner.log(step).relative_to(self.folder)
        result = StepResult(
            name=step.name, status=status, seconds=seconds, exit_code=exit_code, log=str(log), finding=finding
        )
        self._under_way = None
        self.results.append(result)
        if finding is not None:
            self.findings.append(finding)
        self.progress.end_step(result)
        return status == "ok"

    def _has_image(self) -> bool:
        image = self.folder / self.plan.image
        if image.exists():
            # A link to anything but the published image is not ours: what it leads to would be moved.
            if not image.is_symlink() or is_published(image.resolve(), self.folder) or self._is_output(image):
                return True
            raise link_error(image)
        message = f"all steps have ended, and the image is missing: '{self.plan.image}'"
        fix = "this plan is faulty: write it again with `recipe plan`, and report this"
        self.findings.append(Finding(code="no-image-made", message=message, at=Location(file=str(image)), fix=fix))
        return False

    def _is_output(self, image: Path) -> bool:
        return self.output.exists() and image.samefile(self.output)

    def _publish(self, *, proven: bool) -> RunStatus:
        """Put the image where it belongs; one that the smoke test failed in never replaces an older output."""
        image = self.folder / self.plan.image
        in_place = self._is_output(image)
        target = self.output if proven or in_place else name_failed_copy(self.output)
        digest = Digest(image) if self._inside is None else None
        try:
            if self._inside is not None:
                self._finish_scan(self._inside)
            if proven and self.signer is not None:
                if fault := self.signer.sign(image.resolve()):
                    self.findings.append(fault)
                    return "failed"
                digest = Digest(image)
            self._check_new(target)
            publish(image, target, new=target in self.new, undisturbed=self.signals.shield)
            self.image = target
            self.image_bytes = measure_image(target)
            self.image_sha256 = digest.wait() if digest else self.image_sha256
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            message = f"the image could not be put at '{target}': {reason}; it is still at '{image}'"
            fix = "make room and rights there, then start again with --from and the last step"
            if isinstance(error, FileExistsError):
                made = error.filename2 or error.filename or target
                message = f"'{made}' was made while the image was built, and is not replaced; the image is '{image}'"
                fix = f"move '{made}', then start again with --from {self.plan.steps[-1].name}"
            self.findings.append(Finding(code="not-published", message=message, fix=fix, at=Location(file=str(target))))
            return "failed"
        if proven:
            self._remove_failed_copy(target)
        else:
            again = (
                f"test it again with --from {self._find_first_test()} (not after a change of the recipe: build then)"
            )
            fix = f"`recipe inspect {shlex.quote(str(target))}` shows what is in it, or {again}"
            message = f"the image that failed was kept as '{target}'"
            self.findings.append(Finding(code="image-kept", message=message, fix=fix, level="note"))
        return "passed" if proven else "smoke-failed"

    def _check_new(self, target: Path) -> None:
        """Raise FileExistsError where a file that was not there at the start is now next to the image."""
        if target == self.output:
            for path in name_attestations(target):
                if path in self.new and os.path.lexists(path):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))

    def _finish_scan(self, inside: SbomTask) -> None:
        """Have the bill of materials in the image; print why where there is none."""
        self.image_sha256 = inside.finish()
        self.sbom = inside.text
        if inside.unknown:
            self.progress.note(f"no bill of materials in the image: {inside.unknown}")

    def _find_first_test(self) -> str:
        return next((step.name for step in self.plan.steps if step.kind in ("verify", "smoke")), "")

    def _find_last_kind(self) -> str:
        last = self.results[-1].name
        return next(step.kind for step in self.plan.steps if step.name == last)

    def _remove_failed_copy(self, output: Path) -> None:
        """Remove the image of an earlier build in which the smoke test failed: this one takes its place."""
        copy = name_failed_copy(output)
        # Next to an image that was there already nothing is ours.
        ours = self.checks and not Path(self.plan.image).is_absolute() and copy not in self.new
        if ours and os.path.lexists(copy) and remove_tree(copy):
            self.progress.note(f"removed '{copy}', in which an earlier smoke test had failed")
