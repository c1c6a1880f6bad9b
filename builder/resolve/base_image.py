"""Choose the base image of a target, and check whether the packages can be installed in its own Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Literal

from packaging.version import Version

from builder.model.finding import Finding, Location, make_edit
from builder.model.recipe import CondaSpec, Recipe
from builder.model.site import BaseImage, Site
from builder.model.target import Context, Torch
from builder.parse.gpu_tables import load_image_table, load_package_table
from builder.resolve.conda_names import find_python_name, is_cuda_library, load_name_table, to_specifier
from builder.resolve.indexes import TORCH_HOST, list_pages
from builder.resolve.releases import select_releases
from builder.resolve.requested import (
    COMPANIONS,
    RequestedTorch,
    find_requested_family,
    find_torch_dependent,
    to_release,
)
from builder.resolve.tokens import find_vendor, list_all_tokens, list_tokens, parse_cuda, parse_rocm, serves_cuda
from builder.resolve.torch import find_release, read_python_pin

Family = Literal["", "ngc-pytorch", "intel-ipex"]
FAMILIES: Mapping[str, Family] = {
    "nvcr.io/nvidia/pytorch": "ngc-pytorch",
    "intel/intel-extension-for-pytorch": "intel-ipex",
}
# What the name of an image in a registry says of the GPUs that its software was built for.
_NAMED_VENDORS = (
    ("nvidia", re.compile(r"nvcr\.io/(?!nvidia/base/)|nvidia/|.*[-_.:]cu(?:da-?)?1\d")),
    ("amd", re.compile(r"rocm/|.*[-_.:]rocm-?\d")),
    ("intel", re.compile(r"intel/(?:intel-extension-for-pytorch|deep-learning-essentials)\b|.*[-_.:]xpu\b")),
)
# NVIDIA's images of CUDA: those for compiling hold cuda-compat.
_COMPAT = re.compile(r"docker://(?:docker\.io/|nvcr\.io/)?nvidia/cuda:.*-devel")
UBUNTU_GLIBC = {"20.04": "2.31", "22.04": "2.35", "24.04": "2.39"}
NOT_INSTALLED = ("python", "nodefaults")


def list_candidates(site: Site) -> Iterator[BaseImage]:
    """List the base images of a site: those it names, then the other tags of their families, newest first."""
    seen: set[str] = set()
    named = list(site.base_images)
    families = {image.family: image for image in reversed(named) if image.family}
    rows = [
        row
        for family in families.values()
        for row in _list_family(family.family, name=family.reference.rpartition(":")[0], source=family.source)
    ]
    for image in [*named, *rows]:
        if image.reference not in seen:
            seen.add(image.reference)
            yield image


@cache
def _list_family(family: Family, *, name: str, source: tuple[str, ...]) -> list[BaseImage]:
    """List the images of a family whose torch and CUDA are certain in the tables, the newest first."""
    list_images = _list_ngc_images if family == "ngc-pytorch" else _list_ipex_images
    return list(list_images(name, source=source))


def _list_ngc_images(name: str, *, source: tuple[str, ...]) -> Iterator[BaseImage]:
    for row in reversed(load_image_table().ngc_pytorch):
        if "torch" not in row.unsure and "cuda" not in row.unsure:
            yield BaseImage(
                reference=f"{name}:{row.tag}",
                source=source,
                python=".".join(row.python.split(".")[:2]),
                provides={"torch": row.torch, "torchvision": "unknown"},
                cuda=row.cuda,
                glibc=UBUNTU_GLIBC.get(row.ubuntu),
                family="ngc-pytorch",
                unsure=row.unsure,
            )


def _list_ipex_images(name: str, *, source: tuple[str, ...]) -> Iterator[BaseImage]:
    for ipex in reversed(load_image_table().intel_ipex):
        provides = {
            "torch": ipex.torch,
            "torchvision": ipex.torchvision,
            "torchaudio": ipex.torchaudio,
            "intel-extension-for-pytorch": ipex.ipex,
            "oneccl-bind-pt": ipex.oneccl,
        }
        kept = {key: value for key, value in provides.items() if value}
        for tag in ipex.tags:
            yield BaseImage(
                reference=f"{name}:{tag}",
                source=source,
                python=ipex.python,
                provides=kept,
                family="intel-ipex",
                glibc="2.35",
                unsure=tuple(item for item in ipex.unsure if item in (*kept, "python")),
            )


def choose_base(recipe: Recipe, *, site: Site, context: Context) -> tuple[BaseImage, tuple[Finding, ...]]:
    """Choose the base image; the findings say why its Python cannot take the packages (none: it can).

    The order: the command line, the recipe, the image with the newest torch whose Python can take the recipe, the
    site's first image without torch (a new environment needs none).
    """
    own = context.base or recipe.container.base
    if own:
        image = next((image for image in list_candidates(site) if image.reference == own), None) or _find_known(own)
        return image, tuple(find_obstacles(recipe, image=image, site=site, sure=False))
    closest: tuple[BaseImage, tuple[Finding, ...]] | None = None
    for image in _sort_by_torch(list_candidates(site)) if wants_torch(recipe) else ():
        found = tuple(find_obstacles(recipe, image=image, site=site))
        if not found:
            return image, ()
        if closest is None or _count_obstacles(found) < _count_obstacles(closest[1]):
            closest = (image, found)
    if closest is not None and recipe.container.python == "base":
        image = closest[0]
        disputed = not is_served(image, site=site) and is_served(image, site=site, sure=False)
        return image, tuple(find_obstacles(recipe, image=image, site=site, sure=False)) if disputed else closest[1]
    plain = next((image for image in site.base_images if "torch" not in image.provides), site.base_images[0])
    return plain, closest[1] if closest else tuple(find_obstacles(recipe, image=plain, site=site))


def _count_obstacles(found: tuple[Finding, ...]) -> tuple[bool, bool, int]:
    """Count what is against an image; one that the driver serves, and with the torch of the recipe, explains most."""
    codes = {one.code for one in found}
    return "base-driver" in codes, "base-torch" in codes, len(found)


def _sort_by_torch(images: Iterable[BaseImage]) -> list[BaseImage]:
    """Sort the images that have a torch by its release, the newest first; of equal ones the site's own are first."""
    known = [(to_release(image.provides["torch"]), image) for image in images if "torch" in image.provides]
    return [image for _, image in sorted(known, key=lambda item: item[0] or Version("0"), reverse=True)]


