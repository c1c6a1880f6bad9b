"""Submit the steps of a plan as a chain of jobs, or those of several plans as a chain of arrays.

Each job is noted in the ledger of its plan folder as soon as it is in the queue; steps that the site has no job for run
on this machine first.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from builder.compile.step_scripts import compute_notice, parse_minutes
from builder.execute.build_options import JobOverrides
from builder.execute.execution import LocalPrefix
from builder.execute.preflight import find_programs
from builder.execute.reproduction import list_rebuild_steps
from builder.execute.step_runner import make_room
from builder.inspect.origin import Origin
from builder.layers.uv import VARIABLE, find_own_uv
from builder.model.finding import BuilderError, ConfigError, Finding, Location, ToolError, UnsupportedError
from builder.model.plan import Plan, Step, StepJob, signal_option
from builder.slurm.client import Slurm
from builder.slurm.ledger import Kind, Ledger, SubmittedJob, forget_ledger, list_open_jobs, read_ledger, write_ledger
from builder.system.layout import AGAIN
from builder.system.process import find_program

Steps = tuple[Step, ...]


def split_steps(
    plan: Plan, steps: Sequence[Step], *, folder: Path, environment: Mapping[str, str]
) -> tuple[Steps, Steps]:
    """Split into the leading steps that have no job, to run here, and the jobs after them.

    Raises UnsupportedError when a later step cannot be a job of the site, and ToolError when this machine has not both
    sbatch and what the leading steps need.
    """
    count = next((number for number, step in enumerate(steps) if step.batch), len(steps))
    lead, jobs = tuple(steps[:count]), tuple(steps[count:])
    jobless = [step for step in (jobs or lead) if not step.batch]
    if jobless:
        raise UnsupportedError(*[_make_no_job_finding(plan, step) for step in jobless])
    if lead:
        _check_machine(lead, jobs[0], folder=folder, environment=environment)
    return lead, jobs


def _make_no_job_finding(plan: Plan, step: Step) -> Finding:
    message = f"step '{step.name}' has no job on '{plan.site}': {step.why}"
    fix = "run it without --submit, or add a job 'build' to a site of your own"
    return Finding(code="step-no-job", message=message, fix=fix)


def _check_machine(lead: Steps, first: Step, *, folder: Path, environment: Mapping[str, str]) -> None:
    names = ", ".join(f"'{step.name}'" for step in lead)
    scripts = " and ".join(f"`bash {step.script}`" for step in lead)
    made = ", ".join(f"'{name}'" for step in lead for name in step.produces)
    if find_program("sbatch", env=environment) is None:
        message = f"there is no 'sbatch' on PATH: {names} can run here, the jobs after it cannot"
        fix = f"write '{folder.name}' with `recipe plan`, run {scripts} in it, copy it to the site, "
        fix += f"and go on there with --from {first.name} --submit"
        raise ToolError(Finding(code="no-program", message=message, fix=fix))
    try:
        find_programs(lead, environment=environment)
    except ToolError as error:
        elsewhere = f"or run {scripts} of '{folder}' where it is, put {made} there, and submit with --from {first.name}"
        raise ToolError(
            *[
                Finding(code=finding.code, message=finding.message, fix=f"{finding.fix}; {elsewhere}")
                for finding in error.findings
            ]
        ) from None


_NO_EXPORT = "--export=NONE"
# What builds and runs respect of the user's environment; it goes along where a site's jobs inherit nothing.
_RESPECTED = re.compile(
    r"RECIPE_\w+|PIP_\w+|UV_\w+|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|(?:APPTAINER|SINGULARITY)_BIND|"
    r"SOURCE_DATE_EPOCH|\w+_proxy|\w+_PROXY"
)


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """How the jobs of a plan are submitted: by the site's rules and the user's options.

    `variables` are set for the jobs, on top of the user's `environment`; `command` is the file of what is to run.
    `site_variables` are names that the site sets and the user may export instead. `array` says which tasks, where jobs
    are arrays; `again` the variables of a second build, None where there is none.
    """

    kind: Kind
    site_options: tuple[str, ...] = ()
    overrides: JobOverrides
    environment: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    command: str = ""  # below the plan folder
    site_variables: tuple[str, ...] = ()
    array: str = ""
    again: Mapping[str, str] | None = None


def check_jobs(steps: Sequence[Step], *, batch: SubmitOptions, folder: Path, slurm: Slurm) -> None:
    """Ask for each job whether Slurm would take it; raises ConfigError with every fault of each."""
    findings = []
    for step in steps:
        argv = make_arguments(step, batch=batch, after=(), dependency=False)
        refused = slurm.test(argv, folder=folder, step=step.name, more=collect_variables(batch, folder))
        findings += [refused] if refused is not None else _check_time_limit(step, batch=batch, slurm=slurm)
    if any(finding.code == "no-slurm" for finding in findings):
        raise ToolError(findings[0])
    if findings:
        raise ConfigError(*dict.fromkeys(findings))


@dataclass(frozen=True, kw_only=True)
class Task:
    """One plan of a submission, and those of its steps that are to run; of arrays the number of its task."""

    plan: Plan
    folder: Path
    output: Path
    steps: tuple[Step, ...]
    number: int = 0
    lead: LocalPrefix = field(default_factory=LocalPrefix)
    origin: Origin = field(default_factory=Origin)

    def find_step(self, name: str) -> Step | None:
        """Its own step of a name."""
        return next((step for step in self.steps if step.name == name), None)


def submit(
    steps: Sequence[Step],
    tasks: Sequence[Task],
    *,
    batch: SubmitOptions,
    folder: Path,
    slurm: Slurm,
    undisturbed: Callable[[], AbstractContextManager[None]],
) -> None:
    """Submit the steps from a folder, each build step after the one before it, every smoke test after the last of them.

    A step is a job of the only task, or with `batch.array` an array of which each task follows its own of the step
    before. A second build comes after the first. What is in the queue when one of them is refused is cancelled. Raises
    StepError, or OSError when a folder cannot be written.
    """
    ledgers = {task.number: _begin_ledger(task, batch=batch) for task in tasks}
    submitted: list[str] = []
    after: tuple[str, ...] = ()
    try:
        for step, again in _order_steps(steps, tasks, again=batch.again is not None):
            with undisturbed():
                number, jobs = _submit(step, tasks, batch=batch, after=after, folder=folder, slurm=slurm, again=again)
                submitted.append(number)
                for task in tasks:
                    if task.number in jobs:
                        ledgers[task.number] = _add_job(ledgers[task.number], jobs[task.number], after)
                        write_ledger(ledgers[task.number], task.folder)
            if step.kind != "smoke":
                after = (number,)
    except (BuilderError, OSError):
        slurm.cancel(submitted)
        for task in tasks:
            if not ledgers[task.number].jobs:
                forget_ledger(task.folder)
        raise


def _begin_ledger(task: Task, *, batch: SubmitOptions) -> Ledger:
    """Write a ledger without jobs: a folder that cannot be written is known before a job is there."""
    ledger = Ledger(
        site=task.plan.site, kind=batch.kind, output=str(task.output), lead=task.lead, command=batch.command,
        origin=task.origin,
    )  # fmt: skip
    write_ledger(ledger, task.folder)
    return ledger


def _order_steps(steps: Sequence[Step], tasks: Sequence[Task], *, again: bool) -> list[tuple[Step, bool]]:
    """The steps in the order of their jobs, each with whether it is of a second build."""
    return [(step, False) for step in steps] + [(step, True) for step in list_rebuild_steps(tasks[0].plan) if again]


def _submit(
    step: Step,
    tasks: Sequence[Task],
    *,
    batch: SubmitOptions,
    after: tuple[str, ...],
    folder: Path,
    slurm: Slurm,
    again: bool,
) -> tuple[str, dict[int, SubmittedJob]]:
    """Submit one step: the number of its job or array, and the job of each task.

    That of a second build runs in a folder of its own; its log and its record are with the others.
    """
    own = [(task, one) for task in tasks if (one := step if again else task.find_step(step.name)) is not None]
    before = {} if again else {task.number: make_room(task.plan, one, task.folder) for task, one in own}
    place = folder / AGAIN if again else folder
    variables = {**collect_variables(batch, place), **((batch.again or {}) if again else {})}
    name = f"{find_step_job(step).name}-{AGAIN}" if again else find_step_job(step).name
    argv = make_arguments(step, batch=replace(batch, variables=variables) if again else batch, after=after, name=name)
    number = slurm.submit(argv, folder=folder, step=step.name, more=variables)
    jobs = {}
    for task, one in own:
        job = f"{number}_{task.number}" if batch.array else number
        jobs[task.number] = SubmittedJob(
            job=job,
            step=f"{AGAIN}-{one.name}" if again else one.name,
            script=one.batch,
            log=f"{name}-{job}.log",
            submitted=time.time(),
            argv=("sbatch", *argv),
            before=before.get(task.number, {}),
        )
    return number, jobs


def _add_job(ledger: Ledger, job: SubmittedJob, after: tuple[str, ...]) -> Ledger:
    """The ledger with one job more, which waits for that of the step before where this plan has one."""
    waits = tuple(one.job for one in ledger.jobs if one.job.partition("_")[0] in after)
    return ledger.add_job(replace(job, after=waits))


def select_tasks(batch: SubmitOptions, numbers: Sequence[int], *, most: int) -> SubmitOptions:
    """For some tasks only: a task that has nothing to do is left out of every array."""
    return replace(batch, array=f"{','.join(map(str, numbers))}%{most}")


def make_arguments(
    step: Step, *, batch: SubmitOptions, after: tuple[str, ...], dependency: bool = True, name: str = ""
) -> tuple[str, ...]:
    """The words after `sbatch`; names and the log are said again, since SBATCH_* variables win over a script."""
    job = find_step_job(step)
    name = name or job.name
    words = [f"--job-name={name}", f"--output={job.log.replace('%x', name)}", *_export(batch)]
    words += [f"--array={batch.array}"] if batch.array else []
    overrides = batch.overrides
    for option in ("partition", "qos", "time", "mem"):
        value = overrides.find(option, step=step.name)
        words += [f"--{option}={value}"] if value else []
    if overrides.account:
        words.append(f"--account={overrides.account}")
    if overrides.find("time", step=step.name):
        minutes = parse_minutes(overrides.find("time", step=step.name))
        words.append(f"--signal={signal_option(compute_notice(minutes))}")
    when = "aftercorr" if batch.array else "afterok"
    conditions = [f"{when}:{job}" for job in after] or ([overrides.dependency] if overrides.dependency else [])
    if dependency and conditions:
        # What can never run does not wait.
        words += [f"--dependency={','.join(conditions)}", "--kill-on-invalid-dep=yes"]
    return (*words, step.batch)


def find_step_job(step: Step) -> StepJob:
    """What a step's job asks for; of a plan that does not say it, its name alone is known."""
    return step.job or StepJob(name=PurePosixPath(step.batch).stem)


