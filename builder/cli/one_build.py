"""One build: from a plan to its image and verdict, here or as jobs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from builder.cli.batch import Asked, check_account, check_scheduler
from builder.cli.inputs import make_plan
from builder.cli.login import check_here
from builder.execute.executor import Work, able, choose_steps, chosen, execute, raise_for, verify
from builder.execute.folder import check_plan_folder, hold_plan
from builder.execute.hold import check_not_held, hold
from builder.execute.image.current import current_report, not_this
from builder.execute.image.sign import find_signer, is_signed
from builder.execute.machine import check_machine, check_sbatch
from builder.execute.names import JOBS, PLAN_FILE, SUBMITTED_FILE, plan_folder
from builder.execute.options import Options
from builder.execute.preflight import check_output_folder
from builder.execute.progress import Progress, QuietProgress
from builder.execute.report_file import read_report
from builder.model.finding import ConfigError, Finding, Place
from builder.model.plan import Plan
from builder.model.recipe import Recipe
from builder.model.report import Report
from builder.model.safe import is_there, shown
from builder.model.site import Site
from builder.model.target import Context

if TYPE_CHECKING:
    from builder.cli.submission import Submission


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command line says, of one build or of each of several."""

    asked: Asked
    options: Options
    here: bool = False


@dataclass(frozen=True, kw_only=True)
class ImageBuild:
    """A plan with the places of its image and of its folder; `home` is the recipe's folder."""

    plan: Plan
    site: Site
    image: Path
    home: Path
    file: str  # the recipe, as a command names it
    makes: bool = False  # the folder of the image is made where it is missing
    base_at: Place  # what names a base image of the user's own

    @property
    def folder(self) -> Path:
        """The plan folder, beside the image."""
        return plan_folder(self.image)


def planned(
    site: Site,
    recipe: Recipe,
    *,
    context: Context,
    shape: tuple[int | None, int | None] = (None, None),
    output: Path | None = None,
    folder: Path | None = None,
) -> ImageBuild:
    """Resolve and compile; `output` is the image, else it has the plan's own name, in `folder`.

    `shape`: nodes, and devices of each, of the suite that is one step more.
    """
    plan = make_plan(site, recipe, context=context, nodes=shape[0], devices=shape[1])
    image = output or (folder or Path()) / plan.image
    base_at = Place(key="--base") if context.base else Place(file=shown(recipe.file), key="container.base")
    return ImageBuild(
        plan=plan, site=site, image=image, home=Path(recipe.folder), file=recipe.file, makes=folder is not None,
        base_at=base_at,
    )  # fmt: skip


def carry_out(
    build: ImageBuild,
    *,
    wanted: Wanted,
    progress: Progress,
    show: Callable[[Report], None],
    tell: Callable[[str], None],
) -> bool:
    """Build, or submit and follow; False when it was submitted and nobody waits for the verdict.

    `show` gets the report, which may be of a failure, `tell` what else is worth a line. Raises what stops it.
    """
    with ExitStack() as held:
        return _carry_out(build, wanted=wanted, progress=progress, show=show, tell=tell, held=held)


def _carry_out(
    build: ImageBuild,
    *,
    wanted: Wanted,
    progress: Progress,
    show: Callable[[Report], None],
    tell: Callable[[str], None],
    held: ExitStack,
) -> bool:
    new = prepare(build, wanted=wanted, tell=tell, held=held)
    if not new and not wanted.options.verify:
        return True
    if wanted.asked.submit:
        from builder.cli.submission import to_verdict

        what = _submission(build, wanted=wanted, built=not new)
        return to_verdict(what, asked=wanted.asked, progress=progress, show=show, tell=tell)
    if not new:
        _verify(build, wanted=wanted, progress=progress, show=show)
        return True
    report = execute(build.plan, folder=build.folder, output=build.image, options=wanted.options, progress=progress)
    show(report)
    raise_for(report)
    return True


def _submission(build: ImageBuild, *, wanted: Wanted, built: bool = False) -> Submission:
    from builder.cli.submission import Submission

    return Submission(
        plan=build.plan, site=build.site, kind="build", folder=build.folder, output=build.image,
        options=wanted.options, built=built,
    )  # fmt: skip


def _verify(build: ImageBuild, *, wanted: Wanted, progress: Progress, show: Callable[[Report], None]) -> None:
    """Build again an image that is there already."""
    known = read_report(build.folder)
    if known is None:
        return
    report = verify(
        build.plan, folder=build.folder, output=build.image, report=known, options=wanted.options, progress=progress
    )
    show(report)
    raise_for(report)


