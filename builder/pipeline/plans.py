"""From files to plans: load, resolve, compile. Read are the recipe, the site, the lock and the base image's size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from builder.model.finding import BuilderError, ConfigError, Finding, Location, UnsupportedError, select_errors
from builder.model.plan import Plan
from builder.model.recipe import Recipe
from builder.model.site import Site
from builder.model.target import Context, Target
from builder.model.text import sanitize
from builder.parse.container import IMAGE_FILE
from builder.parse.lock_files import name_index, read_lock
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.pipeline.request import Build, BuildRequest, Shape
from builder.resolve.resolve import RefusedError, resolve

# An image packs to 0.31 to 0.50 of its unpacked tree (docs/packing.md): the smaller one, to be on the safe side.
UNPACKED_PART, GIB = 0.31, 1024**3
QUOTED = ("layers", "cotainr")  # what they read holds a path as one quoted word
Planned = dict[str, Build | BuilderError]


def load(sites: Iterable[str], files: Iterable[Path], *, folder: Path) -> tuple[list[Site], list[Recipe]]:
    """Read all files; `folder` holds the user's own sites. Raises ConfigError with the faults of every file."""
    faults: list[Finding] = []
    recipes: list[Recipe] = []
    found: list[Site] = []
    for file in files:
        try:
            recipes.append(load_recipe(file))
        except ConfigError as error:
            faults += error.findings
    for name in sites:
        try:
            found.append(load_site(name, folder=folder))
        except ConfigError as error:
            faults += error.findings
    if faults:
        raise ConfigError(*dict.fromkeys(faults))
    return found, recipes


def plan_builds(request: BuildRequest, *, what: str = "images") -> Planned:
    """Plan every recipe for every site; a refusal is the answer for that one. Raises ConfigError for faulty files.

    `what` names the products, for messages.
    """
    from builder.compile.launch.choice import choose_launch  # `recipe check` starts no ranks

    sites, recipes = load(request.sites, request.files, folder=request.sites_folder)
    folder = None if request.single else request.output
    if folder is not None and (folder.is_file() or folder.suffix == ".sif"):
        message = f"'{folder}' cannot hold several {what}: -o is a folder here"
        raise ConfigError(Finding(code="usage", message=message, fix="name a folder with -o"))
    found: Planned = {}
    for recipe in recipes:
        for site in sites:
            name = site.name if len(recipes) == 1 else f"{recipe.name}-{site.name}"
            if name in found:
                message = f"two of them are called '{recipe.name}': '{recipe.file}' is the second"
                raise ConfigError(Finding(code="usage", message=message, fix="give it another name with `name:`"))
            try:
                site = choose_launch(site, launcher=request.launch[0], gpu_visibility=request.launch[1])
                plan = make_plan(site, recipe, context=request.context, shape=request.shape, page=not request.dry_run)
            except BuilderError as error:
                found[name] = error
                continue
            image = request.output if request.single and request.output else (folder or Path()) / plan.image
            found[name] = Build(
                plan=plan, site=site, recipe=recipe, context=request.context, image=image,
                makes_folder=folder is not None,
            )  # fmt: skip
    return found


def make_plan(site: Site, recipe: Recipe, *, context: Context, shape: Shape = (None, None), page: bool = True) -> Plan:
    """Resolve and compile: the two pure steps, with the lock of the recipe.

    With a shape the plan has the suite over that shape of job as its last step; `page` as for `compile_plan`.
    """
    from builder.compile.compile import compile_plan  # `recipe check` writes none

    target = add_base_size(make_target(site, recipe, context=add_lock(context, recipe, site.name)))
    return compile_plan(target, nodes=shape[0], devices=shape[1], page=page)


def make_target(site: Site, recipe: Recipe, *, context: Context) -> Target:
    """Resolve. A base image's path in a recipe is read from the recipe's folder."""
    own = recipe.container.base
    if own and "://" not in own and not context.base:
        context = replace(context, base=str((Path(recipe.folder) / own).absolute()))
        target = _resolve(recipe, site, context=context)
        _check_joined(context.base, recipe, backend=target.backend)
        return target
    return _resolve(recipe, site, context=context)


def _resolve(recipe: Recipe, site: Site, *, context: Context) -> Target:
    """Resolve; raises UnsupportedError with the refusals of the backend among the others."""
    try:
        return resolve(recipe, site, context=context)
    except RefusedError as error:
        from builder.compile.backends import BACKENDS

        more = select_errors(tuple(BACKENDS[error.target.backend].check(error.target)))
        raise UnsupportedError(*dict.fromkeys((*error.findings, *more))) from None


def add_lock(context: Context, recipe: Recipe, site: str, *, use: bool = True) -> Context:
    """The context with the lock of the recipe; `use` False: as if there were none."""
    index = name_index(Path(recipe.folder) / Path(recipe.file).name)
    return replace(context, lock=read_lock(index, site) if use else None, lock_file=str(index))


def add_base_size(target: Target) -> Target:
    """The target with the unpacked size of its base image, where that is a file of this machine."""
    base = Path(target.base.reference)
    if not (base.is_absolute() and base.is_file()):
        return target
    size = base.stat().st_size / UNPACKED_PART / GIB
    return replace(target, context=replace(target.context, base_gib=round(size, 2)))


def _check_joined(path: str, recipe: Recipe, *, backend: str) -> None:
    """Refuse a path that could be more than a path in what is generated: folders have any name."""
    plain = path.isprintable() and "{{" not in path
    if IMAGE_FILE.fullmatch(path) or (plain and backend in QUOTED):
        return
    message = f"the path of the base image is '{sanitize(path)}' in the recipe's folder: '{backend}' cannot read it"
    fix = "move the recipe to a folder whose name has only letters, digits and . _ @ , = + -"
    if plain:
        fix += ", or build with --backend layers"
    at = Location(file=sanitize(recipe.file), key="container.base")
    raise ConfigError(Finding(code="container-base", message=message, at=at, fix=fix))
