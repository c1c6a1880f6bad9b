"""An image to a draft of a recipe: by the definition file that it holds, else by the packages in it. Nothing is run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.utils import canonicalize_name

from builder.inspect.image import read_contents
from builder.inspect.sif_objects import DEFINITION
from builder.model.contents import Contents, InstalledPackage
from builder.model.finding import ConfigError, Finding, Location
from builder.model.text import sanitize
from builder.parse.build_file_recipe import convert_build_file
from builder.parse.definition_file import is_definition, read_definition
from builder.parse.recipe_draft import DraftItem, RecipeDraft
from builder.parse.vendor_pins import CONDA_LIBRARIES, CONDA_TORCH, SITES_BASE, open_requirement, read_base
from builder.sif.sif import MAGIC, SifError, read_object, read_sif

OWN_FOLDER = "/opt/recipe/"  # in a definition file of ours, whose folder is not in the image
INSTALLERS = re.compile(r"pip|setuptools|wheel|uv|conda.*|mamba|libmamba.*|_.*|anaconda-.*|menuinst|boltons")
DISTRIBUTION = re.compile(r"/?usr/lib/python3(?:\.\d+)?(?:/dist-packages|/site-packages)?$")


def convert_image(image: Path, *, prefix: str) -> tuple[RecipeDraft, str]:
    """Convert an image, and say by what of it; raises ConfigError.

    The definition file counts where it installs something, by files that are next to the image if by any.
    """
    text = _read_definition_object(image)
    if text is not None and is_definition(text) and OWN_FOLDER not in text:
        build = read_definition(text, file=str(image))
        draft = convert_build_file(build, folder=image.parent, prefix=prefix)
        if any(step.kind == "run" for step in build.steps) and not any(one.missing for one in draft.left):
            return draft, "the definition file in it"
    return _convert_contents(read_contents(image)), "the packages in it"


def _read_definition_object(image: Path) -> str | None:
    """The definition file of a SIF, None where it holds none; raises ConfigError for one that is not sound."""
    if image.is_dir():
        return None
    try:
        with image.open("rb") as file:
            if file.read(64)[32:42] != MAGIC:
                return None
        sif = read_sif(image)
        item = next((one for one in sif.objects if one.kind == DEFINITION), None)
        return read_object(image, item).rstrip(b"\0").decode(errors="replace") if item is not None else None
    except (OSError, SifError) as error:
        message = f"the image '{sanitize(str(image), limit=400)}' cannot be read: {error}"
        at = Location(file=str(image))
        raise ConfigError(
            Finding(code="image-unreadable", message=message, at=at, fix="copy it again, or build it again")
        ) from None


def _convert_contents(contents: Contents) -> RecipeDraft:
    draft = RecipeDraft()
    base = read_base(contents.base) if contents.base else None
    if base and base.image:
        draft.add(DraftItem(part="base", value=base.image, line=0))
    elif base:
        draft.leave(0, contents.base, SITES_BASE)
    own = [one for one in contents.packages if one.kind in ("conda", "pip") and not DISTRIBUTION.match(one.place)]
    places = Counter(_find_environment(one) for one in own)
    chosen = places.most_common(1)[0][0] if places else ""
    for place, count in places.items():
        if place != chosen:
            draft.leave(0, f"{count} packages in {place or '/'}", f"most packages are in {chosen or '/'}")
    _add_packages(draft, [one for one in own if _find_environment(one) == chosen])
    for text in contents.unknown:
        draft.leave(0, contents.image, text)
    return draft


def _find_environment(package: InstalledPackage) -> str:
    """The folder of the environment that a package is in."""
    return re.sub(r"/(?:lib(?:64)?/python[\d.]+/(?:site|dist)-packages|conda-meta)/?$", "", package.place).rstrip("/")


def _add_packages(draft: RecipeDraft, packages: Iterable[InstalledPackage]) -> None:
    packages = sorted(packages, key=lambda one: one.name.lower())
    conda = [one for one in packages if one.kind == "conda"]
    known = {str(canonicalize_name(one.name)) for one in conda}
    for item in (*_list_conda(conda, draft), *_list_pip(packages, draft, known=known)):
        draft.add(item)
    if conda:
        channels = Counter(one.channel for one in conda if re.fullmatch(r"[A-Za-z][\w-]*", one.channel))
        channel = channels.most_common(1)[0][0] if channels else "conda-forge"
        draft.add(DraftItem(part="channels", value=channel, line=0))
        return
    version = next((found[1] for one in packages if (found := re.search(r"python(3\.\d+)", one.place))), "")
    if version and packages:
        draft.add(DraftItem(part="channels", value="conda-forge", line=0))
        draft.add(DraftItem(part="conda", value=f"python={version}", line=0))


def _list_conda(packages: Iterable[InstalledPackage], draft: RecipeDraft) -> Iterator[DraftItem]:
    for one in packages:
        text = f"{one.name}={one.version}"
        if one.name in CONDA_TORCH:
            note = f"was '{text}', the site's build is taken"
            yield DraftItem(part="pip", value=CONDA_TORCH[one.name], line=0, note=note)
        elif CONDA_LIBRARIES.fullmatch(one.name):
            draft.leave(0, text, "it comes with the torch or the base image of a site")
        elif not INSTALLERS.fullmatch(one.name):
            yield DraftItem(part="conda", value=text, line=0)


def _list_pip(packages: Iterable[InstalledPackage], draft: RecipeDraft, *, known: set[str]) -> Iterator[DraftItem]:
    for one in packages:
        name, text = str(canonicalize_name(one.name)), f"{one.name}=={one.version}"
        if one.kind != "pip" or name in known or INSTALLERS.fullmatch(name):
            continue
        opened = open_requirement(text, by_index=False)
        if opened is None:
            draft.leave(0, text, "it comes with the torch or the base image of a site")
        else:
            note = f"was '{text}', the site's build is taken" if opened != text else ""
            yield DraftItem(part="pip", value=opened, line=0, note=note)
