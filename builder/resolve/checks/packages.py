"""Checks of a recipe's packages: what installs but runs without the GPU, or is not what was meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from builder.model.finding import Finding, Level, Location
from builder.model.recipe import PipRequirement, Recipe
from builder.model.site import Vendor
from builder.model.target import Target
from builder.parse.gpu_tables import VendorMarker, VendorPackage, load_package_table, load_torch_table
from builder.resolve.checks.vendors import (
    VENDOR_NAMES,
    find_ending,
    find_named_vendor,
    read_local,
    suggest_counterpart,
)
from builder.resolve.conda_names import find_python_name, is_cuda_library, load_name_table, matches
from builder.resolve.indexes import TORCH_HOST, is_build, is_kept_index, list_builds
from builder.resolve.package_plan import (
    CUDA_RUNTIME,
    PROTECTED_PACKAGES,
    TRITON,
    Replacement,
    find_replacement,
    is_local,
)
from builder.resolve.requested import COMPANIONS, FAMILY, find_family_name, to_release
from builder.resolve.torch import find_required_torch, find_vendor, list_tokens, serves_cuda

OLDEST_CUDA = 11  # of the drivers' table; older ones run on every driver


def check_local_requirements(target: Target) -> Iterator[Finding]:
    """Report a requirement that is a local folder: it does not exist during the build."""
    for line in target.recipe.pip:
        if is_local(line):
            message = f"'{line.text}' is a folder on this machine, which the build of an image cannot see"
            yield Finding(
                code="pip-local",
                message=message,
                at=locate(target.recipe, line),
                fix=_suggest_copy(target.recipe, target),
            )
    options = target.recipe.pip_options
    for place in filter(None, (options.index_url, *options.extra_index_urls, *options.find_links)):
        if "://" not in place or place.startswith("file:"):
            message = f"'{place}' is a folder on this machine, which the build of an image cannot see"
            fix = "remove it, and set PIP_FIND_LINKS or PIP_INDEX_URL when building: builds can see those folders"
            yield Finding(code="pip-local", message=message, at=Location(file=target.recipe.file), fix=fix)


def _suggest_copy(recipe: Recipe, target: Target) -> str:
    """Suggest how to copy a folder into the image: with the container section, which not every backend supports."""
    able = [name for name in target.site.build.backends if name not in ("cotainr", "tykky")]
    if not able:
        return f"give the address of a wheel or its git repository: {target.backend} copies no folders"
    fix = "copy it with container.files and install it with container.run"
    if recipe.kind != "conda":
        fix += " of an environment.yml, which can name this file without this line: - pip: [-r FILE]"
    return fix if target.backend in able else f"{fix}; and build with --backend {able[0]}"


def check_vendor(target: Target) -> Iterator[Finding]:
    """Report a package that works only on devices of another vendor."""
    site = target.site
    for line in target.recipe.pip:
        marker = _find_other_vendor(line, target=target)
        if marker is None:
            continue
        works = f"'{line.text}' works on {VENDOR_NAMES[marker.vendor]} devices only"
        message = f"{works}, '{site.name}' has {name_devices(site.vendor)}"
        fix = suggest_counterpart(line.name, site=site, backend=target.backend)
        if fix.startswith("remove it") and line.extras and "cpu" in _find_index_vendors(line):
            fix += f"; {line.name} without the extra runs on CPUs, with 'cpu' in container.gpu"
        level: Level = "warning" if site.vendor == "cpu" else "error"
        yield Finding(code="package-vendor", message=message, at=locate(target.recipe, line), fix=fix, level=level)


def check_vendor_names(target: Target) -> Iterator[Finding]:
    """Report a package without a table row whose name, extra or local version names another vendor."""
    site = target.site
    for line in target.recipe.pip:
        found = None if find_family_name(line) or _is_dropped(line, target=target) else find_named_vendor(line)
        if found is None or _find_other_vendor(line, target=target):
            continue
        ending, part, is_extra = found
        if not ending.devices and (ending.vendor == site.vendor or site.vendor in line.extras):
            continue
        shown = unquote(line.url).partition("#")[0].rpartition("/")[2] if line.url else line.text
        by_name = f"by {part}, not looked up"
        message = f"'{shown}' is for {ending.devices or name_devices(ending.vendor)} ({by_name}), '{site.name}' has "
        message += name_devices(site.vendor)
        error = ending.certain and not is_extra and site.vendor != "cpu"
        fix = suggest_counterpart(line.name, site=site, backend=target.backend)
        if not error and fix.startswith("remove it"):
            fix = f"check that it does what you need on {name_devices(site.vendor)}, or remove it"
        level: Level = "error" if error else "warning"
        yield Finding(code="package-vendor", message=message, at=locate(target.recipe, line), fix=fix, level=level)


def _find_other_vendor(line: PipRequirement, *, target: Target) -> VendorMarker | None:
    """Find the marker that assigns a requirement to another vendor, None if there is none."""
    vendor = target.site.vendor
    found = (row for row in load_package_table().markers if _is_marked(row, line) and row.vendor != vendor)
    marker = next(found, None)
    return None if marker is None or _is_dropped(line, target=target) or vendor in _find_index_vendors(line) else marker


def _find_index_vendors(line: PipRequirement) -> tuple[Vendor, ...]:
    """Return the vendors that the file on the default index serves; it has no local version."""
    if "+" in line.specifier:
        return ()
    return next((row.pypi for row in load_package_table().packages if row.name == line.name), ())


def _is_marked(marker: VendorMarker, line: PipRequirement) -> bool:
    if marker.kind != "pip" or not any(matches(line.name, form) for form in marker.pattern.split()):
        return False
    return not marker.extra or any(matches(extra, marker.extra) for extra in line.extras)


def _is_dropped(line: PipRequirement, *, target: Target) -> bool:
    """Whether the package is dropped or replaced anyway: CUDA libraries, Triton, packages of the base image."""
    if line.name in TRITON and target.environment.torch is not None:
        return True
    if _find_replacement(line, target=target):
        return True
    if CUDA_RUNTIME.fullmatch(line.name) or line.name in load_package_table().harmless.split():
        return True
    return target.environment.place == "base" and line.name in PROTECTED_PACKAGES and line.name in target.base.provides


def _find_replacement(line: PipRequirement, *, target: Target) -> Replacement | None:
    return find_replacement(line, site=target.site, base=target.base, python=target.environment.python)


def check_counterparts(target: Target) -> Iterator[Finding]:
    """Report packages of another vendor that are replaced by the site's counterpart."""
    for line in target.recipe.pip:
        other = _find_replacement(line, target=target)
        if other is None or other.text not in target.environment.pip_lines:
            continue
        message = f"'{line.text}' is not built for the {VENDOR_NAMES[target.site.vendor]} GPUs of '{target.site.name}'"
        if target.site.vendor == "cpu":
            message = f"'{line.text}' is built for GPUs, '{target.site.name}' has none"
        message += f": it is replaced by '{other.text}'"
        doubts = other.row.unsure
        message += f"; not certain: {', '.join(doubts)}" if doubts else ""
        fix = "try it on a GPU node" if doubts else "no action needed: its module has the same name"
        level: Level = "warning" if doubts else "note"
        yield Finding(code="package-counterpart", message=message, at=locate(target.recipe, line), fix=fix, level=level)


