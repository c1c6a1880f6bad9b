"""Several builds as Slurm arrays: submitted, followed together, judged one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from builder.compile.arrays import MOST, Kit, array_plan
from builder.execute.executor import Work, lead
from builder.execute.options import Interrupted, Signals
from builder.execute.progress import QuietProgress
from builder.inspect.origin import origin_of
from builder.model.finding import BuilderError
from builder.model.plan import Plan, Step
from builder.pipeline.chain import job_lines
from builder.pipeline.prepare import Prepared, prepare
from builder.pipeline.request import UI, BuildRequest, Builds, Ended, Outcome, failure, outcome_of
from builder.slurm.arrays import Task, of_tasks, submit_arrays
from builder.slurm.client import Slurm
from builder.slurm.collect import finish
from builder.slurm.options import read_wishes
from builder.slurm.state import forget_ledger, read_ledger
from builder.slurm.status import NamedKit, Watched, watch, write_kits
from builder.slurm.submit import Batch, check_jobs

Outcomes = dict[str, Outcome]


class ArraySubmission:
    """The builds of one site, from their plans to their tasks; what cannot go on is left in `outcomes`."""

    def __init__(self, builds: Builds, *, request: BuildRequest, place: Path, ui: UI) -> None:
        self.builds, self.place, self.request, self.ui = builds, place.resolve(), request, ui
        self.most = request.parallel or MOST
        self.site = next(iter(builds.values())).site
        self.slurm = Slurm(request.options.environment)
        self.ready: dict[str, Prepared] = {}
        self.outcomes: Outcomes = {}
        self.plan = arrays_of(builds, most=self.most)

    def prepare(self, held: ExitStack) -> None:
        """Write the plan folders, which are `held` from then on."""
        for name, build in self.builds.items():
            try:
                ready = prepare(build, request=self.request, tell=partial(self.ui.line, name), held=held)
            except BuilderError as error:
                self.outcomes[name] = failure(name, error)
                continue
            if ready.done:
                image = str(build.image)
                self.outcomes[name] = Outcome(name=name, word="nothing to do", text=image, image=image)
            else:
                self.ready[name] = ready

    def submit(self, signals: Signals) -> None:
        """Try the arrays, run here what has no job, submit the rest."""
        if not self.ready or self.plan is None:
            return
        tasks = self._tasks()
        steps = [step for step in self.plan.steps if any(task.step(step.name) for task in tasks.values())]
        try:
            batch = self._batch(steps)
            numbers = [task.number for task in tasks.values()]
            check_jobs(steps, batch=of_tasks(batch, numbers, most=self.most), folder=self.place, slurm=self.slurm)
            tasks = self._after_lead(tasks, signals=signals)
            if tasks:
                self._submit(steps, list(tasks.values()), batch=batch, signals=signals)
        except BuilderError as error:
            self.outcomes |= {name: failure(name, error) for name in tasks if name not in self.outcomes}

    def _tasks(self) -> dict[str, Task]:
        """What is to run of each build as a job."""
        numbers = {name: number for number, name in enumerate(self.builds)}
        return {
            name: Task(
                number=numbers[name],
                plan=ready.build.plan,
                folder=ready.folder,
                output=ready.output,
                steps=ready.jobs,
                origin=origin_of(ready.build.plan, ready.steps, folder=ready.folder),
            )
            for name, ready in self.ready.items()
        }

    def _batch(self, steps: Sequence[Step]) -> Batch:
        jobs = self.request.slurm
        names = [step.name for step in steps]
        return Batch(
            kind="build",
            output=self.place,
            site_options=self.site.scheduler.submit,
            wishes=read_wishes(jobs.of_jobs, steps=names, account=jobs.account, dependency=jobs.dependency),
            environment=self.request.options.environment,
        )

    def _after_lead(self, tasks: dict[str, Task], *, signals: Signals) -> dict[str, Task]:
        """Run the steps without a job, one build after the other; those that failed are left out."""
        left = {}
        for name, task in tasks.items():
            here, done = self.ready[name].here, task.lead
            if here:
                forget_ledger(task.folder)
                # Plain lines: rows of a build would stand among those of the jobs.
                progress = self.ui.display([name], live=False).side(name)
                work = Work(
                    plan=task.plan, steps=here, folder=task.folder, output=task.output,
                    options=self.request.options, progress=progress,
                )  # fmt: skip
                try:
                    done = lead(work, signals=signals, total=len(here) + len(task.steps))
                except BuilderError as error:
                    self.outcomes[name] = failure(name, error)
                    continue
            left[name] = replace(task, lead=done)
        return left

    def _submit(self, steps: Sequence[Step], tasks: Sequence[Task], *, batch: Batch, signals: Signals) -> None:
        assert self.plan is not None, "there are tasks"
        numbers = [task.number for task in tasks]
        submit_arrays(
            self.plan,
            steps,
            tasks,
            batch=of_tasks(batch, numbers, most=self.most),
            folder=self.place,
            slurm=self.slurm,
            undisturbed=signals.held,
        )


def run_arrays(builds: Builds, *, request: BuildRequest, ui: UI) -> Ended:
    """Prepare all builds, submit them site by site, and follow them to their outcomes unless there is --no-wait."""
    signals, place = Signals(), request.output or Path()
    sites = [ArraySubmission(own, request=request, place=place, ui=ui) for own in by_site(builds).values()]
    with signals.caught(), ExitStack() as held:
        for site in sites:
            site.prepare(held)
        if any(site.ready for site in sites):
            write_arrays(builds, place=place, most=request.parallel)
        for site in sites:
            site.submit(signals)
    outcomes = {name: outcome for site in sites for name, outcome in site.outcomes.items()}
    submitted = {name: build for name, build in builds.items() if name not in outcomes}
    for name, build in submitted.items():
        ledger = read_ledger(build.folder)
        assert ledger is not None, "it was submitted"
        for line in job_lines(ledger):
            ui.line(name, line)
    if request.slurm.no_wait:
        for name, build in submitted.items():
            outcomes[name] = Outcome(name=name, word="submitted", text=f"recipe status {build.folder}")
        return Ended(outcomes=outcomes)
    folders = {name: build.folder for name, build in submitted.items()}
    ended = follow_arrays(
        folders,
        environment=request.options.environment,
        place=place,
        say=ui.line,
        cancel=request.slurm.cancel_on_interrupt,
    )
    return Ended(outcomes={**outcomes, **ended.outcomes}, stop=ended.stop)


def write_arrays(builds: Builds, *, place: Path, most: int | None) -> list[Path]:
    """Write the arrays of kits that were planned, and the list of them; what submits each site's by hand."""
    arrays = [plan for own in by_site(builds).values() if (plan := arrays_of(own, most=most or MOST)) is not None]
    kits = [NamedKit(name=name, site=build.site.name, folder=build.folder.name) for name, build in builds.items()]
    write_kits(place, kits=kits, arrays=arrays)
    return [place / file.path for plan in arrays for file in plan.files if file.executable]


