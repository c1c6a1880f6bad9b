"""The program on a page: load, resolve, compile, prepare, run. One build is a list of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from builder.compile.compile import compile_plan
from builder.compile.launch.shape import choose_launch
from builder.model.finding import BuilderError, ConfigError, Finding, ToolError
from builder.model.recipe import Recipe
from builder.model.site import Site
from builder.pipeline.prepare import check_build, check_request, make_folder, prepare_build
from builder.pipeline.request import UI, Build, BuildRequest, Builds, Outcome, Outcomes, make_failure
from builder.pipeline.resolution import load, resolve_recipe
from builder.resolve.locked import refuse_unlocked

Planned: TypeAlias = dict[str, Build | BuilderError]


def build(request: BuildRequest, *, ui: UI) -> Outcomes:
    """Build every recipe of the request for every site; a failure does not stop the others.

    Raises ConfigError for faulty files and options, before anything is written.
    """
    planned = plan_builds(request)
    builds = {name: found for name, found in planned.items() if isinstance(found, Build)}
    refused = {name: make_failure(name, error) for name, error in planned.items() if isinstance(error, BuilderError)}
    if request.update:
        from builder.pipeline.update import apply_update  # few builds ask for it

        request = apply_update(request, builds)
    check_request(request, builds)
    for name, found in builds.items():
        ui.report_plan(name, found)
    if request.dry_run:
        return Outcomes(outcomes=refused | _look_at(builds, request, ui))
    if request.output is not None and not request.single:
        make_folder(request.output)
    ended = _prepare_and_run(builds, request, ui)
    return Outcomes(outcomes={name: {**refused, **ended.outcomes}[name] for name in planned}, stop=ended.stop)


def plan_builds(request: BuildRequest, *, what: str = "images") -> Planned:
    """Load, resolve, compile, as `recipe plan` and `recipe fetch` do, too; a refusal is the answer for that build.

    `what` names the products, for messages. Raises ConfigError for faulty files.
    """
    sites, recipes = load(request.sites, request.files, folder=request.sites_folder, choice=request.choice)
    planned: Planned = {}
    for name, site, recipe in _name_builds(sites, recipes, request=request, what=what):
        try:
            site = choose_launch(site, launcher=request.launch[0], gpu_visibility=request.launch[1])
            target = resolve_recipe(site, recipe, context=request.context)
            refuse_unlocked(target)
            nodes, devices = request.shape
            plan = compile_plan(target, nodes=nodes, devices=devices, page=not request.dry_run)
        except BuilderError as error:
            planned[name] = error
            continue
        image = request.output if request.single and request.output else (request.output or Path()) / plan.image
        makes = request.output is not None and not request.single
        planned[name] = Build(
            plan=plan, site=site, recipe=recipe, context=request.context, image=image, makes_folder=makes
        )
    return planned


def _name_builds(
    sites: Sequence[Site], recipes: Sequence[Recipe], *, request: BuildRequest, what: str
) -> Iterator[tuple[str, Site, Recipe]]:
    """Each recipe for each site; raises ConfigError for two of one name, and for a folder that cannot be one."""
    folder, names = request.output, set[str]()
    if folder is not None and not request.single and (folder.is_file() or folder.suffix == ".sif"):
        message = f"'{folder}' cannot hold several {what}: -o is a folder here"
        raise ConfigError(Finding(code="usage", message=message, fix="name a folder with -o"))
    for recipe in recipes:
        for site in sites:
            name = site.name if len(recipes) == 1 else f"{recipe.name}-{site.name}"
            if name in names:
                message = f"two of them are called '{recipe.name}': '{recipe.file}' is the second"
                raise ConfigError(Finding(code="usage", message=message, fix="give it another name with `name:`"))
            names.add(name)
            yield name, site, recipe


def _prepare_and_run(builds: Builds, request: BuildRequest, ui: UI) -> Outcomes:
    """Prepare each build where it runs, which is the last moment to refuse it, and run it: here, or as jobs."""
    prepare = partial(prepare_build, request=request)
    if not request.slurm.submit:
        from builder.pipeline.local import run_here

        return run_here(builds, prepare=prepare, request=request, ui=ui)
    from builder.pipeline.batch import run_jobs

    return run_jobs(builds, prepare=prepare, request=request, ui=ui)


def _look_at(builds: Builds, request: BuildRequest, ui: UI) -> dict[str, Outcome]:
    """Look at what each build needs, ask Slurm about its jobs, and describe those that some machine could begin."""
    refused = {}
    for name, found in builds.items():
        try:
            ready = check_build(found, request=request)
            if ready.jobs:
                from builder.pipeline.batch import try_jobs

                try_jobs(ready, request=request)
        except BuilderError as error:
            refused[name] = make_failure(name, error)
            if isinstance(error, ToolError):  # this machine lacks something; the plan stays valid
                ui.describe_build(found)
            continue
        if ready.done:
            ui.print_line(name, f"nothing to do: {found.image} was built from this and {ready.done}")
        ui.describe_build(found, steps=ready.steps)
    return refused
