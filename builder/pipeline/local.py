"""Builds on this machine: side by side where there are several."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from builder.execute.executor import execute, reproduce
from builder.execute.options import Interrupted
from builder.execute.parallel import Halt, Heeding, SideBySide, at_once
from builder.execute.progress import Progress
from builder.execute.report_file import read_report
from builder.model.finding import BuilderError
from builder.model.report import Report
from builder.pipeline.prepare import prepare
from builder.pipeline.request import UI, Build, BuildRequest, Builds, Ended, Outcome, Tell, failure, outcome_of


def run_here(builds: Builds, *, request: BuildRequest, ui: UI) -> Ended:
    """Prepare and run each build; a failure does not stop the others. A fault of recipe itself is raised."""
    halt, display = Halt(), ui.display(list(builds))

    def task(name: str, build: Build) -> Callable[[], Outcome]:
        progress = Heeding(display.side(name), halt=halt)
        return lambda: _one(name, build, request=request, progress=progress, ui=ui)

    with display.shown():
        tasks = [task(name, build) for name, build in builds.items()]
        results = SideBySide[Outcome](jobs=request.parallel or at_once(len(tasks)), halt=halt).run(tasks)
    outcomes: dict[str, Outcome] = {}
    stop = Interrupted(halt.number) if halt.number else None
    for name, result in zip(builds, results, strict=True):
        if isinstance(result, Outcome):
            outcomes[name] = result
        elif isinstance(result, Interrupted):
            stop = stop or result
            outcomes[name] = Outcome(name=name, word="stopped", text=result.message, code=result.exit_code)
        elif isinstance(result, BuilderError):
            outcomes[name] = failure(name, result)
        else:
            raise result
    return Ended(outcomes=outcomes, stop=stop)


def _one(name: str, build: Build, *, request: BuildRequest, progress: Progress, ui: UI) -> Outcome:
    """Prepare and run one build; its failure is its outcome."""
    report: Report | None = None
    try:
        with ExitStack() as held:
            report = _report(build, request=request, progress=progress, tell=partial(ui.line, name), held=held)
    except BuilderError as error:
        return failure(name, error)
    if report is None:
        return Outcome(name=name, word="nothing to do", text=str(build.image), image=str(build.image))
    ui.report(name, report)
    return outcome_of(name, report, image=build.image)


def _report(build: Build, *, request: BuildRequest, progress: Progress, tell: Tell, held: ExitStack) -> Report | None:
    """The report of a build, or of a second one that is compared with the image; None where there is nothing to do."""
    ready, options = prepare(build, request=request, tell=tell, held=held), request.options
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
