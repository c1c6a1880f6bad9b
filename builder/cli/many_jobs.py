"""Many kits as Slurm arrays: submitted, followed together, judged one by one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from builder.cli.one_build import ImageBuild, Wanted, prepare
from builder.cli.several import Ending, Shown, ending_of, refusal_of
from builder.cli.show import echo
from builder.compile.arrays import MOST, Kit, array_plan
from builder.execute.executor import Work, chosen, lead
from builder.execute.hold import hold
from builder.execute.image.origin import origin_of
from builder.execute.jobs.arrays import Task, of_tasks, submit_arrays
from builder.execute.jobs.finish import finish
from builder.execute.jobs.kits import NamedKit, write_kits
from builder.execute.jobs.ledger import forget_ledger, read_ledger
from builder.execute.jobs.slurm import Slurm
from builder.execute.jobs.split import split_steps
from builder.execute.jobs.submit import Batch, check_jobs
from builder.execute.jobs.watch import Watched, watch
from builder.execute.jobs.wishes import read_wishes
from builder.execute.many.together import choose_together
from builder.execute.options import Interrupted, Signals
from builder.execute.progress import Progress, QuietProgress
from builder.model.finding import BuilderError
from builder.model.plan import Plan, Step

Builds = Mapping[str, ImageBuild]
Endings = dict[str, Ending]


class Fleet:
    """The kits of one site, from their plans to their tasks; what cannot go on is left in `endings`."""

    def __init__(self, builds: Builds, *, place: Path, wanted: Wanted, most: int | None, shown: Shown) -> None:
        self.builds, self.place, self.wanted = builds, place.resolve(), wanted
        self.most, self.shown = most or MOST, shown
        self.site = next(iter(builds.values())).site
        self.slurm = Slurm(wanted.options.environment)
        self.endings: Endings = {}
        self.plan = arrays_of(builds, most=self.most)

    def say(self, name: str, text: str) -> None:
        """A line with a name before it."""
        if not self.shown.quiet:
            echo(f"{name}  {text}", err=True)

    def prepare(self, held: ExitStack) -> None:
        """Write the plan folders, which are `held` from then on."""
        for name, build in self.builds.items():
            try:
                if not prepare(build, wanted=self.wanted, tell=partial(self.say, name), held=held):
                    image = str(build.image)
                    self.endings[name] = Ending(name=name, word="nothing to do", text=image, image=image)
            except BuilderError as error:
                self.endings[name] = refusal_of(name, error)

    def submit(self, signals: Signals, held: ExitStack) -> None:
        """Try the arrays, run here what has no job, submit the rest."""
        tasks, leads = self._tasks(held)
        if not tasks or self.plan is None:
            return
        steps = [step for step in self.plan.steps if any(task.step(step.name) for task in tasks.values())]
        try:
            batch = self._batch(steps)
            numbers = [task.number for task in tasks.values()]
            check_jobs(
                self.plan, steps, batch=of_tasks(batch, numbers, most=self.most), folder=self.place, slurm=self.slurm
            )
            tasks = self._led(tasks, leads, signals=signals)
            if tasks:
                self._submit(steps, list(tasks.values()), batch=batch, signals=signals)
        except BuilderError as error:
            self.endings |= {name: refusal_of(name, error) for name in tasks if name not in self.endings}

    def _tasks(self, held: ExitStack) -> tuple[dict[str, Task], dict[str, tuple[Step, ...]]]:
        """What is to run of each kit that is left, as jobs and before them here; its folder is held."""
        tasks, leads = {}, {}
        for number, (name, build) in enumerate(self.builds.items()):
            if name in self.endings:
                continue
            folder, options = build.folder.resolve(), self.wanted.options
            output = build.image.parent.resolve() / build.image.name
            try:
                held.enter_context(hold(folder))
                steps = chosen(build.plan, folder=folder, output=output, options=options)
                leads[name], jobs = split_steps(build.plan, steps, folder=folder, environment=options.environment)
            except BuilderError as error:
                self.endings[name] = refusal_of(name, error)
                continue
            origin = origin_of(build.plan, steps, folder=folder)
            tasks[name] = Task(number=number, plan=build.plan, folder=folder, output=output, steps=jobs, origin=origin)
        return tasks, leads

    def _batch(self, steps: Sequence[Step]) -> Batch:
        asked = self.wanted.asked
        names = [step.name for step in steps]
        return Batch(
            kind="build",
            output=self.place,
            site_options=self.site.scheduler.submit,
            wishes=read_wishes(asked.of_jobs, steps=names, account=asked.account, dependency=asked.dependency),
            environment=self.wanted.options.environment,
        )

    def _led(
        self, tasks: dict[str, Task], leads: Mapping[str, tuple[Step, ...]], *, signals: Signals
    ) -> dict[str, Task]:
        """Run the steps without a job, a kit after the other; those that failed are left out."""
        left = {}
        for name, task in tasks.items():
            done = task.lead
            if leads[name]:
                forget_ledger(task.folder)
                work = Work(
                    plan=task.plan, steps=leads[name], folder=task.folder, output=task.output,
                    options=self.wanted.options, progress=self._progress(name),
                )  # fmt: skip
                try:
                    done = lead(work, signals=signals, total=len(leads[name]) + len(task.steps))
                except BuilderError as error:
                    self.endings[name] = refusal_of(name, error)
                    continue
            left[name] = Task(**{**vars(task), "lead": done})
        return left

    def _progress(self, name: str) -> Progress:
        """Plain lines: a kit's rows would stand among those of the jobs."""
        shown = self.shown
        return choose_together(
            sys.stderr, width=0, environment={}, quiet=shown.quiet, verbose=shown.verbose, color=False
        ).side(name)

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


