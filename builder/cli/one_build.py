"""One build: from a plan to its image and verdict, here or as jobs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from builder.cli.batch import Asked, check_site
from builder.cli.inputs import make_plan
from builder.cli.login import check_here
from builder.execute.executor import choose_steps, execute, raise_for, verify
from builder.execute.folder import hold_plan
from builder.execute.hold import hold
from builder.execute.image.current import current_report, not_this
from builder.execute.image.sign import find_signer, is_signed
from builder.execute.names import JOBS, PLAN_FILE, SUBMITTED_FILE, plan_folder
from builder.execute.options import Options
from builder.execute.preflight import check_output
from builder.execute.progress import Progress
from builder.execute.report_file import read_report
from builder.model.finding import ConfigError, Finding
from builder.model.plan import Plan
from builder.model.recipe import Recipe
from builder.model.report import Report
from builder.model.site import Site
from builder.model.target import Context


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
    return ImageBuild(plan=plan, site=site, image=image, home=Path(recipe.folder))


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
    check_place(build, wanted=wanted)
    new = prepare(build, options=wanted.options, tell=tell, held=held)
    if not new and not wanted.options.verify:
        return True
    if wanted.asked.submit:
        from builder.cli.submission import Submission, to_verdict

        what = Submission(
            plan=build.plan, site=build.site, kind="build", folder=build.folder, output=build.image,
            options=wanted.options, built=not new,
        )  # fmt: skip
        return to_verdict(what, asked=wanted.asked, progress=progress, show=show, tell=tell)
    if not new:
        _verify(build, wanted=wanted, progress=progress, show=show)
        return True
    report = execute(build.plan, folder=build.folder, output=build.image, options=wanted.options, progress=progress)
    show(report)
    raise_for(report)
    return True


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
    if wanted.options.sign:
        message = "--sign with --submit: a job has no terminal to ask for a passphrase at"
        fix = "leave out --sign, and sign the image with `apptainer sign` afterwards"
        raise ConfigError(Finding(code="sign-job", message=message, fix=fix))
    if wanted.options.verify:
        from builder.execute.jobs.again import check_jobs_again

        check_jobs_again(build.plan)
    check_site(build.site, asked=wanted.asked)
    lead = [step.name for step in choose_steps(build.plan, wanted.options)[1][:1] if not step.batch]
    if lead:
        what = f"step '{lead[0]}', which has no job there,"
        check_here(build.site, here=wanted.here, what=what, jobs=False)


def check_offline(plan: Plan, options: Options) -> None:
    """Refuse what needs servers where none may be asked."""
    if options.environment.get("RECIPE_OFFLINE"):  # few builds load what knows of it
        from builder.execute import fetch

        fetch.check_offline(plan, options)


def prepare(build: ImageBuild, *, options: Options, tell: Callable[[str], None], held: ExitStack) -> bool:
    """Write the plan folder, which is `held` from then on; False when there is nothing to do."""
    plan, folder, image = build.plan, build.folder, build.image
    if not (options.force or options.start):
        done = current_report(plan, folder=folder, output=image, recipe_folder=build.home, no_smoke=options.no_smoke)
        if done is not None and (not options.sign or is_signed(image)):
            if options.verify:
                _check_free(folder, options=options)
            else:
                tell(f"nothing to do: {image} was built from this and {done}; --force builds it again")
            return False
    if options.sign:
        find_signer(plan, environment=options.environment)
    if (folder / PLAN_FILE).is_file():
        held.enter_context(hold(folder.resolve()))  # what is looked at here stays so
    _check_free(folder, options=options)
    if not options.start:
        # Before the plan folder changes: it belongs to the image that is there.
        why = partial(not_this, plan, folder=folder, output=image, recipe_folder=build.home)
        check_output(plan, image.resolve(), force=options.force, kept=None, why=why)
    held.enter_context(hold_plan(plan, folder, recipe_folder=build.home))
    return True


def _check_free(folder: Path, *, options: Options) -> None:
    """Raise ConfigError while jobs of an earlier submission work there."""
    if (folder / JOBS / SUBMITTED_FILE).exists():
        from builder.execute.jobs.again import remove_again
        from builder.execute.jobs.slurm import Slurm
        from builder.execute.jobs.submit import check_free

        check_free(folder, slurm=Slurm(options.environment))
        remove_again(folder)  # of jobs that nobody has judged
