"""Builds on this machine: side by side where there are several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from builder.execute.build_options import ExecutionOptions, SignalInterrupt
from builder.execute.parallel import CancelToken, ParallelRunner, choose_parallelism, make_cancellable
from builder.execute.plan_executor import execute, reproduce
from builder.execute.progress import MultiProgress, Progress
from builder.execute.report_file import read_report
from builder.model.finding import BuilderError
from builder.model.report import Report
from builder.pipeline.prepare import Prepare, PreparedBuild
from builder.pipeline.request import (
    UI,
    Build,
    BuildRequest,
    Builds,
    Outcome,
    Outcomes,
    make_failure,
    make_outcome,
)


def run_here(builds: Builds, *, prepare: Prepare, request: BuildRequest, ui: UI) -> Outcomes:
    """Prepare and run each build; a failure does not stop the others. A fault of recipe itself is raised."""
    display = ui.choose_display(list(builds))

    def run(name: str, build: Build, progress: Progress) -> Report | None:
        with ExitStack() as held:
            ready = prepare(build, tell=partial(ui.print_line, name), held=held)
            report = _report(ready, options=request.options, progress=progress)
        if report is not None:
            ui.report(name, report)
        return report

    tasks = {name: partial(run, name, build) for name, build in builds.items()}
    images = {name: build.image for name, build in builds.items()}
    with display.show():
        return run_together(
            tasks, images=images, display=display, parallel=request.parallel or choose_parallelism(len(tasks))
        )


def run_together(
    tasks: Mapping[str, Callable[[Progress], Report | None]],
    *,
    images: Mapping[str, Path],
    display: MultiProgress,
    parallel: int,
) -> Outcomes:
    """Run tasks in threads, so many at a time; their outcomes by name. None of a task: there was nothing to do.

    A signal stops all of them. A fault of recipe itself is raised.
    """
    halt = CancelToken()

    def run(name: str, task: Callable[[Progress], Report | None]) -> Outcome:
        try:
            report = task(make_cancellable(display.get_progress(name), halt=halt))
        except BuilderError as error:
            return make_failure(name, error)
        if report is None:
            return Outcome(name=name, word="nothing to do", text=str(images[name]), image=str(images[name]))
        return make_outcome(name, report, image=images[name])

    results = ParallelRunner[Outcome](jobs=parallel, halt=halt).run([partial(run, *item) for item in tasks.items()])
    outcomes: dict[str, Outcome] = {}
    stop = SignalInterrupt(halt.number) if halt.number else None
    for name, result in zip(tasks, results, strict=True):
        if isinstance(result, Outcome):
            outcomes[name] = result
        elif isinstance(result, SignalInterrupt):
            stop = stop or result
            outcomes[name] = Outcome(name=name, word="stopped", text=result.message, code=result.exit_code)
        else:
            raise result
    return Outcomes(outcomes=outcomes, stop=stop)


def _report(ready: PreparedBuild, *, options: ExecutionOptions, progress: Progress) -> Report | None:
    """The report of a build, or of a second one that is compared with the image; None where there is nothing to do."""
    build = ready.build
    if not ready.done:
        return execute(
            build.plan, folder=build.folder, output=build.image, steps=ready.steps, options=options, progress=progress
        )
    known = read_report(build.folder) if options.reproduce else None
    if known is None:
        return None
    return reproduce(
        build.plan, folder=build.folder, output=build.image, report=known, options=options, progress=progress
    )