def find_image_vendor(image: BaseImage) -> str:
    """Return the vendor of the GPUs that an image was built for, "" if that is not known."""
    if image.rocm or image.cuda:
        return "amd" if image.rocm else "nvidia"
    if not image.reference.startswith("docker://"):
        return ""
    name = image.reference.removeprefix("docker://").removeprefix("docker.io/").removeprefix("library/")
    return next((vendor for vendor, pattern in _NAMED_VENDORS if pattern.match(name)), "")


def match_rocm(base: BaseImage, *, torch: Torch | None, site: Site) -> BaseImage:
    """Return the site's image without torch that has the ROCm of the chosen wheel, else the given one.

    The Python stays: the place of the packages was chosen by it.
    """
    if torch is None or torch.provided or not torch.token.startswith("rocm"):
        return base
    wanted = parse_rocm(torch.token)
    same = (
        image
        for image in (base, *site.base_images)
        if image.rocm and _cut_version(image.rocm) == wanted and image.python == base.python
    )
    return next((image for image in same if image is base or "torch" not in image.provides), base)


def _cut_version(version: str) -> str:
    return ".".join(version.split(".")[:2])


def wants_torch(recipe: Recipe) -> bool:
    """Whether to look for an image with torch: it has twenty GiB, so only recipes that use torch get one."""
    mode = recipe.container.python
    return mode == "base" or (mode == "auto" and bool(find_requested_family(recipe) or find_torch_dependent(recipe)))


def _find_known(reference: str) -> BaseImage:
    """Find the tables' facts about an image that the user chose."""
    name = reference.rpartition(":")[0]
    family = FAMILIES.get(name.removeprefix("docker://").removeprefix("docker.io/"), "")
    rows = _list_family(family, name=name, source=()) if family else []
    return next((row for row in rows if row.reference == reference), BaseImage(reference=reference, source=()))


def is_served(image: BaseImage, *, site: Site, sure: bool = True) -> bool:
    """Whether the site's driver serves an image's CUDA or ROCm; without `sure` where one of two sources says so.

    Where the driver is unknown, it is sure for the oldest CUDA that the image's torch has wheels for.
    """
    if image.cuda and site.gpu is not None and site.vendor == "nvidia":
        if sure and site.gpu.driver is None and (oldest := _find_oldest_cuda(image, site=site)):
            return int(image.cuda.partition(".")[0]) <= oldest
        return serves_cuda(image.cuda, site=site, sure=sure) or (not sure and has_compat(image, site=site))
    if image.rocm and site.gpu and site.gpu.rocm:
        return _cut_version(image.rocm) in (*site.gpu.rocm, *(() if sure else site.gpu.rocm_disputed))
    return True


