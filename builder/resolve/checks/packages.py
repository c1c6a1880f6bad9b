"""Checks of a recipe's packages: what would install and then run without the GPU, or not be what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from builder.model.finding import Finding, Level, Location
from builder.model.recipe import PipRequirement, Recipe
from builder.model.site import Vendor
from builder.model.target import Target
from builder.parse.gpu_tables import VendorMarker, VendorPackage, package_table, torch_table
from builder.resolve.conda_names import find_python_name, is_cuda_library, load_name_table, matches
from builder.resolve.packages import (
    CUDA_RUNTIME,
    PROTECTED_PACKAGES,
    TORCH_HOST,
    TRITON,
    Replacement,
    find_replacement,
    is_local,
)
from builder.resolve.requested import COMPANIONS, FAMILY, to_release
from builder.resolve.torch import find_required_torch, find_vendor, serves_cuda

HARMLESS_PACKAGES = ("nvidia-ml-py", "nvidia-ml-py3")  # asks a driver that need not be there
_CUDA_MAJOR = re.compile(r"(?:^|-)cu(?:da)?(1[1-9])(?:\d|x)?(?:$|-)")
VENDOR_NAMES = {"amd": "AMD", "nvidia": "NVIDIA", "intel": "Intel", "cpu": "CPU"}


def check_local_requirements(target: Target) -> Iterator[Finding]:
    """A requirement that is a folder on this machine is not there while the image is built."""
    for line in target.recipe.pip:
        if is_local(line):
            message = f"'{line.text}' is a folder on this machine: it is not in the image while packages are installed"
            yield Finding(
                code="pip-local",
                message=message,
                at=locate(target.recipe, line),
                fix=_suggest_copy(target.recipe, target),
            )
    options = target.recipe.pip_options
    for place in filter(None, (options.index_url, *options.extra_index_urls, *options.find_links)):
        if "://" not in place or place.startswith("file:"):
            message = f"'{place}' is a folder on this machine: it is not in the image while packages are installed"
            fix = "leave it out, and set PIP_FIND_LINKS or PIP_INDEX_URL when building: those folders are made visible"
            yield Finding(code="pip-local", message=message, at=Location(file=target.recipe.file), fix=fix)


def _suggest_copy(recipe: Recipe, target: Target) -> str:
    """How a folder comes into the image: by the container section of a YAML file, which not every backend serves."""
    able = [name for name in target.site.build.backends if name not in ("cotainr", "tykky")]
    if not able:
        return f"give the address of a wheel or its git repository: {target.backend} copies no folders"
    fix = "copy it with container.files and install it with container.run"
    if recipe.kind != "conda":
        fix += " of an environment.yml, which can name this file: - pip: [-r FILE]"
    return fix if target.backend in able else f"{fix}; and build with --backend {able[0]}"


def check_vendor(target: Target) -> Iterator[Finding]:
    """A name that serves one vendor's devices only, on a site of another."""
    site = target.site
    for line in target.recipe.pip:
        marker = _find_other_vendor(line, target=target)
        if marker is None:
            continue
        message = f"'{line.text}' works on {VENDOR_NAMES[marker.vendor]} devices only, '{site.name}' has {name_devices(site.vendor)}"
        fix = suggest_counterpart(line.name, vendor=site.vendor)
        level: Level = "warning" if site.vendor == "cpu" else "error"
        yield Finding(code="package-vendor", message=message, at=locate(target.recipe, line), fix=fix, level=level)


def _find_other_vendor(line: PipRequirement, *, target: Target) -> VendorMarker | None:
    """What marks a requirement as one for another vendor's devices; None where nothing does."""
    vendor = target.site.vendor
    found = (row for row in package_table().markers if _is_marked(row, line) and row.vendor != vendor)
    marker = next(found, None)
    return None if marker is None or _is_dropped(line, target=target) or vendor in _find_index_vendors(line) else marker


def _find_index_vendors(line: PipRequirement) -> tuple[Vendor, ...]:
    """Whom the file on the default index serves: Intel's extension is for CPUs there. It has no local version."""
    if "+" in line.specifier:
        return ()
    return next((row.pypi for row in package_table().packages if row.name == line.name), ())


def _is_marked(marker: VendorMarker, line: PipRequirement) -> bool:
    if marker.kind != "pip" or not matches(line.name, marker.pattern):
        return False
    return not marker.extra or any(matches(extra, marker.extra) for extra in line.extras)


def _is_dropped(line: PipRequirement, *, target: Target) -> bool:
    """What is dropped or replaced on the way is no fault: CUDA's libraries, Triton, what the base image protects."""
    if line.name in TRITON and target.environment.torch is not None:
        return True
    if _find_replacement(line, target=target):
        return True
    if CUDA_RUNTIME.fullmatch(line.name) or line.name in HARMLESS_PACKAGES:
        return True
    return target.environment.place == "base" and line.name in PROTECTED_PACKAGES and line.name in target.base.provides


def _find_replacement(line: PipRequirement, *, target: Target) -> Replacement | None:
    return find_replacement(line, site=target.site, base=target.base, python=target.environment.python)


