"""Execute a plan: choose its steps, prepare this machine, run them (execution.py), believe products and numbers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builder.execute.build_options import ExecutionOptions, SignalInterrupt, Signals
from builder.execute.execution import Execution, LocalPrefix
from builder.execute.folder_lock import lock_folder
from builder.execute.preflight import (
    IN_CONTAINER,
    TEMPORARY,
    can_create_folder,
    check_output,
    check_space,
    find_programs,
    query_versions,
)
from builder.execute.progress import Progress
from builder.execute.report_file import keep_report
from builder.execute.signature import Signer, find_signer
from builder.execute.step_runner import LocalRunner
from builder.inspect.attestations import name_attestations, write_attestations
from builder.inspect.origin import find_origin
from builder.model.finding import ConfigError, DifferentError, Finding, Location, SmokeError, StepError, suggest_name
from builder.model.plan import Plan, Step
from builder.model.report import Report
from builder.model.secrets import Mask
from builder.system.files import name_draft
from builder.system.layout import DIFFERENT, REPORT_FILE, name_failed_copy
from builder.system.scratch import check_parent, find_private_parent, make_scratch_folder, remove_leftovers

CONTAINER_FILES = ("image/run.sh", "image/system.txt")  # of steps in a container
_VARIABLE = re.compile(r"\$\{(\w+)\}")


def execute(
    plan: Plan,
    *,
    folder: Path,
    output: Path,
    options: ExecutionOptions,
    progress: Progress,
    steps: Sequence[Step] | None = None,
) -> Report:
    """Execute a plan that was written into `folder` and put its image at `output`.

    `steps` are those that were chosen already, and everything that could refuse them was checked.
    A step that failed and a smoke test that failed are in the report (see `raise_on_failure`), which is also written to
    report.json. Raises ConfigError or ToolError when nothing was begun, and SignalInterrupt, with the report written,
    when a signal stopped it.
    """
    folder, output = folder.resolve(), output.resolve()
    signals = Signals()
    with signals.catch(), lock_folder(folder):
        if steps is None:
            steps = select_steps(plan, folder=folder, output=output, options=options)
        signer = find_signer(plan, environment=options.environment) if options.sign else None
        work = StepBatch(plan=plan, steps=steps, folder=folder, output=output, options=options, progress=progress)
        with prepare_execution(work, signals=signals, signer=signer) as run:
            return _run_steps(run, steps, again=options.reproduce)


def reproduce(
    plan: Plan, *, folder: Path, output: Path, report: Report, options: ExecutionOptions, progress: Progress
) -> Report:
    """Build again what has been built, and compare; the report is that of the image with the answer in it.

    Raises ConfigError, ToolError and SignalInterrupt as `execute`.
    """
    from builder.execute.reproduction import apply_answer, list_rebuild_steps

    folder, output = folder.resolve(), output.resolve()
    signals, steps = Signals(), list_rebuild_steps(plan)
    with signals.catch(), lock_folder(folder):
        work = StepBatch(plan=plan, steps=steps, folder=folder, output=output, options=options, progress=progress)
        with prepare_execution(work, signals=signals) as run:
            progress.begin(title=f"{plan.target}: {output}", total=len(steps))
            try:
                run.image = output
                _build_again(run)
            finally:
                progress.end()
        report = apply_answer(report, run)
        keep_report(report, folder, note=progress.note)
        return report


def select_steps(
    plan: Plan,
    *,
    folder: Path,
    output: Path,
    options: ExecutionOptions,
    named: Path | None = None,
    makes: bool = False,
    why: Callable[[], tuple[str, str]] = lambda: ("", ""),
) -> tuple[Step, ...]:
    """The steps that are to run, of a build that may put its image at `output`; raises ConfigError.

    `named`, `makes` and `why` as of `check_output`.
    """
    skipped, steps = choose_steps(plan, options)
    kept = find_kept_image(plan, steps, folder)
    check_output(plan, output, force=options.force, kept=kept, folder=folder, named=named, makes=makes, why=why)
    check_skipped(skipped, folder)
    return steps


@dataclass(frozen=True, kw_only=True)
class StepBatch:
    """Steps of a plan that are to run on this machine; the caller holds the folder."""

    plan: Plan
    steps: Sequence[Step]
    folder: Path
    output: Path
    options: ExecutionOptions
    progress: Progress


def run_local_steps(work: StepBatch, *, signals: Signals, total: int) -> LocalPrefix:
    """Run steps that others follow elsewhere; `total` counts them all.

    Raises StepError or SmokeError, with the report written, when one of them has failed, and SignalInterrupt as
    `execute`.
    """
    with prepare_execution(work, signals=signals) as run:
        started = time.monotonic()
        work.progress.begin(title=f"{work.plan.target}: {work.output}", total=total)
        with _report_interrupt(run, started=started):
            done = run.run_steps(work.steps)
        if not done:
            raise_on_failure(_write(run, time.monotonic() - started))
        begun = time.time() - (time.monotonic() - started)
        return LocalPrefix(results=tuple(run.results), proof=run.proof, versions=run.versions(10.0), began=begun)


@contextmanager
def prepare_execution(work: StepBatch, *, signals: Signals, signer: Signer | None = None) -> Iterator[Execution]:
    """Make everything ready for steps to run here; raises ToolError where something of this machine is missing."""
    from builder.execute.cache_maintenance import prepare_layer_cache

    environment = work.options.environment
    programs = check_local_needs(work)
    for path in remove_leftovers(work.folder):
        work.progress.note(f"removed what an earlier build had left: {path}")
    siblings = (work.output, name_failed_copy(work.output), *name_attestations(work.output), work.folder / REPORT_FILE)
    drafts = tuple(name_draft(path) for path in siblings)
    scratch_made = make_scratch_folder(work.folder, parent=_choose_tmpdir(work.plan, work.options), also=drafts)
    with prepare_layer_cache(work.plan, environment), scratch_made as scratch:
        here = LocalRunner(
            plan=work.plan,
            folder=work.folder,
            options=work.options,
            progress=work.progress,
            scratch=scratch,
            mask=Mask(environment),
        )
        with query_versions(programs, environment=environment) as versions:
            yield Execution(
                plan=work.plan,
                folder=work.folder,
                output=work.output,
                runner=here,
                progress=work.progress,
                signals=signals,
                versions=versions,
                environment=environment,
                signer=signer,
                origin=find_origin(work.plan, work.steps, folder=work.folder),
            )


def check_local_needs(work: StepBatch) -> dict[str, Path]:
    """Find the programs that the steps need here, and look for places and space; makes nothing, raises ToolError."""
    from builder.execute.cache_maintenance import find_backend_cache

    environment = work.options.environment
    programs = find_programs(work.steps, environment=environment)
    parent = _choose_tmpdir(work.plan, work.options, make=False)
    if parent.exists() or work.options.tmpdir is not None or not work.plan.tmpdir:
        check_parent(parent)
    check_space(
        work.steps,
        scratch=parent,
        folder=work.folder,
        output=work.output,
        cache=find_backend_cache(work.plan.backend, environment),
        temporary=IN_CONTAINER if any(file.path in CONTAINER_FILES for file in work.plan.files) else TEMPORARY,
    )
    return programs


def raise_on_failure(report: Report) -> None:
    """Raise StepError, SmokeError or DifferentError with the report's findings when it has failed."""
    if report.status == "failed":
        raise StepError(*report.findings)
    if report.status == "smoke-failed":
        raise SmokeError(*report.findings)
    if any(finding.code == DIFFERENT for finding in report.findings):
        raise DifferentError(*report.findings)