def check_place(build: ImageBuild, *, wanted: Wanted) -> None:
    """Refuse to submit where there is nothing to submit to, and to work where one should not."""
    check_offline(build.plan, wanted.options)
    if wanted.options.verify:
        from builder.execute.image.again import check_comparable

        check_comparable(build.plan)
    if not wanted.asked.submit:
        check_here(build.site, here=wanted.here, what="a build")
        return
    environment = wanted.options.environment
    if wanted.options.sign:
        message = "--sign with --submit: a job has no terminal to ask for a passphrase at"
        fix = "leave out --sign, and sign the image with `apptainer sign` afterwards"
        raise ConfigError(Finding(code="sign-job", message=message, fix=fix))
    if wanted.options.verify:
        from builder.execute.jobs.again import check_jobs_again

        check_jobs_again(build.plan)
    lead = [step.name for step in choose_steps(build.plan, wanted.options)[1][:1] if not step.batch]
    check_scheduler(build.site)
    if not lead:  # else what this machine can do is done here first
        check_sbatch(build.site, environment=environment, recipe=build.file)
    check_account(build.site, asked=wanted.asked)
    if lead:
        what = f"step '{lead[0]}', which has no job there,"
        check_here(build.site, here=wanted.here, what=what, jobs=False)


def check_offline(plan: Plan, options: Options) -> None:
    """Refuse what needs servers where none may be asked."""
    if options.environment.get("RECIPE_OFFLINE"):  # few builds load what knows of it
        from builder.execute import fetch

        fetch.check_offline(plan, options)


def preflight(build: ImageBuild, *, wanted: Wanted, held: ExitStack | None = None) -> str:
    """Look for all that speaks against a build before anything is written; writes nothing, and raises what stops it.

    Says what is there already where there is nothing to do, else "". A dry run looks, and asks Slurm whether it would
    take the jobs; a build keeps a plan folder that exists `held` from then on.
    """
    check_place(build, wanted=wanted)
    plan, options, image = build.plan, wanted.options, build.image
    folder = build.folder.resolve()
    # Where the image of jobs is a link, what it leads to is looked up when the image is put there.
    output = image.parent.resolve() / image.name if wanted.asked.submit else image.resolve()
    if not (options.force or options.start):
        done = current_report(plan, folder=folder, output=image, recipe_folder=build.home, no_smoke=options.no_smoke)
        if done is not None and (not options.sign or is_signed(image)):
            return done
    if options.sign:
        find_signer(plan, environment=options.environment)
    check_output_folder(output, makes=build.makes)
    if held is not None and is_there(folder / PLAN_FILE):
        held.enter_context(hold(folder))  # what is looked at here stays so
    else:
        check_not_held(folder)
    _check_free(folder, options=options)
    # Before the plan folder changes: it belongs to the image that is there.
    why = partial(not_this, plan, folder=folder, output=image, recipe_folder=build.home)
    steps = chosen(plan, folder=folder, output=output, options=options, makes=build.makes, why=why)
    check_plan_folder(plan, folder, recipe_folder=build.home, force=options.force)
    here, jobs = steps, steps[:0]
    if wanted.asked.submit:
        from builder.execute.jobs.split import split_steps

        here, jobs = split_steps(plan, steps, folder=folder, environment=options.environment)
    check_machine(
        build.site, plan, steps=steps, here=here, environment=options.environment, recipe=build.file,
        base_at=build.base_at,
    )  # fmt: skip
    if here:
        able(Work(plan=plan, steps=here, folder=folder, output=output, options=options, progress=QuietProgress()))
    if jobs and held is None:  # a build asks when its folder is written
        from builder.cli.submission import try_jobs

        try_jobs(_submission(build, wanted=wanted), jobs, asked=wanted.asked)
    return ""


def prepare(build: ImageBuild, *, wanted: Wanted, tell: Callable[[str], None], held: ExitStack) -> bool:
    """Write the plan folder, which is `held` from then on; False when there is nothing to do."""
    plan, folder, image, options = build.plan, build.folder, build.image, wanted.options
    done = preflight(build, wanted=wanted, held=held)
    if done and options.verify:
        _check_free(folder, options=options)
    elif done:
        tell(f"nothing to do: {image} was built from this and {done}; --force builds it again")
    if done:
        return False
    _forget_jobs(folder)
    held.enter_context(hold_plan(plan, folder, recipe_folder=build.home, force=options.force))
    return True


def _check_free(folder: Path, *, options: Options) -> None:
    """Raise ConfigError while jobs of an earlier submission work there."""
    if (folder / JOBS / SUBMITTED_FILE).exists():
        from builder.execute.jobs.slurm import Slurm
        from builder.execute.jobs.submit import check_free

        check_free(folder, slurm=Slurm(options.environment))


def _forget_jobs(folder: Path) -> None:
    """Remove the second build of jobs that nobody has judged."""
    if (folder / JOBS / SUBMITTED_FILE).exists():
        from builder.execute.jobs.again import remove_again

        remove_again(folder)