def check_counterparts(target: Target) -> Iterator[Finding]:
    """Another vendor's package for which the site's counterpart is installed."""
    for line in target.recipe.pip:
        other = _find_replacement(line, target=target)
        if other is None or other.text not in target.environment.pip_lines:
            continue
        message = f"'{line.text}' is not built for the {VENDOR_NAMES[target.site.vendor]} GPUs of '{target.site.name}'"
        if target.site.vendor == "cpu":
            message = f"'{line.text}' is built for GPUs, '{target.site.name}' has none"
        message += f": '{other.text}' takes its place"
        doubts = other.row.unsure
        message += f"; not certain: {', '.join(doubts)}" if doubts else ""
        fix = "try it on a GPU node" if doubts else "nothing: its module has the same name"
        level: Level = "warning" if doubts else "note"
        yield Finding(code="package-counterpart", message=message, at=locate(target.recipe, line), fix=fix, level=level)


def check_default_wheel(target: Target) -> Iterator[Finding]:
    """The file on the default index is another vendor's, or for the CPU, and installs without a word."""
    site, recipe = target.site, target.recipe
    if site.vendor == "cpu":
        return
    names = {line.name for line in recipe.pip}
    for line in recipe.pip:
        row = next((row for row in package_table().packages if row.name == line.name), None)
        if (
            row is None
            or not row.pypi
            or row.name in FAMILY
            or row.name in TRITON
            or _find_replacement(line, target=target)
            or _find_other_vendor(line, target=target)
            or _is_served(row, line, names=names, target=target)
        ):
            continue
        wanted_cpu = "cpu" in recipe.container.gpu and "cpu" in row.pypi
        if site.vendor in row.pypi or wanted_cpu or line.url:
            yield from _check_minimum(row, line, target=target)
            continue
        built = " and ".join(VENDOR_NAMES[vendor] for vendor in row.pypi)
        message = (
            f"'{line.text}' from the default index is built for {built}: on '{site.name}' it would run without the GPU"
        )
        fix = suggest_counterpart(line.name, vendor=site.vendor)
        torch = target.environment.torch
        if "index rocmX.Y" in fix and torch is not None and "://" in torch.index:
            fix = f"pin a local version, as in {line.name}==VERSION+{torch.token}, of the index {torch.index}"
        if row.pypi == ("cpu",):
            fix += ", or add 'cpu' to container.gpu if that is meant"
        yield Finding(code="default-wheel", message=message, at=locate(recipe, line), fix=fix)


def _is_served(row: VendorPackage, line: PipRequirement, *, names: set[str], target: Target) -> bool:
    """Whether a vendor's build comes with it: by an extra, a plug-in beside it, or the base image's own."""
    if row.name in target.base.provides and target.environment.place == "base":
        return True
    if row.name == "jaxlib":
        return "jax" in names
    if find_vendor(line.specifier.partition("+")[2]) == target.site.vendor:
        return True  # no file on a default index has a local version
    extras = any(
        marker.vendor == target.site.vendor and marker.extra and _is_marked(marker, line)
        for marker in package_table().markers
    )
    plugin = any(name.startswith((f"{row.name}-cuda", f"{row.name}-rocm")) for name in names)
    return extras or (row.name == "jax" and plugin)


def check_many_builds(target: Target) -> Iterator[Finding]:
    """Packages beside torch that exist in several GPU builds under one name, of which the default index has one."""
    site = target.site
    if site.vendor not in ("amd", "intel"):
        return
    known = {row.name for row in package_table().packages} | {*FAMILY, *TRITON}
    names = set(torch_table().gpu_dependent.names) - known
    for line in target.recipe.pip:
        kept = target.environment.place == "base" and line.name in target.base.provides
        pinned = find_vendor(line.specifier.partition("+")[2]) == site.vendor
        if line.name in names and not (kept or pinned or line.url):
            message = f"'{line.text}' has builds for several vendors under one name: the default index's is for NVIDIA"
            fix = f"look whether it does what you need on {name_devices(site.vendor)}"
            torch = target.environment.torch
            if line.name in torch_table().indexed.names and torch and "://" in torch.index:
                fix += f"; the index {torch.index} may have a build for them, with a local version to pin"
            yield Finding(code="many-builds", message=message, at=locate(target.recipe, line), fix=fix, level="warning")


def _check_minimum(row: VendorPackage, line: PipRequirement, *, target: Target) -> Iterator[Finding]:
    least = row.minimum.get(target.site.vendor)
    exact = re.fullmatch(r"={2,3}([^*,=]+)", line.specifier)
    pinned = to_release(exact[1]) if exact else None
    if least and pinned and pinned < Version(least):
        message = f"'{line.text}' has no build for {name_devices(target.site.vendor)}: the first one known is {least}"
        yield Finding(
            code="default-wheel", message=message, at=locate(target.recipe, line), fix=f"use {row.name}>={least}"
        )


