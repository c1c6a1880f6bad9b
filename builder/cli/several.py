"""Several builds in one call: side by side, one display, one table at the end; one that fails stops no other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from builder.cli.build import describe, visible
from builder.cli.inputs import sites_folder
from builder.cli.one_build import ImageBuild, Wanted, carry_out, planned, preflight
from builder.cli.show import columns, echo, emit, painted, show_findings, use_color
from builder.cli.words import Named
from builder.execute.executor import raise_for
from builder.execute.machine import check_sbatch
from builder.execute.many.side_by_side import Halt, Heeding, SideBySide, at_once
from builder.execute.many.together import choose_together
from builder.execute.options import Interrupted
from builder.execute.progress import Progress, duration
from builder.model.catalog import load_site
from builder.model.finding import BuilderError, ConfigError, Finding
from builder.model.reading.load import load_recipe
from builder.model.recipe import Recipe
from builder.model.report import Report
from builder.model.site import Site
from builder.model.target import Context

Planned = ImageBuild | BuilderError
WORDS = {2: "refused", 3: "refused", 4: "not begun", 5: "failed", 6: "smoke test failed", 7: "open", 8: "not the same"}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """How much is shown."""

    verbose: bool = False
    quiet: bool = False


NORMAL = Shown()


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How one of several ended, for the table; `image` is "" where there is none."""

    name: str
    word: str
    text: str = ""
    code: int = 0
    image: str = ""
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()


def build_several(
    plans: Mapping[str, Planned], *, folder: Path | None, wanted: Wanted, jobs: int | None, dry_run: bool, shown: Shown
) -> None:
    """Build them all; leaves with the worst exit code."""
    from builder.cli.many_jobs import build_arrays

    if wanted.options.sign:
        message = "--sign with several images: only one can ask for a passphrase at a time"
        raise ConfigError(Finding(code="usage", message=message, fix="leave out --sign, or build them one by one"))
    if wanted.options.verify and wanted.asked.submit:
        message = "--verify with --submit of several images: arrays have no second build"
        raise ConfigError(Finding(code="usage", message=message, fix="leave out --verify, or build them one by one"))
    if not shown.quiet:
        for name, build in plans.items():
            if isinstance(build, ImageBuild):
                show_of(name, visible(build.plan, verbose=shown.verbose or dry_run))
    ready = {name: build for name, build in plans.items() if isinstance(build, ImageBuild)}
    if dry_run:
        looked = {name: _look(name, build, wanted=wanted) for name, build in ready.items()}
        for name, build in ready.items():
            if not looked[name]:
                echo(describe(build.plan, image=build.image, folder=build.folder))
        refused = [refusal_of(name, error) for name, error in plans.items() if isinstance(error, BuilderError)]
        refused += [ending for ending in looked.values() if ending is not None]
        conclude(refused, shown=shown, table=False)
        return
    if wanted.asked.submit:
        _check_submission(ready.values(), wanted=wanted)
    if folder is not None:
        make_folder(folder)
    if wanted.asked.submit:
        ended, stop = build_arrays(ready, place=folder or Path(), wanted=wanted, most=jobs, shown=shown)
    else:
        ended, stop = _carry_out(ready, wanted=wanted, jobs=jobs, shown=shown)
    refused_too = {name: refusal_of(name, error) for name, error in plans.items() if isinstance(error, BuilderError)}
    conclude([(ended | refused_too)[name] for name in plans], shown=shown, stop=stop)


def _check_submission(builds: Iterable[ImageBuild], *, wanted: Wanted) -> None:
    """Raise ToolError, once for all of them, where there is nothing to submit to."""
    for build in builds:
        if build.site.scheduler.kind != "none" and build.plan.steps[0].batch:
            check_sbatch(build.site, environment=wanted.options.environment, recipe=build.file)


def _look(name: str, build: ImageBuild, *, wanted: Wanted) -> Ending | None:
    """What a build would be refused for."""
    try:
        preflight(build, wanted=wanted)
    except BuilderError as error:
        return refusal_of(name, error)
    return None


def plan_several(
    named: Named,
    *,
    context: Context,
    shape: tuple[int | None, int | None],
    folder: Path | None,
    kits: bool = False,
) -> dict[str, Planned]:
    """Plan every file for every site; a refusal is the answer for that one. Raises ConfigError for faulty files.

    `kits` says that no images are made, only plan folders.
    """
    sites, recipes = _load(named)
    if folder is not None and (folder.is_file() or folder.suffix == ".sif"):
        message = f"'{folder}' cannot hold several {'plan folders' if kits else 'images'}: -o is a folder here"
        raise ConfigError(Finding(code="usage", message=message, fix="name a folder with -o"))
    found: dict[str, Planned] = {}
    for recipe in recipes:
        for site in sites:
            name = site.name if len(recipes) == 1 else f"{recipe.name}-{site.name}"
            if name in found:
                message = f"two of them are called '{recipe.name}': '{recipe.file}' is the second"
                raise ConfigError(Finding(code="usage", message=message, fix="give it another name with `name:`"))
            try:
                found[name] = planned(site, recipe, context=context, shape=shape, folder=folder)
            except BuilderError as error:
                found[name] = error
    return found


