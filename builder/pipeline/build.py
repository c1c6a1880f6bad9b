"""The program on a page: load, resolve, compile, prepare, run. One build is a list of one."""

from __future__ import annotations

from builder.model.finding import BuilderError
from builder.pipeline.plans import plan_builds
from builder.pipeline.prepare import check_build, check_request, make_folder
from builder.pipeline.request import UI, Build, BuildRequest, Builds, Outcome, Outcomes, make_failure


def build(request: BuildRequest, *, ui: UI) -> Outcomes:
    """Build every recipe of the request for every site; a failure does not stop the others.

    Raises ConfigError for faulty files and options, before anything is written.
    """
    planned = plan_builds(request)  # load, resolve, compile
    builds = {name: found for name, found in planned.items() if isinstance(found, Build)}
    refused = {name: make_failure(name, error) for name, error in planned.items() if isinstance(error, BuilderError)}
    check_request(request, builds)
    for name, found in builds.items():
        ui.report_plan(name, found)
    if request.dry_run:
        return Outcomes(outcomes=refused | _look_at(builds, request, ui))
    if request.output is not None and not request.single:
        make_folder(request.output)
    ended = _run(builds, request, ui)  # each is prepared, and runs, where it runs
    return Outcomes(outcomes={name: {**refused, **ended.outcomes}[name] for name in planned}, stop=ended.stop)


def _run(builds: Builds, request: BuildRequest, ui: UI) -> Outcomes:
    """Here, or as jobs."""
    if not request.slurm.submit:
        from builder.pipeline.local import run_here

        return run_here(builds, request=request, ui=ui)
    from builder.pipeline.batch import run_jobs

    return run_jobs(builds, request=request, ui=ui)


def _look_at(builds: Builds, request: BuildRequest, ui: UI) -> dict[str, Outcome]:
    """Look at what each build needs, ask Slurm about its jobs, and describe those that could begin."""
    refused = {}
    for name, found in builds.items():
        try:
            ready = check_build(found, request=request)
            if ready.jobs:
                from builder.pipeline.batch import try_jobs

                try_jobs(ready, request=request)
        except BuilderError as error:
            refused[name] = make_failure(name, error)
            continue
        if ready.done:
            ui.print_line(name, f"nothing to do: {found.image} was built from this and {ready.done}")
        ui.describe_build(found, steps=ready.steps)
    return refused