def _find_oldest_cuda(image: BaseImage, *, site: Site) -> int:
    """Find the oldest major of CUDA that the wheels of the image's torch are built for, 0 if none is known."""
    row = find_release(image.provides.get("torch", "unknown"))
    tokens = list_all_tokens(row, arch=site.node.arch) if row is not None else ()
    majors = [int(parse_cuda(token).partition(".")[0]) for token in tokens if find_vendor(token) == "nvidia"]
    return min(majors, default=0)


def has_compat(image: BaseImage, *, site: Site) -> bool:
    """Whether an image brings a newer user-space driver of its own, on a site where that takes the place of the host's.

    NVIDIA's images for data-centre GPUs have it as cuda-compat.
    """
    allowed = site.gpu is not None and site.gpu.cuda_compat == "yes"
    return (
        allowed and bool(image.cuda) and (image.family == "ngc-pytorch" or _COMPAT.match(image.reference) is not None)
    )


def find_obstacles(recipe: Recipe, *, image: BaseImage, site: Site, sure: bool = True) -> Iterator[Finding]:
    """Find everything in a recipe that the base image's own Python cannot take, each with a fix."""
    if "torch" not in image.provides:
        message = f"the base image '{image.reference}' is not known to have torch"
        yield Finding(code="base-no-torch", message=message, fix="use container.python: env")
        return
    served = is_served(image, site=site, sure=sure)
    if image.cuda and not served:
        driver = (site.gpu.driver if site.gpu else "") or "not known"
        message = f"the base image '{image.reference}' holds CUDA {image.cuda}, the driver of '{site.name}' is {driver}"
        yield Finding(code="base-driver", message=message, fix="choose an image with an older CUDA")
    if image.rocm and site.gpu and not served:
        message = (
            f"the base image '{image.reference}' holds ROCm {image.rocm}, the driver of '{site.name}' does not serve it"
        )
        yield Finding(code="base-driver", message=message, fix=f"choose an image with ROCm {', '.join(site.gpu.rocm)}")
    asked = find_requested_family(recipe)
    yield from _torch_obstacles(asked, image=image, site=site)
    pin = read_python_pin(recipe)
    if image.python and not pin.allows(image.python):
        at = Location(file=recipe.file, line=pin.spec.line if pin.spec else None)
        message = f"the recipe requests Python {pin.text}, the base image '{image.reference}' has {image.python}"
        yield Finding(
            code="base-python", message=message, at=at, fix=f"use python={image.python}, or container.python: env"
        )
    yield from _binary_obstacles(recipe, image=image)
    yield from _index_obstacles(recipe, image=image, site=site)
    for spec in recipe.conda:
        yield from _conda_obstacles(spec, recipe=recipe, image=image)


def _torch_obstacles(asked: dict[str, RequestedTorch], *, image: BaseImage, site: Site) -> Iterator[Finding]:
    torch = asked.get("torch")
    has = image.provides["torch"]
    if torch and not torch.allows(has):
        message = f"'{torch.text}' is requested, but the base image '{image.reference}' has torch {has}"
        serve = (
            other.reference for other in list_candidates(site) if torch.allows(other.provides.get("torch", "none"))
        )
        other = next(serve, "")
        fix = f"use container.base: {other}" if other else "use container.python: env, or another torch"
        yield Finding(code="base-torch", message=message, at=torch.location, fix=fix)
    if torch and (torch.unclear or (torch.local and torch.local not in has)):
        right = f"torch=={torch.pinned or has}"
        message = f"'{torch.text}' pins a build that the base image '{image.reference}' does not have"
        yield Finding(
            code="base-build",
            message=message,
            at=torch.location,
            fix=f"write {right}",
            edit=make_edit(torch.location, torch.text, right) if torch.pinned and torch.allows(has) else None,
        )
    yield from _companion_obstacles(asked, image=image)