def check_default_wheel(target: Target) -> Iterator[Finding]:
    """Report a package whose file on the default index is for another vendor or the CPU."""
    site, recipe = target.site, target.recipe
    if site.vendor == "cpu":
        return
    names = {line.name for line in recipe.pip}
    for line in recipe.pip:
        row = next((row for row in load_package_table().packages if row.name == line.name), None)
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
        other = find_named_vendor(line)
        if other is not None and (other[0].devices or other[0].vendor != site.vendor):
            continue  # reported by its name
        if site.vendor in row.pypi or wanted_cpu or line.url:
            yield from _check_minimum(row, line, target=target)
            continue
        built = " and ".join(VENDOR_NAMES[vendor] for vendor in row.pypi)
        message = (
            f"'{line.text}' from the default index is built for {built}: on '{site.name}' it would run without the GPU"
        )
        fix = suggest_counterpart(line.name, site=site, backend=target.backend)
        if row.usual_on_cpu and fix.startswith("remove it"):
            fix = "add 'cpu' to container.gpu if you want that"
        torch = target.environment.torch
        if "index rocmX.Y" in fix and torch is not None and "://" in torch.index:
            fix = f"pin a local version, as in {line.name}==VERSION+{torch.token}, of the index {torch.index}"
        if row.pypi == ("cpu",):
            fix += ", or add 'cpu' to container.gpu if you want that"
        level: Level = "warning" if row.usual_on_cpu else "error"
        yield Finding(code="default-wheel", message=message, at=locate(recipe, line), fix=fix, level=level)