def suggest_counterpart(name: str, *, vendor: Vendor) -> str:
    """What serves a vendor in place of a package, from the table."""
    families = (row for row in package_table().packages if name == row.name or name.startswith(f"{row.name}-"))
    row = next(families, None) or next((row for row in package_table().packages if row.name in name), None)
    text = getattr(row, vendor, None) if row is not None and vendor != "cpu" else None
    if text:
        return f"for {VENDOR_NAMES[vendor]} there is: {text}"
    return f"leave it out: no build for {VENDOR_NAMES[vendor]} is known"


def check_torch_pin(target: Target) -> Iterator[Finding]:
    """A package that requires one torch exactly would bring that one, or fail in the middle of the installation."""
    torch = target.environment.torch
    if torch is None or not torch.version:
        return
    for line in target.recipe.pip:
        wanted = [] if _is_dropped(line, target=target) else find_required_torch(line)
        if wanted and not any(item.contains(Version(torch.version).base_version) for item in wanted):
            texts = list(dict.fromkeys(str(item) for item in wanted))
            message = f"'{line.text}' requires torch{' or '.join(texts)}, the environment has torch {torch.version}"
            fix = f"write torch{texts[-1]}, or another {line.name}"
            yield Finding(code="torch-pin", message=message, at=locate(target.recipe, line), fix=fix)


def check_package_cuda(target: Target) -> Iterator[Finding]:
    """A package whose name or extra says a CUDA that the site's driver does not run."""
    site = target.site
    if site.vendor != "nvidia" or site.gpu is None:
        return
    for line in target.recipe.pip:
        found = next(filter(None, map(_CUDA_MAJOR.search, (line.name, *line.extras))), None)
        if found is None or CUDA_RUNTIME.fullmatch(line.name) or serves_cuda(f"{found[1]}.0", site=site):
            continue
        message = f"'{line.text}' is built for CUDA {found[1]}, the driver of '{site.name}' is {site.gpu.driver}"
        fix = f"use a build for CUDA {int(found[1]) - 1}"
        yield Finding(code="package-cuda", message=message, at=locate(target.recipe, line), fix=fix)


def check_hashes(target: Target) -> Iterator[Finding]:
    """One call of pip asks a hash of everything as soon as one line has a hash, and the site's torch has none."""
    recipe = target.recipe
    hashed = [line for line in recipe.pip if line.hashes]
    if target.backend not in ("cotainr", "tykky") or not target.environment.torch_lines:
        return
    if hashed or recipe.pip_options.require_hashes:
        at = locate(recipe, hashed[0]) if hashed else Location(file=recipe.file)
        message = f"{target.backend} installs in one call of pip, and the file has no hash of the torch for this site"
        yield Finding(code="pip-hashes", message=message, at=at, fix="leave the hashes out of the file")


def check_torch_index(target: Target) -> Iterator[Finding]:
    """An index of another vendor's wheels, or of one build among many: the compiler's own choice takes its place."""
    torch = target.environment.torch
    if torch is None:
        return
    options = target.recipe.pip_options
    for url in filter(None, (options.index_url, *options.extra_index_urls, *options.find_links)):
        token = url.rstrip("/").rpartition("/")[2]
        if TORCH_HOST in url and token != torch.token:
            vendor = find_vendor(token)
            built = (
                f", which holds builds for {VENDOR_NAMES[vendor]}," if vendor and vendor != target.site.vendor else ""
            )
            message = f"the index '{url}'{built} is not used"
            chosen = (
                "the base image's own torch is kept"
                if torch.provided
                else f"torch {torch.local} comes from {torch.index}"
            )
            at = Location(file=target.recipe.file, line=target.recipe.lines.get("dependencies"))
            yield Finding(code="torch-index", message=message, at=at, fix=chosen, level="note")


def check_pins(target: Target) -> Iterator[Finding]:
    """Packages without a version are other packages tomorrow."""
    recipe = target.recipe
    loose = [
        spec.name
        for spec in recipe.conda
        if not spec.version and not spec.url and spec.name not in ("pip", "nodefaults") and not _is_chosen(spec.name)
    ]
    loose += [
        line.name
        for line in recipe.pip
        if line.name and not line.specifier and not line.url and not _is_chosen(line.name)
    ]
    if loose:
        shown = ", ".join(loose[:6]) + (f" and {len(loose) - 6} more" if len(loose) > 6 else "")
        message = f"without a version: {shown}; tomorrow's image may hold others"
        at = Location(file=recipe.file)
        yield Finding(code="unpinned", message=message, at=at, fix="pin what must stay the same", level="note")


def _is_chosen(name: str) -> bool:
    """Whether the compiler settles the version, or leaves the package out."""
    companion = name in COMPANIONS or find_python_name(name) in COMPANIONS
    return companion or name in load_name_table().torch_choosers or is_cuda_library(name) or name.startswith("nvidia-")


def locate(recipe: Recipe, line: PipRequirement) -> Location:
    """Where a requirement stands."""
    return Location(file=line.file or recipe.file, line=line.line)


def name_devices(vendor: Vendor) -> str:
    """A vendor's devices, in a message."""
    return "CPUs only" if vendor == "cpu" else f"{VENDOR_NAMES[vendor]} GPUs"
