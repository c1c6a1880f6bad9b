"""Load and resolve: from the files of recipe, site, lock and base image to a target.

With a lock that fits, the file of the base image is compared with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from builder.model.backend import TRAITS
from builder.model.finding import ConfigError, Finding, Location, UnsupportedError, select_errors
from builder.model.recipe import STDIN, WHOLE, InputChoice, Recipe
from builder.model.site import THIS_MACHINE, BackendName, Site
from builder.model.target import Context, Target
from builder.model.text import exists, sanitize
from builder.parse.container import IMAGE_FILE
from builder.parse.recipe import load_recipe, name_index
from builder.parse.site import Folders, find_disk_owners, load_site, read_bundled_hostnames
from builder.resolve.resolve import RefusedError, resolve

# An image packs to 0.31 to 0.50 of its unpacked tree (docs/packing.md): the smaller one, to be on the safe side.
UNPACKED_PART, GIB = 0.31, 1024**3
GPU_DRIVERS = ("/proc/driver/nvidia/version", "/sys/class/kfd")  # of GPUs that the site `local` uses


def load(
    sites: Iterable[str], files: Iterable[Path], *, folder: Folders, choice: InputChoice = WHOLE
) -> tuple[list[Site], list[Recipe]]:
    """Read all files; `folder` holds the user's own sites, `choice` says what of a project is taken.

    Raises ConfigError with the faults of every file.
    """
    faults: list[Finding] = []
    recipes: list[Recipe] = []
    found: list[Site] = []
    for file in files:
        try:
            recipes.append(load_recipe(file, choice=choice))
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


def resolve_recipe(site: Site, recipe: Recipe, *, context: Context, use_lock: bool = True) -> Target:
    """Resolve a recipe for a site, with its lock, unless `use_lock` is False. Raises UnsupportedError.

    A base image's path in a recipe is read from the recipe's folder.
    """
    context = replace(context, account=context.account or dict(context.accounts).get(site.name, ""), accounts=())
    recipe = recipe.select_processor(site.node.arch)
    context = _add_lock(add_gpu(context, site), recipe, site.name, use=use_lock)
    own = recipe.container.base
    if own and "://" not in own and not context.base:
        context = replace(context, base=str((Path(recipe.folder) / own).absolute()))
        target = _resolve_locked(recipe, site, context=context)
        _check_joined(context.base, recipe, backend=target.backend)
        key = "container.base"
        _check_disk(target, at=Location(file=recipe.file, line=recipe.lines.get(key), key=key))
    else:
        target = _resolve_locked(recipe, site, context=context)
        _check_disk(target, at=Location(key="--base"))
    return _add_base_size(target)


def _resolve_locked(recipe: Recipe, site: Site, *, context: Context) -> Target:
    """Resolve; once more where the lock fits, but is of another file of the base image."""
    target = _resolve(recipe, site, context=context)
    if target.lock is None or not target.lock.base.size or not target.base.reference.startswith("/"):
        return target
    from builder.execute.base_file import has_base_changed  # few locks are of a file

    if not has_base_changed(target.lock.base, Path(target.base.reference), environment=os.environ):
        return target
    return _resolve(recipe, site, context=replace(context, base_changed=True))


def _check_disk(target: Target, *, at: Location) -> None:
    """Raise UnsupportedError for a base image that is not here and is on the disks of another site."""
    site, path = target.site, target.context.base
    if not path.startswith("/") or exists(Path(path)):
        return
    hosts, owners = read_bundled_hostnames(), find_disk_owners(path)
    same = [name for name in owners if name == site.name or {*hosts.get(name, ())} & {*site.hostnames}]
    own = (*site.runtime.binds, *site.runtime.optional_binds, *(image.reference for image in site.base_images))
    top = "/".join(path.split("/")[:3])
    if same or not owners or any(word.startswith(f"{top}/") for word in own):
        return
    shown = sanitize(path, limit=400)
    message = f"the base image '{shown}' is on the disks of '{owners[0]}', which '{site.name}' does not have"
    fix = f"leave it out for {site.base_images[0].reference}, or name an image of '{site.name}'"
    finding = Finding(code="base-missing", message=message, at=at, fix=fix)
    raise UnsupportedError(*target.findings, finding)


def _resolve(recipe: Recipe, site: Site, *, context: Context) -> Target:
    """Resolve; raises UnsupportedError with the refusals of the backend among the others."""
    try:
        return resolve(recipe, site, context=context)
    except RefusedError as error:
        from builder.compile.backends import list_backend_findings

        more = select_errors(list_backend_findings(error.target))
        raise UnsupportedError(*dict.fromkeys((*error.findings, *more))) from None


def _add_lock(context: Context, recipe: Recipe, site: str, *, use: bool) -> Context:
    """The context with the lock of the recipe; `use` False: as if there were none."""
    index = name_index(Path(recipe.folder) / Path(recipe.file).name)
    lock = None
    if use and recipe.file != STDIN and exists(index):  # few environments have a lock
        from builder.parse.lock_files import read_lock

        lock = read_lock(index, site)
    brought = lock.asked.brought if lock is not None and lock.recipe == recipe.digest else ()
    return replace(context, lock=lock, lock_file=str(index), brought=brought)


def add_gpu(context: Context, site: Site) -> Context:
    """The context with the GPU of this machine, if the site is this machine."""
    if site.name != THIS_MACHINE or site.gpu is not None or not any(exists(Path(path)) for path in GPU_DRIVERS):
        return context
    from builder.system.gpus import read_own_gpu

    return replace(context, gpu=read_own_gpu())


def _add_base_size(target: Target) -> Target:
    """The target with the unpacked size of its base image, where that is a file of this machine."""
    base = Path(target.base.reference)
    if not (base.is_absolute() and base.is_file()):
        return target
    size = base.stat().st_size / UNPACKED_PART / GIB
    return replace(target, context=replace(target.context, base_gib=round(size, 2)))


def _check_joined(path: str, recipe: Recipe, *, backend: BackendName) -> None:
    """Refuse a path that could be more than a path in what is generated: folders have any name."""
    plain = path.isprintable() and "{{" not in path
    if IMAGE_FILE.fullmatch(path) or (plain and TRAITS[backend].quotes_paths):
        return
    message = f"the path of the base image is '{sanitize(path)}' in the recipe's folder: '{backend}' cannot read it"
    fix = "move the recipe to a folder whose name has only letters, digits and . _ @ , = + -"
    if plain:
        fix += ", or build with --backend layers"
    at = Location(file=sanitize(recipe.file), key="container.base")
    raise ConfigError(Finding(code="container-base", message=message, at=at, fix=fix))
