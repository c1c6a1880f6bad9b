"""Every refusal of a build, checked once, in one order; then the plan folder."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from builder.execute.build_options import ExecutionOptions
from builder.execute.folder_lock import check_unlocked, lock_folder
from builder.execute.machine import check_base_here, check_machine, check_sbatch
from builder.execute.plan_executor import StepBatch, check_local_needs, choose_steps, select_steps
from builder.execute.plan_folder import check_copies, check_plan_folder, lock_plan_folder
from builder.execute.preflight import check_output_folder, check_output_reachable, is_login_node
from builder.execute.progress import QuietProgress
from builder.execute.replaceable import is_plan_folder
from builder.execute.report_file import explain_not_current, find_current_result
from builder.execute.signature import find_signer, is_signed
from builder.execute.uv_values import check_uv_values
from builder.model.finding import BuilderError, ConfigError, Finding, Location, ToolError, UnsupportedError
from builder.model.plan import Plan, Step
from builder.model.site import Site
from builder.model.text import exists
from builder.pipeline.own_inputs import check_own_inputs
from builder.pipeline.request import Build, BuildRequest, Builds, SlurmOptions, Tell
from builder.system.layout import JOBS, KEPT_FILE, PLAN_FILE, SUBMITTED_FILE

OUTPUT_CODES = ("output-input", "output-kind", "output-exists")  # of an output that cannot be written


@dataclass(frozen=True, kw_only=True)
class PreparedBuild:
    """A build that can begin: the steps that run here and, after them, those that are jobs.

    `done` says what is there already where there is nothing to do, else "".
    """

    build: Build
    folder: Path  # without links
    output: Path
    here: tuple[Step, ...] = ()
    jobs: tuple[Step, ...] = ()
    done: str = ""

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*self.here, *self.jobs)


def check_request(request: BuildRequest, builds: Builds) -> None:
    """Refuse what no build of several can do, and what stops all of them; raises ConfigError and ToolError."""
    if request.single:
        return
    if request.options.sign:
        message = "--sign with several images: only one can ask for a passphrase at a time"
        raise ConfigError(Finding(code="usage", message=message, fix="leave out --sign, or build them one by one"))
    if request.options.reproduce and request.slurm.submit:
        message = "--reproduce with --submit of several images: arrays have no second build"
        raise ConfigError(Finding(code="usage", message=message, fix="leave out --reproduce, or build them one by one"))
    if not request.slurm.submit or request.dry_run:
        return
    for build in builds.values():
        if build.site.scheduler.kind != "none" and build.plan.steps[0].batch:
            line = request.write_plan_line(build.site.name, build.recipe.file)
            check_sbatch(build.site, environment=request.options.environment, plan_line=line)


class Prepare(Protocol):
    """`prepare_build` of one request."""

    def __call__(self, build: Build, *, tell: Tell, held: ExitStack) -> PreparedBuild: ...


def prepare_build(build: Build, *, request: BuildRequest, tell: Tell, held: ExitStack) -> PreparedBuild:
    """Check for every reason to refuse a build, and write its plan folder, which is `held` from then on.

    Nothing is written where the image of this very plan is there already. Raises what stops the build.
    """
    ready, options = check_build(build, request=request, held=held), request.options
    if ready.done and options.reproduce:
        check_jobs_ended(ready.folder, environment=options.environment)
    elif ready.done:
        tell(f"nothing to do: {build.image} was built from this and {ready.done}; --force builds it again")
    if ready.done:
        _restore_record(build, ready, options=options)
        return ready
    new = not exists(ready.folder / PLAN_FILE)
    _forget_jobs(build.folder)
    free = partial(check_jobs_ended, environment=options.environment)
    held.enter_context(
        lock_plan_folder(build.plan, build.folder, recipe_folder=build.home, force=options.force, check_jobs=free)
    )
    if new:  # until now it was not held: another build may have put its image there
        select_steps(build.plan, folder=ready.folder, output=ready.output, options=options, named=build.image)
    return ready


def _restore_record(build: Build, ready: PreparedBuild, *, options: ExecutionOptions) -> None:
    """Write the plan and the report of an image into its folder again, where a later build failed to replace it."""
    if not (ready.folder / KEPT_FILE).exists():
        return
    from builder.inspect.origin import read_image_report, restore_report

    free = partial(check_jobs_ended, environment=options.environment)
    with lock_plan_folder(build.plan, build.folder, recipe_folder=build.home, check_jobs=free):
        if read_image_report(ready.folder, ready.output)[1]:
            restore_report(ready.folder)


def check_build(build: Build, *, request: BuildRequest, held: ExitStack | None = None) -> PreparedBuild:
    """Check for every reason to refuse a build before anything is written; raises them, and writes nothing.

    A dry run looks; a build keeps a plan folder that exists `held` from then on.
    """
    check_output_reachable(build.image)
    plan, options, image = build.plan, request.options, build.image
    folder, refusals = build.folder.resolve(), Refusals()
    # Where the image of jobs is a link, what it leads to is looked up when the image is put there.
    output = image.parent.resolve() / image.name if request.slurm.submit else image.resolve()
    with refusals.collect():
        check_own_inputs(build, request=request)
    with refusals.collect():
        check_uv_values(options.environment)
    _check_place(build, request=request, refusals=refusals)
    if not refusals.errors and (done := _find_done(build, options=options, folder=folder)):
        return PreparedBuild(build=build, folder=folder, output=output, done=done)
    with refusals.collect():
        if options.sign:
            find_signer(plan, environment=options.environment)
        check_output_folder(output, makes=build.makes_folder)
    with refusals.collect(needed=True):
        _keep_others_out(folder, held=held)
        check_jobs_ended(folder, environment=options.environment)
        _, steps = choose_steps(plan, options)
    with refusals.collect():
        # Before the plan folder changes: it belongs to the image that is there.
        why = partial(explain_not_current, plan, folder=folder, output=image, recipe_folder=build.home)
        makes = build.makes_folder
        select_steps(plan, folder=folder, output=output, options=options, named=image, makes=makes, why=why)
        if options.start:
            _check_skipped_products(build, steps, folder=folder)
    with refusals.collect():
        check_plan_folder(plan, build.folder, recipe_folder=build.home, force=options.force)
        check_copies(plan, folder=build.folder, recipe_folder=build.home)
    with refusals.collect(needed=True):
        here, jobs = _split_here_and_jobs(plan, steps, folder=folder, request=request)
        # Of a machine that lacks something one word is enough.
        if not any(isinstance(error, ToolError) for error in refusals.errors):
            _check_machine_needs(build, here=here, steps=steps, output=output, request=request)
    if refusals.errors:
        raise refusals.merge()
    return PreparedBuild(build=build, folder=folder, output=output, here=here, jobs=jobs)


def check_base_file(build: Build, *, environment: Mapping[str, str]) -> None:
    """Raise what a build would of a base image that is a file of this machine; one that is not here is not refused."""
    if build.plan.base.startswith("/") and Path(build.plan.base).exists():
        check_base_here(build.site, build.plan, at=build.base_at, environment=environment)


def _find_done(build: Build, *, options: ExecutionOptions, folder: Path) -> str:
    """What says that the image of this very plan is there already, "" where it is not or is to be made again."""
    if options.force or options.start:
        return ""
    done = find_current_result(
        build.plan, folder=folder, output=build.image, recipe_folder=build.home, no_smoke=options.no_smoke
    )
    return done if done and (not options.sign or is_signed(build.image)) else ""


def _check_skipped_products(build: Build, steps: tuple[Step, ...], *, folder: Path) -> None:
    """Raise ConfigError where a step is skipped and another plan, as of an earlier recipe, has made its product."""
    from builder.inspect.origin import compute_sources_identity, find_old_product

    sources = compute_sources_identity(build.plan, recipe_folder=build.home, folder=folder)
    if name := find_old_product(build.plan, steps, folder=folder, sources=sources):
        message = f"'{folder / name}' was not made from this recipe, base image and site as they are now"
        fix = "build it again with --force, without --from"
        raise ConfigError(Finding(code="no-product", message=message, at=Location(file=str(folder / name)), fix=fix))


def _keep_others_out(folder: Path, *, held: ExitStack | None) -> None:
    """Lock a plan folder that exists, so that what is looked at stays so; a dry run only looks at its lock."""
    if held is not None and is_plan_folder(folder):
        held.enter_context(lock_folder(folder))
    else:
        check_unlocked(folder)


def _check_machine_needs(
    build: Build, *, here: tuple[Step, ...], steps: tuple[Step, ...], output: Path, request: BuildRequest
) -> None:
    """Refuse what this machine cannot do; of all `steps` those of `here` run on it."""
    environment = request.options.environment
    check_machine(
        build.site, build.plan, steps=steps, here=here, environment=environment,
        plan_line=request.write_plan_line(build.site.name, build.recipe.file), base_at=build.base_at, sure=request.here,
    )  # fmt: skip
    if here:
        work = StepBatch(
            plan=build.plan, steps=here, folder=build.folder.resolve(), output=output, options=request.options,
            progress=QuietProgress(),
        )  # fmt: skip
        try:
            check_local_needs(work)
        except ToolError as error:
            line = request.write_plan_line(build.site.name, build.recipe.file)
            named = (
                _name_jobs_there(finding, here, site=build.site.name, plan_line=line) for finding in error.findings
            )
            raise ToolError(*(_name_other_backend(finding, build) for finding in named)) from None
        if any("docker" in step.programs for step in here):
            from builder.execute.docker_daemon import check_docker  # few builds need its daemon

            check_docker(environment)


class Refusals:
    """What several checks refuse, raised together: the exit code is that of the first."""

    def __init__(self) -> None:
        self.errors: list[BuilderError] = []

    @contextmanager
    def collect(self, *, needed: bool = False) -> Iterator[None]:
        """Note an error of these checks; where later ones need them, raise all that were noted."""
        try:
            yield
        except BuilderError as error:
            self.errors.append(error)
            if needed:
                raise self.merge() from None

    def merge(self) -> BuilderError:
        first, *others = self.errors
        more = [finding for error in others for finding in error.findings]
        if any(finding.code == "output-input" for finding in first.findings):  # it says more of the same output
            more = [finding for finding in more if finding.code not in OUTPUT_CODES]
        return type(first)(*dict.fromkeys((*first.findings, *more))) if more else first


def _name_jobs_there(finding: Finding, here: tuple[Step, ...], *, site: str, plan_line: str) -> Finding:
    """The finding on a missing program of a step that can be a job of the site, after steps that only run here."""
    lead = list(itertools.takewhile(lambda step: not step.batch, here))
    later = next((step for step in here if step.batch and f"step '{step.name}'" in finding.message), None)
    if finding.code != "no-program" or not lead or later is None:
        return finding
    scripts = " and ".join(f"`bash {step.script}`" for step in lead)
    there = f"`{plan_line}`, run {scripts} in that folder, copy it to '{site}', and go on there with"
    return replace(finding, fix=f"{finding.fix}; or {there} `--from {later.name} --submit`")


def _name_other_backend(finding: Finding, build: Build) -> Finding:
    """The finding on a missing program of a backend that --backend names: the site has one that it uses by default."""
    first, wanted = build.site.build.backends[0], build.context.backend
    if finding.code != "no-program" or wanted in ("", first):
        return finding
    return replace(finding, fix=f"{finding.fix}; or leave `--backend {wanted}` out to build with {first}")


def _split_here_and_jobs(
    plan: Plan, steps: tuple[Step, ...], *, folder: Path, request: BuildRequest
) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    if not request.slurm.submit:
        return steps, ()
    from builder.slurm.submit import split_steps

    return split_steps(plan, steps, folder=folder, environment=request.options.environment)


def _check_place(build: Build, *, request: BuildRequest, refusals: Refusals) -> None:
    """Refuse to submit where there is nothing to submit to, and to work where one should not."""
    options = request.options
    with refusals.collect():
        check_offline(build.plan, options, backends=build.site.build.backends)
        if options.reproduce:
            from builder.execute.reproduction import check_comparable

            check_comparable(build.plan)
    if not request.slurm.submit:
        with refusals.collect():
            check_here(build.site, here=request.here, what="a build")
        return
    with refusals.collect():
        if options.sign:
            message = "--sign with --submit: a job has no terminal to ask for a passphrase at"
            fix = "leave out --sign, and sign the image with `apptainer sign` afterwards"
            raise ConfigError(Finding(code="sign-job", message=message, fix=fix))
        if options.reproduce:
            from builder.slurm.submitted_jobs import check_jobs_again

            check_jobs_again(build.plan)
    lead = [step.name for step in choose_steps(build.plan, options)[1][:1] if not step.batch]
    with refusals.collect():
        check_scheduler(build.site)
        if not lead:  # else what this machine can do is done here first
            line = request.write_plan_line(build.site.name, build.recipe.file)
            check_sbatch(build.site, environment=options.environment, plan_line=line)
        check_account(build.site, slurm=request.slurm)
    with refusals.collect():
        if lead:
            what = f"step '{lead[0]}', which has no job there,"
            check_here(
                build.site, here=request.here, what=what, instead="run it on another machine and submit with --from"
            )


def check_offline(plan: Plan, options: ExecutionOptions, *, backends: Collection[str]) -> None:
    """Refuse what needs servers where none may be asked."""
    if options.environment.get("RECIPE_OFFLINE"):  # few builds load what knows of it
        from builder.execute import fetch

        fetch.check_offline(plan, options, backends=backends)


def check_jobs_possible(site: Site, *, slurm: SlurmOptions) -> None:
    """Raise where jobs cannot be submitted at all: no scheduler there, none here, no account given."""
    check_scheduler(site)
    check_sbatch(site, environment=os.environ)
    check_account(site, slurm=slurm)


def check_scheduler(site: Site) -> None:
    """Raise UnsupportedError where a site has no batch system."""
    if site.scheduler.kind == "none":
        raise UnsupportedError(make_no_scheduler(site))


def make_no_scheduler(site: Site) -> Finding:
    """The finding for a site without a batch system."""
    message = f"'{site.name}' has no batch system: nothing can be submitted there"
    return Finding(code="no-scheduler", message=message, fix="leave --submit out")


def check_account(site: Site, *, slurm: SlurmOptions) -> None:
    """Raise ConfigError where an account is required and none is given."""
    if site.scheduler.account == "required" and not slurm.find_account(site.name):
        message = f"'{site.name}' requires a Slurm account"
        form = site.scheduler.account_form or "NAME"
        fix = f"give --account={shlex.quote(form)}, or set SBATCH_ACCOUNT"
        raise ConfigError(Finding(code="job-account", message=message, at=Location(key="--account"), fix=fix))


def check_here(site: Site, *, here: bool, what: str, instead: str = "give --submit to make it a job") -> None:
    """Raise ConfigError where this is a login node of the site and its file says that heavy work is not welcome.

    `instead` says where it is welcome.
    """
    if here or site.build.login_heavy != "no" or not is_login_node(site, environment=os.environ):
        return
    message = f"this is a login node of '{site.name}', where {what} is too heavy"
    fix = f"{instead}, or give --here to run it on this machine all the same"
    raise ConfigError(Finding(code="login-node", message=message, fix=fix))


def make_folder(folder: Path) -> None:
    """Make the folder of several images; raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the folder '{folder}' cannot be made: {(error.strerror or str(error)).lower()}"
        raise ConfigError(Finding(code="output-folder", message=message, fix="name another one with -o")) from None


def check_jobs_ended(folder: Path, *, environment: Mapping[str, str] = os.environ) -> None:
    """Raise ConfigError while jobs that were submitted from a folder wait or run."""
    if (folder / JOBS / SUBMITTED_FILE).exists():
        from builder.slurm.client import Slurm  # few folders have jobs
        from builder.slurm.submit import check_no_open_jobs

        check_no_open_jobs(folder, slurm=Slurm(environment))


def _forget_jobs(folder: Path) -> None:
    """Remove the second build of jobs that nothing has judged."""
    if (folder / JOBS / SUBMITTED_FILE).exists():
        from builder.slurm.submitted_jobs import remove_again

        remove_again(folder)
