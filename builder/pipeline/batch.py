"""Builds as Slurm jobs: submitted, followed together, judged one by one. Steps that have no job run here first.

One build is a chain of jobs, several of one site are a chain of arrays with a task for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from builder.compile.arrays import MAX_TASKS, ArrayTask, make_array_plan
from builder.compile.launch.settings import list_site_variables
from builder.execute.build_options import ExecutionOptions, Signals, read_overrides
from builder.execute.execution import LocalPrefix
from builder.execute.plan_executor import StepBatch, run_local_steps, select_steps
from builder.execute.progress import MultiProgress, Progress
from builder.execute.reproduction import list_rebuild_steps
from builder.inspect.origin import find_origin
from builder.model.finding import BuilderError
from builder.model.plan import Plan
from builder.model.report import Report
from builder.model.site import Site
from builder.model.text import exists
from builder.pipeline.local import run_together
from builder.pipeline.prepare import Prepare, PreparedBuild
from builder.pipeline.request import (
    UI,
    Build,
    BuildRequest,
    Builds,
    Outcome,
    Outcomes,
    SlurmOptions,
    Tell,
    make_failure,
)
from builder.slurm.client import Slurm
from builder.slurm.ledger import (
    Kind,
    Ledger,
    forget_command,
    forget_ledger,
    keep_command,
    list_open_jobs,
    read_ledger,
)
from builder.slurm.monitor import Monitor
from builder.slurm.status import ListedPlan, write_plan_list
from builder.slurm.submit import Steps, SubmitOptions, Task, check_jobs, select_tasks, split_steps, submit
from builder.slurm.submitted_jobs import describe_interrupt, finish, prepare_again
from builder.system.files import remove_tree
from builder.system.layout import JOBS
from builder.system.process import find_program


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A plan that was written into `folder`, whose image goes to `output`; of arrays the number of its task.

    `steps` are those that run here and those that are jobs, where that is known already.
    """

    plan: Plan
    site: Site
    kind: Kind
    folder: Path
    output: Path
    options: ExecutionOptions
    variables: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    built: bool = False  # the image is there: only the second build is wanted, to compare
    steps: tuple[Steps, Steps] | None = None
    number: int = 0
    new: bool = False  # the folder was not there before

    @property
    def image(self) -> Path:
        """The image; where that itself is a link, what it leads to is looked up when the image is put there."""
        return self.output.parent.resolve() / self.output.name

    def split(self) -> tuple[Steps, Steps]:
        """The steps that run here and those that are jobs; raises ConfigError for what cannot be submitted."""
        if self.built:
            return (), ()
        if self.steps is not None:
            return self.steps
        folder = self.folder.resolve()
        steps = select_steps(self.plan, folder=folder, output=self.image, options=self.options)
        return split_steps(self.plan, steps, folder=folder, environment=self.options.environment)


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """The arrays of several plans of a site; `folder` holds the plan folders, `most` tasks run at a time."""

    plan: Plan
    folder: Path
    most: int


def run_jobs(builds: Builds, *, prepare: Prepare, request: BuildRequest, ui: UI) -> Outcomes:
    """Prepare all builds, submit those of each site, and follow them to their outcomes unless there is --no-wait."""
    outcomes: dict[str, Outcome] = {}
    display, place = ui.choose_display(list(builds)), request.output or Path()
    with display.show():
        with Signals().catch(), ExitStack() as held:
            ready = _prepare(builds, prepare=prepare, request=request, ui=ui, held=held, outcomes=outcomes)
            if ready and not request.single:
                write_arrays(builds, place=place, most=request.parallel)
            for names in group_by_site(builds).values():
                own = {name: ready[name] for name in names if name in ready}
                arrays = None if request.single else _make_arrays(names, place=place, most=request.parallel)
                failed = submit_plans(own, jobs=request.slurm, display=display, arrays=arrays)
                outcomes |= {name: make_failure(name, error) for name, error in failed.items()}
        submitted = {name: build for name, build in builds.items() if name in ready and name not in outcomes}
        for name, build in submitted.items():
            for line in format_jobs(read_ledger(build.folder)):
                ui.print_line(name, line)
        if request.slurm.no_wait:
            for name, build in submitted.items():
                outcomes[name] = Outcome(name=name, word="submitted", text=f"recipe status {build.folder}")
                if request.single:  # several have a table
                    ui.print_line(name, f"submitted; run `recipe status {build.folder}` for progress and the result")
            return Outcomes(outcomes=outcomes)
        folders = {name: build.folder for name, build in submitted.items()}
        ended = follow(
            folders, environment=request.options.environment, ui=ui, display=display,
            place=place if not request.single else next(iter(folders.values()), place),
            cancel=request.slurm.cancel_on_interrupt,
        )  # fmt: skip
    return Outcomes(outcomes={**outcomes, **ended.outcomes}, stop=ended.stop)