def choose_steps(plan: Plan, options: ExecutionOptions) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Split the steps into those that are skipped and those that run; raises ConfigError for an unknown start."""
    # The image is proven by smoke steps wherever a plan lists them: they come last.
    order = sorted(plan.steps, key=lambda step: step.kind == "smoke")
    names = [step.name for step in order]
    if options.start and options.start not in names:
        message = f"the plan has no step '{options.start}' to start from"
        fix = suggest_name(options.start, known=names, noun="its steps")
        raise ConfigError(Finding(code="unknown-step", message=message, fix=fix))
    first = names.index(options.start) if options.start else 0
    runs = tuple(step for step in order[first:] if not (options.no_smoke and step.kind == "smoke"))
    return tuple(step for step in order if step not in runs), runs


def check_skipped(skipped: Sequence[Step], folder: Path) -> None:
    """Raise ConfigError when a step that is skipped has left no product."""
    findings = [
        Finding(
            code="no-product",
            message=f"step '{step.name}' is skipped, and its product '{name}' is not there",
            at=Location(file=str(folder / name)),
            fix=f"start from step '{step.name}' or an earlier one",
        )
        for step in skipped
        if step.kind != "smoke"
        for name in step.produces
        if not (folder / name).exists()
    ]
    if findings:
        raise ConfigError(*findings)


def find_kept_image(plan: Plan, steps: Sequence[Step], folder: Path) -> Path | None:
    """The image of an earlier build, when no step makes it or, where it is a folder, anything in it."""
    made = (Path(name) for step in steps for name in step.produces)
    return None if any(path.is_relative_to(plan.image) for path in made) else folder / plan.image


def _choose_tmpdir(plan: Plan, options: ExecutionOptions, *, make: bool = True) -> Path:
    """The user's word first, then the site's where it can be made, then the environment's.

    Without `make` nothing is made.
    """
    if options.tmpdir is not None:
        return options.tmpdir
    own = Path(options.environment.get("TMPDIR") or "/tmp")
    if not plan.tmpdir:
        return own
    site = Path(_VARIABLE.sub(lambda match: options.environment.get(match[1], ""), plan.tmpdir))
    if not make and not site.exists():
        return site if can_create_folder(site) else own
    try:
        return find_private_parent(site, make=True)
    except OSError:
        return own  # not a node of that site


def _run_steps(run: Execution, steps: Sequence[Step], *, again: bool) -> Report:
    started = time.monotonic()
    total = len(steps)
    if again:
        from builder.execute.reproduction import list_rebuild_steps

        total += len(list_rebuild_steps(run.plan))
    run.progress.begin(title=f"{run.plan.target}: {run.output}", total=total)
    with _report_interrupt(run, started=started):
        run.run_all(steps)
        if again and run.status == "passed":
            _build_again(run)
    return _write(run, time.monotonic() - started)


def _build_again(run: Execution) -> None:
    """Note what a second build gave; the image stays, whatever it was."""
    from builder.execute.reproduction import note_rebuild, rebuild

    image, here = run.image, run.runner
    if image is not None and isinstance(here, LocalRunner):
        note_rebuild(run, lambda: rebuild(run, here, image=image))


@contextmanager
def _report_interrupt(run: Execution, *, started: float) -> Iterator[None]:
    """Write the report of what a signal stops."""
    try:
        yield
    except SignalInterrupt as stop:
        run.signals.ignore()
        run.note_interrupt(stop)
        stop.report = _write(run, time.monotonic() - started)
        raise
    finally:
        run.progress.end()


def _write(run: Execution, seconds: float) -> Report:
    report = run.report(seconds)
    if fault := write_attestations(run.plan, report, sbom=run.sbom, new=run.new):
        run.progress.note(fault)
    keep_report(report, run.folder, note=run.progress.note)
    return report