def _load(named: Named) -> tuple[list[Site], list[Recipe]]:
    """Read all files; raises ConfigError with the faults of every one of them."""
    faults: list[Finding] = []
    recipes: list[Recipe] = []
    sites: list[Site] = []
    for file in named.files:
        try:
            recipes.append(load_recipe(file))
        except ConfigError as error:
            faults += error.findings
    for name in named.sites:
        try:
            sites.append(load_site(name, folder=sites_folder()))
        except ConfigError as error:
            faults += error.findings
    if faults:
        raise ConfigError(*dict.fromkeys(faults))
    return sites, recipes


def make_folder(folder: Path) -> None:
    """Make the folder of several images; raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"the folder '{folder}' cannot be made: {(error.strerror or str(error)).lower()}"
        raise ConfigError(Finding(code="output-folder", message=message, fix="name another one with -o")) from None


def _carry_out(
    builds: dict[str, ImageBuild], *, wanted: Wanted, jobs: int | None, shown: Shown
) -> tuple[dict[str, Ending], Interrupted | None]:
    """Build them side by side; what came of each, and the signal that stopped them."""
    halt, environment = Halt(), dict(wanted.options.environment)
    together = choose_together(
        sys.stderr,
        width=max(map(len, builds), default=0),
        environment=environment,
        quiet=shown.quiet,
        verbose=shown.verbose,
        color=use_color(),
    )

    def task(name: str, build: ImageBuild) -> Callable[[], Ending]:
        return lambda: _one(name, build, wanted=wanted, progress=Heeding(together.side(name), halt=halt))

    with together.shown():
        tasks = [task(name, build) for name, build in builds.items()]
        results = SideBySide[Ending](jobs=jobs or at_once(len(tasks)), halt=halt).run(tasks)
    ended = {}
    for name, result in zip(builds, results, strict=True):
        if isinstance(result, Ending):
            ended[name] = result
        elif isinstance(result, Interrupted):
            ended[name] = Ending(name=name, word="stopped", text=result.message, code=result.exit_code)
        elif isinstance(result, BuilderError):
            ended[name] = refusal_of(name, result)
        else:
            raise result  # a fault of ours
    return ended, Interrupted(halt.number) if halt.number else None


def _one(name: str, build: ImageBuild, *, wanted: Wanted, progress: Progress) -> Ending:
    """Build one; its failure is its ending."""
    reports: list[Report] = []
    try:
        done = carry_out(build, wanted=wanted, progress=progress, show=reports.append, tell=progress.note)
    except BuilderError as error:
        return refusal_of(name, error, seconds=reports[0].seconds if reports else 0.0)
    if not done:
        return Ending(name=name, word="submitted", text=f"recipe status {build.folder}")
    if not reports:
        return Ending(name=name, word="nothing to do", text=str(build.image), image=str(build.image))
    return ending_of(name, reports[0], image=build.image)


def ending_of(name: str, report: Report, *, image: Path) -> Ending:
    """The ending that a report tells of."""
    try:
        raise_for(report)
    except BuilderError as error:
        return refusal_of(name, error, seconds=report.seconds)
    size = f", {report.image_bytes / 1e6:.0f} MB" if report.image_bytes else ""
    return Ending(name=name, word=report.status, text=f"{image}{size}", image=str(image), seconds=report.seconds)


def refusal_of(name: str, error: BuilderError, *, seconds: float = 0.0) -> Ending:
    """The ending of what failed or could not begin."""
    worst = next((finding for finding in error.findings if finding.level == "error"), error.findings[0])
    word = WORDS.get(error.exit_code, "failed")
    return Ending(
        name=name, word=word, text=worst.message, code=error.exit_code, findings=error.findings, seconds=seconds
    )


def conclude(
    endings: Sequence[Ending],
    *,
    shown: Shown = NORMAL,
    stop: Interrupted | None = None,
    table: bool = True,
    paths: bool = True,
) -> None:
    """Print what failed and why, then the table and the images' `paths`, and exit with the worst exit code."""
    for ending in endings:
        show_of(ending.name, ending.findings)
    if table and not shown.quiet:
        echo(columns(list(_rows(endings))), err=True)
    for ending in endings:
        if ending.image and paths:
            emit(ending.image)
    if stop is not None:
        raise stop
    code = max((ending.code for ending in endings), default=0)
    if code:
        raise click.exceptions.Exit(code)


def show_of(name: str, findings: Sequence[Finding]) -> None:
    """Findings below the name they belong to."""
    if findings:
        echo(f"{name}:", err=True)
        show_findings(findings)


def _rows(endings: Sequence[Ending]) -> Iterator[list[str]]:
    yield ["build", "verdict", "time", "image"]
    for ending in endings:
        taken = duration(ending.seconds) if ending.seconds else "-"
        yield [ending.name, painted(ending.word, err=True), taken, ending.text or "-"]