def _prepare(
    builds: Builds, *, prepare: Prepare, request: BuildRequest, ui: UI, held: ExitStack, outcomes: dict[str, Outcome]
) -> dict[str, Submission]:
    """Write the plan folders, which are `held` from then on; what does not go on has its outcome."""
    numbers = {name: number for names in group_by_site(builds).values() for number, name in enumerate(names)}
    found = {}
    for name, build in builds.items():
        try:
            ready = prepare(build, tell=partial(ui.print_line, name), held=held)
        except BuilderError as error:
            outcomes[name] = make_failure(name, error)
            continue
        if ready.done and not request.options.reproduce:
            image = str(build.image)
            outcomes[name] = Outcome(name=name, word="nothing to do", text=image, image=image)
        else:
            found[name] = _make_submission(ready, request=request, number=numbers[name])
    return found


def _make_submission(ready: PreparedBuild, *, request: BuildRequest, number: int = 0) -> Submission:
    build = ready.build
    return Submission(
        plan=build.plan, site=build.site, kind="build", folder=build.folder, output=build.image,
        options=request.options, built=bool(ready.done), steps=(ready.here, ready.jobs), number=number,
    )  # fmt: skip


def submit_plans(
    plans: Mapping[str, Submission], *, jobs: SlurmOptions, display: MultiProgress, arrays: Arrays | None = None
) -> dict[str, BuilderError]:
    """Try and submit the jobs of plans of one site; the steps before them that have no job run here first.

    Returns what stopped plans, by name: nothing of those is in the queue. The caller holds their folders.
    """
    failed: dict[str, BuilderError] = {}
    if not plans:
        return failed
    first, signals = next(iter(plans.values())), Signals()
    slurm = Slurm(first.options.environment)
    try:
        with signals.catch(), _keep_command(first) as (command, given):
            split = {name: plan.split() for name, plan in plans.items()}
            steps = _list_steps(plans, split, arrays=arrays)
            batch = _make_submit_options(
                first, steps, jobs=jobs, variables={**first.variables, **given}, command=command
            )
            folder = arrays.folder.resolve() if arrays else first.folder.resolve()

            # Before anything is built here: a job that is refused is known at once.
            check_jobs(steps, batch=_select_tasks(plans.values(), batch, arrays), folder=folder, slurm=slurm)
            tasks = []
            for name, plan in plans.items():
                try:
                    done = _run_lead(plan, split[name], signals=signals, progress=display.get_progress(name))
                    tasks.append(_make_task(plan, split[name], lead=done))
                except BuilderError as error:
                    failed[name] = error
            if tasks:
                batch = _select_tasks(tasks, batch, arrays)
                if first.options.reproduce:
                    fresh = prepare_again(first.plan, folder, environment=first.options.environment)
                    batch = replace(batch, again=fresh)
                steps = () if first.built else steps
                submit(steps, tasks, batch=batch, folder=folder, slurm=slurm, undisturbed=signals.shield)
    except BuilderError as error:
        failed |= {name: error for name in plans if name not in failed}
    return failed