def _is_served(row: VendorPackage, line: PipRequirement, *, names: set[str], target: Target) -> bool:
    """Whether the vendor's build is installed with it: by an extra, a plug-in, or in the base image."""
    if row.name in target.base.provides and target.environment.place == "base":
        return True
    if row.name == "jaxlib":
        return "jax" in names
    if find_vendor(line.specifier.partition("+")[2]) == target.site.vendor:
        return True  # no file on a default index has a local version
    extras = any(
        marker.vendor == target.site.vendor and marker.extra and _is_marked(marker, line)
        for marker in load_package_table().markers
    )
    plugin = any(name.startswith((f"{row.name}-cuda", f"{row.name}-rocm")) for name in names)
    return extras or (row.name == "jax" and plugin) or row.plugins.get(target.site.vendor) in names


def check_many_builds(target: Target) -> Iterator[Finding]:
    """Report packages with several GPU builds under one name, of which the default index has one."""
    site = target.site
    if site.vendor not in ("amd", "intel"):
        return
    known = {row.name for row in load_package_table().packages} | {*FAMILY, *TRITON}
    names = set(load_torch_table().gpu_dependent.names) - known
    for line in target.recipe.pip:
        kept = target.environment.place == "base" and line.name in target.base.provides
        pinned = find_vendor(line.specifier.partition("+")[2]) == site.vendor
        if line.name in names and not (kept or pinned or line.url):
            message = f"'{line.text}' has builds for several vendors under one name; the default index has NVIDIA's"
            fix = f"check that it does what you need on {name_devices(site.vendor)}"
            torch = target.environment.torch
            if line.name in load_torch_table().indexed.names and torch and "://" in torch.index:
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


def check_torch_pin(target: Target) -> Iterator[Finding]:
    """Report a package that requires an exact other torch: it would replace torch, or fail to install."""
    torch = target.environment.torch
    if torch is None or not torch.version:
        return
    for line in target.recipe.pip:
        wanted = [] if _is_dropped(line, target=target) else find_required_torch(line)
        if wanted and not any(item.contains(Version(torch.version).base_version) for item in wanted):
            texts = list(dict.fromkeys(str(item) for item in wanted))
            message = f"'{line.text}' requires torch{' or '.join(texts)}, the environment has torch {torch.version}"
            fix = _suggest_torch(line, texts=texts, target=target)
            yield Finding(code="torch-pin", message=message, at=locate(target.recipe, line), fix=fix)


def _suggest_torch(line: PipRequirement, *, texts: list[str], target: Target) -> str:
    """Suggest a torch that a package requires and that the site serves, else another release of the package."""
    python = target.environment.python
    served = [
        text
        for text in texts
        if any(
            SpecifierSet(text).contains(row.torch) and (python is None or python in row.pythons)
            for row in load_torch_table().releases
            if list_tokens(row, site=target.site)
        )
    ]
    if served:
        return f"write torch{served[-1]}, or another {line.name}"
    return f"use another {line.name}: '{target.site.name}' serves no torch that this one requires"


def check_package_cuda(target: Target) -> Iterator[Finding]:
    """Report a package whose name or extra names a CUDA version that the site's driver does not run."""
    site = target.site
    if site.vendor != "nvidia" or site.gpu is None:
        return
    for line in target.recipe.pip:
        if CUDA_RUNTIME.fullmatch(line.name) or find_family_name(line):
            continue
        texts = (line.name, *(f"-{extra}" for extra in line.extras), f"+{read_local(line)}")
        found = next((one for one in map(find_ending, texts) if one and one[1]), None)
        if found is None or int(found[1]) < OLDEST_CUDA or serves_cuda(f"{found[1]}.0", site=site):
            continue
        message = f"'{line.text}' is built for CUDA {found[1]}, the driver of '{site.name}' is {site.gpu.driver}"
        fix = f"use a build for CUDA {int(found[1]) - 1}"
        yield Finding(code="package-cuda", message=message, at=locate(target.recipe, line), fix=fix)