def list_unfinished(folder: Path, *, slurm: Slurm) -> tuple[str, ...]:
    """Jobs of a folder that wait or run."""
    ledger = read_ledger(folder)
    open_jobs = [] if ledger and ledger.finished else list_open_jobs(ledger, folder)
    states = slurm.query_states(open_jobs) if open_jobs else {}
    if states is None:
        return tuple(open_jobs)  # no answer: better too careful
    return tuple(job for job in open_jobs if job in states and states[job].stage in ("waiting", "running"))


def check_no_open_jobs(folder: Path, *, slurm: Slurm) -> None:
    """Raise ConfigError when jobs of an earlier submission still work in a folder."""
    jobs = list_unfinished(folder, slurm=slurm)
    if jobs:
        what = f"job {jobs[0]} of this folder is" if len(jobs) == 1 else f"jobs {', '.join(jobs)} of this folder are"
        message = f"{what} still waiting or running"
        fix = f"see `recipe status {folder}`; add --cancel to end them"
        raise ConfigError(Finding(code="jobs-running", message=message, at=Location(file=str(folder)), fix=fix))


def _export(batch: SubmitOptions) -> list[str]:
    """The site's own options; where jobs inherit nothing, what they need is named (values are no words of ours)."""
    if _NO_EXPORT not in batch.site_options and batch.environment.get("SBATCH_EXPORT") != "NONE":
        return list(batch.site_options)
    own = {name for name in batch.site_variables if not name.startswith("SLURM_")}
    respected = {name for name in batch.environment if name in own or _RESPECTED.fullmatch(name)}
    names = sorted({*collect_variables(batch, Path()), *respected})
    return [*(word for word in batch.site_options if word != _NO_EXPORT), f"--export={','.join(names)}"]