def _select_tasks(plans: Iterable[Submission | Task], batch: SubmitOptions, arrays: Arrays | None) -> SubmitOptions:
    return select_tasks(batch, [plan.number for plan in plans], most=arrays.most) if arrays else batch


@contextmanager
def _keep_command(plan: Submission) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Keep the words of a command, which are removed again where no job came to read them; its file and variables."""
    if not plan.command:
        yield "", {}
        return
    folder = plan.folder.resolve()
    command = keep_command(plan.command, folder)
    try:
        yield command, {"RECIPE_COMMAND": str(folder / command)}
    except BaseException:
        forget_command(command, folder)
        raise


def _list_steps(
    plans: Mapping[str, Submission], split: Mapping[str, tuple[Steps, Steps]], *, arrays: Arrays | None
) -> Steps:
    """What is submitted: the jobs of the only plan, or those arrays in which one of the plans has a task."""
    if arrays is None:
        first = next(iter(plans.values()))
        return list_rebuild_steps(first.plan) if first.built else split[next(iter(plans))][1]
    wanted = {step.name for _, steps in split.values() for step in steps}
    return tuple(step for step in arrays.plan.steps if step.name in wanted)


def _run_lead(plan: Submission, split: tuple[Steps, Steps], *, signals: Signals, progress: Progress) -> LocalPrefix:
    """Run the steps without a job; raises StepError or SmokeError when one of them failed, with its report written."""
    here, later = split
    if not here:
        return LocalPrefix()
    folder = plan.folder.resolve()
    forget_ledger(folder)
    work = StepBatch(
        plan=plan.plan, steps=here, folder=folder, output=plan.image, options=plan.options, progress=progress
    )
    return run_local_steps(work, signals=signals, total=len(here) + len(later))


def _make_task(plan: Submission, split: tuple[Steps, Steps], *, lead: LocalPrefix) -> Task:
    here, later = split
    folder = plan.folder.resolve()
    return Task(
        number=plan.number, plan=plan.plan, folder=folder, output=plan.image, steps=later, lead=lead,
        origin=find_origin(plan.plan, (*here, *later), folder=folder),
    )  # fmt: skip


def _make_submit_options(
    plan: Submission,
    steps: Steps,
    *,
    jobs: SlurmOptions,
    variables: Mapping[str, str] | None = None,
    command: str = "",
) -> SubmitOptions:
    """How the jobs are submitted; raises ConfigError for an option that cannot be one."""
    names = [step.name for step in steps]
    return SubmitOptions(
        kind=plan.kind,
        site_options=plan.site.scheduler.submit,
        overrides=read_overrides(
            jobs.of_jobs, steps=names, account=jobs.find_account(plan.site.name), dependency=jobs.dependency
        ),
        environment=plan.options.environment,
        variables=variables or {},
        command=command,
        site_variables=list_site_variables(plan.site.launch),
    )


def try_jobs(ready: PreparedBuild, *, request: BuildRequest) -> None:
    """Ask Slurm, where it is here, whether it would take the jobs of a build that is not written yet.

    Raises what `check_jobs` does. sbatch reads the scripts, which are in a temporary folder for so long.
    """
    what, steps = _make_submission(ready, request=request), ready.jobs
    batch = _make_submit_options(what, steps, jobs=request.slurm)
    if find_program("sbatch", env=what.options.environment) is None:
        return
    scripts = {step.batch for step in steps}
    with TemporaryDirectory(prefix="recipe-") as name:
        for file in what.plan.files:
            if file.path in scripts:
                path = Path(name) / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(file.text, encoding="utf-8")
        check_jobs(steps, batch=batch, folder=Path(name), slurm=Slurm(what.options.environment))


def format_jobs(ledger: Ledger | None) -> list[str]:
    """One line a job, for people."""
    return [
        f"job {job.job}: {job.step}" + (f", after {', '.join(job.after)}" if job.after else "")
        for job in (ledger.jobs if ledger else ())
    ]


def submit_plan(what: Submission, *, jobs: SlurmOptions, display: MultiProgress, tell: Tell) -> None:
    """Submit one plan and `tell` its jobs; raises what stopped it, and no plan folder that is new stays then."""
    for error in submit_plans({"": what}, jobs=jobs, display=display).values():
        if what.new and not exists(what.folder / JOBS):
            remove_tree(what.folder)
        raise error
    for line in format_jobs(read_ledger(what.folder)):
        tell(line)


def submit_and_follow(what: Submission, *, jobs: SlurmOptions, display: MultiProgress, tell: Tell) -> Report | None:
    """Submit one plan and follow it to its report; None where the jobs are not waited for."""
    submit_plan(what, jobs=jobs, display=display, tell=tell)
    if jobs.no_wait:
        tell(f"submitted; run `recipe status {what.folder}` for progress and the result")
        return None
    return finish(
        what.folder,
        environment=what.options.environment,
        progress=display.get_progress(""),
        cancel_on_interrupt=jobs.cancel_on_interrupt,
    )


def follow(
    folders: Mapping[str, Path],
    *,
    environment: Mapping[str, str],
    place: Path,
    ui: UI,
    display: MultiProgress,
    cancel: bool = False,
) -> Outcomes:
    """Follow the jobs of plan folders to their end, and judge each as soon as its own have ended.

    `place` is what the user asks for the status of. A fault of recipe itself is raised.
    """
    slurm = Slurm(environment)
    ledgers = {name: ledger for name, folder in folders.items() if (ledger := read_ledger(folder))}
    jobs = [job.job for ledger in ledgers.values() for job in ledger.jobs]
    monitor = Monitor(slurm, jobs=jobs, builds=len(folders))

    def judge(name: str, folder: Path, progress: Progress) -> Report:
        report = finish(folder, environment=environment, progress=progress, monitor=monitor)
        ui.report(name, report)
        return report

    tasks: dict[str, Callable[[Progress], Report]] = {
        name: partial(judge, name, folder) for name, folder in folders.items()
    }
    images = {name: Path(ledger.output) for name, ledger in ledgers.items()}
    ended = run_together(tasks, images=images, display=display, parallel=len(tasks))
    if ended.stop is None:
        return ended
    left = [job for folder in folders.values() for job in list_open_jobs(read_ledger(folder), folder)]
    if cancel:
        slurm.cancel(left)
    ended.stop.message = describe_interrupt(left, place=place, cancelled=cancel)
    word = "cancelled" if cancel else "open"
    outcomes = {name: replace(one, word=word) if one.word == "stopped" else one for name, one in ended.outcomes.items()}
    return Outcomes(outcomes=outcomes, stop=ended.stop)


def write_arrays(builds: Builds, *, place: Path, most: int | None) -> list[Path]:
    """Write the arrays of plans, and the list of them; returns what submits each site's by hand."""
    arrays = [
        found.plan for own in group_by_site(builds).values() if (found := _make_arrays(own, place=place, most=most))
    ]
    listed = [ListedPlan(name=name, site=build.site.name, folder=build.folder.name) for name, build in builds.items()]
    write_plan_list(place, plans=listed, arrays=arrays)
    return [place / file.path for plan in arrays for file in plan.files if file.executable]


def _make_arrays(builds: Builds, *, place: Path, most: int | None) -> Arrays | None:
    """The arrays of one site's plans, None where it has no jobs for them."""
    tasks = [ArrayTask(folder=build.folder.name, plan=build.plan) for build in builds.values()]
    if not any(step.batch for task in tasks for step in task.plan.steps):
        return None
    most = most or MAX_TASKS
    plan = make_array_plan(next(iter(builds.values())).site, tasks, most=most)
    return Arrays(plan=plan, folder=place, most=most)


def group_by_site(builds: Mapping[str, Build]) -> dict[str, Builds]:
    names = dict.fromkeys(build.site.name for build in builds.values())
    return {site: {name: build for name, build in builds.items() if build.site.name == site} for site in names}