def check_hashes(target: Target) -> Iterator[Finding]:
    """Report hashes if pip is called once: one hash makes pip require all, and the site's torch has none."""
    recipe = target.recipe
    hashed = [line for line in recipe.pip if line.hashes]
    if target.backend not in ("cotainr", "tykky") or not target.environment.torch_lines:
        return
    if hashed or recipe.pip_options.require_hashes:
        at = locate(recipe, hashed[0]) if hashed else Location(file=recipe.file)
        message = f"{target.backend} installs in one call of pip, and the file has no hash for this site's torch"
        yield Finding(code="pip-hashes", message=message, at=at, fix="remove the hashes from the file")


def check_torch_index(target: Target) -> Iterator[Finding]:
    """Report an index of torch wheels that is not used, because the compiler chooses the index."""
    torch = target.environment.torch
    if torch is None:
        return
    options, builds = target.recipe.pip_options, list_builds(target.environment.pip_lines)
    for url in filter(None, (options.index_url, *options.extra_index_urls, *options.find_links)):
        token = url.rstrip("/").rpartition("/")[2]
        if TORCH_HOST in url and token != torch.token and not is_kept_index(url, torch=torch, builds=builds):
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


def check_other_builds(target: Target) -> Iterator[Finding]:
    """Report a package pinned to a build of PyTorch's index that is not the build of torch."""
    torch = target.environment.torch
    if torch is None or "://" not in torch.index:
        return
    for line in target.recipe.pip:
        build = next(iter(list_builds([line.text])), "")
        listed = line.name in load_torch_table().indexed.names or any(
            line.name == pin.package for pin in load_package_table().torch_pins
        )
        if listed and is_build(build) and build != torch.token and line.text in target.environment.pip_lines:
            message = f"'{line.text}' is the build for {build}, torch is {torch.local}: it may not load"
            right = line.text.replace(f"+{build}", f"+{torch.token}")
            fix = f"write {right}, if {torch.index} has it, or remove it for '{target.site.name}'"
            yield Finding(code="torch-pin", message=message, at=locate(target.recipe, line), fix=fix, level="warning")


def check_pins(target: Target) -> Iterator[Finding]:
    """Report packages without a version: a later image may contain others."""
    recipe = target.recipe
    conda = [
        spec
        for spec in recipe.conda
        if not spec.version and not spec.url and spec.name not in ("pip", "nodefaults") and not _is_chosen(spec.name)
    ]
    pip = [
        line for line in recipe.pip if line.name and not line.specifier and not line.url and not _is_chosen(line.name)
    ]
    loose = [*(spec.name for spec in conda), *(line.name for line in pip)]
    if loose:
        shown = ", ".join(loose[:6]) + (f" and {len(loose) - 6} more" if len(loose) > 6 else "")
        message = f"no version given for: {shown}; a later image may contain other versions"
        at = Location(file=recipe.file, line=conda[0].line) if conda else locate(recipe, pip[0])
        yield Finding(
            code="unpinned", message=message, at=at, fix="pin the versions that must not change", level="note"
        )


def _is_chosen(name: str) -> bool:
    """Whether the compiler chooses the version, or drops the package."""
    companion = name in COMPANIONS or find_python_name(name) in COMPANIONS
    return companion or name in load_name_table().torch_choosers or is_cuda_library(name) or name.startswith("nvidia-")


def locate(recipe: Recipe, line: PipRequirement) -> Location:
    return Location(file=line.file or recipe.file, line=line.line)


def name_devices(vendor: Vendor) -> str:
    """Name a vendor's devices for a message."""
    return "CPUs only" if vendor == "cpu" else f"{VENDOR_NAMES[vendor]} GPUs"
