"""No output takes the place of what it is made of: asked before anything is written, and --force changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from builder.inspect.attestations import name_attestations
from builder.model.finding import ConfigError, Finding, Location
from builder.model.text import exists, sanitize
from builder.parse.lock_files import name_site_folder
from builder.parse.recipe import name_index
from builder.parse.site import find_site_files
from builder.pipeline.request import Build, BuildRequest
from builder.sif.bounded import LIMIT, parse_json
from builder.system.layout import PLAN_FILE, name_failed_copy
from builder.system.trust import read_below

Input = tuple[str, Path]  # what it is, and where


def check_own_inputs(build: Build, *, request: BuildRequest, image: bool = True) -> None:
    """Raise ConfigError where the image, its attestations or the plan folder would overwrite what a build is made of.

    Without `image` only the plan folder is written.
    """
    inputs = tuple(list_inputs(build, request=request))
    check_not_inputs(inputs, image=build.image if image else None, folder=build.folder)
    if image:
        sources = (path for _, path in inputs)
        check_not_in_sources(sources, image=build.image, folder=build.folder, recipe=build.plan.recipe)


def list_inputs(build: Build, *, request: BuildRequest) -> Iterator[Input]:
    """Every file and folder of the user's that a build reads."""
    recipe, home = build.recipe, build.home
    file = home / Path(recipe.file).name
    yield "the recipe", file
    included = {line.file for line in (*recipe.pip, *recipe.pip_options.constraints) if line.file}
    for name in sorted(included):
        yield "the requirements file", Path(name)
    index = name_index(file)
    yield "the lock", index
    yield "the lock", name_site_folder(index, build.site.name)
    for copy in build.plan.copies:
        if not copy.bundled:
            yield "the file or folder of the recipe", home / copy.source
    if build.plan.base.startswith("/"):
        yield "the base image", Path(build.plan.base)
    known = find_site_files(request.sites_folder)
    for word in request.sites:
        yield "the site file", known.get(word, Path(word))


def check_not_inputs(inputs: Iterable[Input], *, image: Path | None, folder: Path | None, option: str = "-o") -> None:
    """Raise ConfigError where an output is an input, or the folder of one; a path without a file is skipped.

    The attestations next to the image are outputs, too.
    """
    files = () if image is None or not image.name else (image, *name_attestations(image))
    outputs = [path for path in (*files, folder) if path is not None]
    for what, path in inputs:
        if not exists(path):
            continue
        output = next((output for output in outputs if _contains(output, path)), None)
        if output is not None:
            shown, own = sanitize(str(output), limit=400), sanitize(str(path), limit=400)
            message = f"the output '{shown}' would overwrite {what} '{own}', which is never replaced"
            fix = f"give another output with {option}"
            raise ConfigError(Finding(code="output-input", message=message, at=Location(file=str(path)), fix=fix))


def check_not_in_sources(sources: Iterable[Path], *, image: Path, folder: Path, recipe: str) -> None:
    """Raise ConfigError where an output is a file of a folder that goes into the image, and not this recipe's image."""
    tops = [path.resolve() for path in sources if path.is_dir()]
    for output in (image, name_failed_copy(image)):
        place = output.resolve()
        top = next((top for top in tops if top in place.parents), None)
        if top is None or not exists(place) or place.is_dir() or _is_own(place, folder=folder, recipe=recipe):
            continue
        message = f"the output '{sanitize(str(output), limit=400)}' would overwrite a file of the folder"
        message += f" '{sanitize(str(top), limit=400)}', which goes into the image: it is never replaced"
        fix = "give another output with -o"
        raise ConfigError(Finding(code="output-input", message=message, at=Location(file=str(place)), fix=fix))


def _is_own(image: Path, *, folder: Path, recipe: str) -> bool:
    """Whether a recipe of this name made an image: the plan folder next to it is of that recipe, and links to it.

    Another recipe's image is one of the user's files, which the copied folder brings into the new image.
    """
    from builder.execute.replaceable import is_plan_folder

    with suppress(OSError, ConfigError, ValueError):
        if is_plan_folder(folder) and _read_recipe(folder) == recipe:
            return any(_is_link_to(link, image) for link in folder.iterdir())
    return False


def _read_recipe(folder: Path) -> str:
    content = parse_json(read_below(folder, PLAN_FILE, limit=LIMIT))
    return str(content.get("recipe", "")) if isinstance(content, dict) else ""


def _is_link_to(link: Path, image: Path) -> bool:
    try:
        return link.is_symlink() and link.samefile(image)
    except OSError:  # it leads to nothing
        return False


def _contains(output: Path, path: Path) -> bool:
    """Whether a path is the output, by any name, or is in it."""
    place, real = output.resolve(), path.resolve()
    if real == place or place in real.parents:
        return True
    with suppress(OSError):  # what may not be looked at is refused where it is written
        return output.is_file() and output.samefile(path)
    return False