def _companion_obstacles(asked: dict[str, RequestedTorch], *, image: BaseImage) -> Iterator[Finding]:
    row = find_release(image.provides["torch"])
    for name in [name for name in COMPANIONS if name in asked]:
        item, brought = asked[name], image.provides.get(name)
        # If the image's own version is unknown, it is the release that belongs to its torch.
        known = getattr(row, name, "") if brought == "unknown" and row else brought
        if brought is None:
            message = f"the base image '{image.reference}' has no {name}, and another build does not match its torch"
            fix = f"remove {name}, or use container.python: env"
        elif item.unclear or (item.local and item.local not in brought):
            message = f"'{item.text}' pins a build that the base image '{image.reference}' does not have"
            fix = f"write {name} without a build, or use container.python: env"
        elif known == "unknown" and item.specifier:
            message = f"'{item.text}' is requested, and the {name} of the base image '{image.reference}' is not known"
            fix = f"write {name} without a version, or use container.python: env"
        elif known and known != "unknown" and not item.allows(known):
            message = f"'{item.text}' is requested, but the base image '{image.reference}' has {name} {known}"
            fix = f"write {name} without a version, or use container.python: env"
        else:
            continue
        yield Finding(code="base-companion", message=message, at=item.location, fix=fix)


def _binary_obstacles(recipe: Recipe, *, image: BaseImage) -> Iterator[Finding]:
    """Report wheels compiled for a released torch: they do not load with the image's own build of torch."""
    table = load_package_table()
    compiled = {pin.package for pin in table.torch_pins}
    pages = [page for page in list_pages(recipe.pip_options) if page.torch]
    if pages:
        compiled |= {row.name for row in table.packages if row.tools} | {"pyg-lib"}
        compiled |= {line.name for line in recipe.pip if any(page.has(line) for page in pages)}
    for line in recipe.pip:
        if line.name in compiled and line.name not in image.provides:
            at = Location(file=line.file or recipe.file, line=line.line)
            message = f"'{line.text}' is compiled for a released torch, the base image '{image.reference}' has its own"
            yield Finding(code="base-binary", message=message, at=at, fix="use container.python: env")


def _index_obstacles(recipe: Recipe, *, image: BaseImage, site: Site) -> Iterator[Finding]:
    """Report an index of torch for the site's GPUs: what it holds is not what the image has."""
    options, asked = recipe.pip_options, find_requested_family(recipe)
    for url in filter(None, (options.index_url, *options.extra_index_urls, *options.find_links)) if asked else ():
        token = url.rstrip("/").rpartition("/")[2]
        if TORCH_HOST not in url or "/nightly" in url or find_vendor(token) != site.vendor:
            continue
        if image.provides["torch"].endswith(f"+{token}"):  # Intel's images hold the wheel of that index
            continue
        if any(token in list_tokens(row, site=site) for row in select_releases(asked, packages=recipe.pip)):
            message = f"the recipe names the index '{url}', the base image '{image.reference}' has its own torch"
            yield Finding(code="base-build", message=message, fix="remove the index, or use container.python: env")


def _conda_obstacles(spec: CondaSpec, *, recipe: Recipe, image: BaseImage) -> Iterator[Finding]:
    table = load_name_table()
    if spec.name in NOT_INSTALLED or spec.name in table.torch_choosers or is_cuda_library(spec.name):
        return
    at = Location(file=recipe.file, line=spec.line)
    if spec.url:
        message = (
            f"'{spec.text}' is a conda package file: it cannot be installed into the Python of '{image.reference}'"
        )
        yield Finding(code="base-conda", message=message, at=at, fix="use container.python: env")
    elif spec.name in table.other:
        system = table.other[spec.name]
        message = (
            f"'{spec.name}' is not a Python package: it cannot be installed into the Python of '{image.reference}'"
        )
        fix = (
            f"add '{system}' to container.system, or use container.python: env"
            if system
            else "use container.python: env"
        )
        yield Finding(code="base-conda", message=message, at=at, fix=fix)
    elif find_python_name(spec.name) is None:
        message = f"'{spec.name}' is not known to be a Python package: it cannot be installed into '{image.reference}'"
        yield Finding(
            code="base-conda",
            message=message,
            at=at,
            fix="move it under 'pip:' if it is one, or use container.python: env",
        )
    elif to_specifier(spec.version) is None:
        message = f"the version of '{spec.text}' has no equivalent for Python packages"
        yield Finding(
            code="base-conda", message=message, at=at, fix="write it as >= and <, or use container.python: env"
        )