def collect_variables(batch: SubmitOptions, folder: Path) -> dict[str, str]:
    """What is set for the jobs that are submitted from a folder."""
    own = find_own_uv()  # jobs inherit the user's PATH, on which another may come first
    given = {VARIABLE: own} if own and not batch.environment.get(VARIABLE) else {}
    return {**given, **batch.variables, "RECIPE_FOLDER": str(folder)}


def _choose_value(given: str, step: Step, option: str, variable: str, *, batch: SubmitOptions) -> str:
    """An option's value in sbatch's own order: the command line, the environment, what the script has (`given`)."""
    return batch.overrides.find(option, step=step.name) or batch.environment.get(variable, "") or given


def _check_time_limit(step: Step, *, batch: SubmitOptions, slurm: Slurm) -> list[Finding]:
    """sbatch takes a job that is longer than its partition allows, and never starts it."""
    job = find_step_job(step)
    wanted = _choose_value(job.time, step, "time", "SBATCH_TIMELIMIT", batch=batch)
    longest = slurm.query_time_limit(_choose_value(job.partition, step, "partition", "SBATCH_PARTITION", batch=batch))
    try:
        too_long = parse_minutes(wanted) > parse_minutes(longest)
    except ValueError:
        return []  # UNLIMITED, or unknown
    if not too_long:
        return []
    message = f"the job of step '{step.name}' is refused: {wanted} is longer than the {longest} of its partition"
    return [Finding(code="job-time", message=message, fix="ask for less with --time, or choose another --partition")]