def arrays_of(builds: Builds, *, most: int) -> Plan | None:
    """The arrays of one site's kits, None where it has no jobs for them."""
    kits = [Kit(folder=build.folder.name, plan=build.plan) for build in builds.values()]
    if not any(step.batch for kit in kits for step in kit.plan.steps):
        return None
    return array_plan(next(iter(builds.values())).site, kits, most=most)


def by_site(builds: Builds) -> dict[str, Builds]:
    """The builds of each site."""
    names = dict.fromkeys(build.site.name for build in builds.values())
    return {site: {name: build for name, build in builds.items() if build.site.name == site} for site in names}


def follow_arrays(
    folders: Mapping[str, Path],
    *,
    environment: Mapping[str, str],
    place: Path,
    say: Callable[[str, str], None],
    cancel: bool = False,
) -> Ended:
    """Follow the jobs of plan folders to their end and judge each as soon as its own have ended; `say` what changes."""
    slurm, signals, outcomes = Slurm(environment), Signals(), Outcomes()
    kits = {name: Watched.of(ledger, folder) for name, folder in folders.items() if (ledger := read_ledger(folder))}
    try:
        with signals.caught():
            for name in watch(kits, slurm=slurm, say=say):
                outcomes[name] = judge(name, kits[name], environment=environment)
                say(name, outcomes[name].word)
    except Interrupted as stop:
        left = {name: kit for name, kit in kits.items() if name not in outcomes}
        jobs = [job.job for kit in left.values() for job in kit.ledger.jobs]
        if cancel:
            slurm.cancel(jobs)
        what = f"interrupted: the jobs of {len(left)} builds "
        more = "are cancelled" if cancel else f"go on; `recipe status {place}` comes back, --cancel ends them"
        stop.message = what + more
        for name in left:
            outcomes[name] = Outcome(name=name, word="cancelled" if cancel else "open", code=stop.exit_code)
        return Ended(outcomes=outcomes, stop=stop)
    return Ended(outcomes=outcomes)


def judge(name: str, kit: Watched, *, environment: Mapping[str, str]) -> Outcome:
    """Judge what the jobs of one kit have left."""
    try:
        report = finish(kit.folder, environment=environment, progress=QuietProgress())
    except BuilderError as error:
        return failure(name, error)
    return outcome_of(name, report, image=Path(kit.ledger.output))