def build_arrays(
    builds: Builds, *, place: Path, wanted: Wanted, most: int | None, shown: Shown
) -> tuple[Endings, Interrupted | None]:
    """Submit all kits, site by site, and follow them to their verdicts unless nobody is to wait."""
    signals, environment = Signals(), wanted.options.environment
    sites = by_site(builds).values()
    fleets = [Fleet(own, place=place, wanted=wanted, most=most, shown=shown) for own in sites]
    with signals.caught(), ExitStack() as held:
        for fleet in fleets:
            fleet.prepare(held)
        if any(len(fleet.endings) < len(fleet.builds) for fleet in fleets):
            write_arrays(builds, place=place, most=most)
        for fleet in fleets:
            fleet.submit(signals, held)
    endings = {name: ending for fleet in fleets for name, ending in fleet.endings.items()}
    submitted = {name: build for name, build in builds.items() if name not in endings}
    for name, build in submitted.items():
        ledger = read_ledger(build.folder)
        assert ledger is not None, "it was submitted"
        for job in ledger.jobs:
            after = f", after {', '.join(job.after)}" if job.after else ""
            fleets[0].say(name, f"job {job.job}: {job.step}{after}")
    if wanted.asked.no_wait:
        for name, build in submitted.items():
            endings[name] = Ending(name=name, word="submitted", text=f"recipe status {build.folder}")
        return endings, None
    folders = {name: build.folder for name, build in submitted.items()}
    cancel = wanted.asked.cancel_on_interrupt
    more, stop = follow_kits(folders, environment=environment, place=place, shown=shown, cancel=cancel)
    return endings | more, stop


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


def follow_kits(
    folders: Mapping[str, Path], *, environment: Mapping[str, str], place: Path, shown: Shown, cancel: bool = False
) -> tuple[Endings, Interrupted | None]:
    """Follow the jobs of kits to their end and judge each as soon as its own have ended."""
    slurm, signals, endings = Slurm(environment), Signals(), Endings()
    kits = {name: Watched.of(ledger, folder) for name, folder in folders.items() if (ledger := read_ledger(folder))}

    def say(name: str, text: str) -> None:
        if not shown.quiet:
            echo(f"{name}  {text}", err=True)

    try:
        with signals.caught():
            for name in watch(kits, slurm=slurm, say=say):
                endings[name] = judge_kit(name, kits[name], environment=environment)
                say(name, endings[name].word)
    except Interrupted as stop:
        left = {name: kit for name, kit in kits.items() if name not in endings}
        jobs = [job.job for kit in left.values() for job in kit.ledger.jobs]
        if cancel:
            slurm.cancel(jobs)
        what = f"interrupted: the jobs of {len(left)} builds "
        more = "are cancelled" if cancel else f"go on; `recipe status {place}` comes back, --cancel ends them"
        stop.message = what + more
        for name in left:
            endings[name] = Ending(name=name, word="cancelled" if cancel else "open", code=stop.exit_code)
        return endings, stop
    return endings, None


def judge_kit(name: str, kit: Watched, *, environment: Mapping[str, str]) -> Ending:
    """Judge what the jobs of one kit have left."""
    try:
        report = finish(kit.folder, environment=environment, progress=QuietProgress())
    except BuilderError as error:
        return refusal_of(name, error)
    return ending_of(name, report, image=Path(kit.ledger.output))
