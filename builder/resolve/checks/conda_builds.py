"""Checks of conda dependencies: builds for another vendor, missing builds, versions that pip's list excludes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from builder.model.finding import Finding, Level, Location
from builder.model.recipe import CondaSpec, PipRequirement
from builder.model.target import Target
from builder.parse.gpu_tables import VendorMarker, load_package_table
from builder.resolve.checks.packages import locate, name_devices
from builder.resolve.checks.vendors import VENDOR_NAMES, suggest_counterpart
from builder.resolve.conda_names import CUDA_VERSIONS, find_python_name, matches, to_specifier
from builder.resolve.requested import FAMILY
from builder.resolve.torch import find_release, list_tokens, serves_cuda


def check_conda_builds(target: Target) -> Iterator[Finding]:
    """Report build strings and metapackages of conda that select another vendor's build, or the CPU's."""
    site = target.site
    for spec in target.recipe.conda:
        marker = next((row for row in load_package_table().markers if _is_marked(row, spec)), None)
        if marker is None or marker.vendor == site.vendor:
            continue
        at = Location(file=target.recipe.file, line=spec.line)
        has = f"'{site.name}' has {name_devices(site.vendor)}"
        message = f"'{spec.text}' chooses a build for {VENDOR_NAMES[marker.vendor]}, {has}: it is ignored"
        fix = "remove it: recipe chooses the build of torch for the site"
        if target.environment.torch is None:
            fix = f"remove it: no build for {VENDOR_NAMES[marker.vendor]} is of use on '{site.name}'"
        yield Finding(code="conda-build", message=message, at=at, fix=fix, level="warning")
    if site.vendor in ("amd", "intel"):
        yield from _check_other_cuda_builds(target)
    elif site.vendor == "nvidia":
        yield from _check_torch_builds(target)


def _is_marked(marker: VendorMarker, spec: CondaSpec) -> bool:
    if marker.kind != "conda" or not any(matches(spec.name, form) for form in marker.pattern.split()):
        return False
    return not marker.build or matches(spec.build, marker.build)


def _check_other_cuda_builds(target: Target) -> Iterator[Finding]:
    """Report any other CUDA build, which would be installed unchanged."""
    if target.environment.place != "conda":
        return
    for spec in target.recipe.conda:
        if "cuda" not in spec.build or any(_is_marked(row, spec) for row in load_package_table().markers):
            continue
        if spec.text in target.environment.conda:
            at = Location(file=target.recipe.file, line=spec.line)
            message = f"'{spec.text}' is a CUDA build, '{target.site.name}' has {name_devices(target.site.vendor)}"
            yield Finding(code="conda-build", message=message, at=at, fix="remove the build string")


def _check_torch_builds(target: Target) -> Iterator[Finding]:
    """Report a build string that requests another CUDA build of torch than the wheel that is installed."""
    torch = target.environment.torch
    for spec in target.recipe.conda if torch is not None else ():
        match = re.match(r"cuda\D?(\d{3})", spec.build) if find_python_name(spec.name) == "torch" else None
        brought = (target.base.cuda or "").split(".") if torch is not None and torch.provided else []
        if torch is None or match is None or f"cu{match[1]}" in (torch.token, "cu" + "".join(brought[:2])):
            continue
        build, at = f"cu{match[1]}", Location(file=target.recipe.file, line=spec.line)
        message = f"'{spec.text}' asks for the build {build}, torch is {torch.local}: the build string is not used"
        row = find_release(torch.version)
        fix = "remove the build string"
        if row is not None and build in list_tokens(row, site=target.site):
            fix = f"write torch=={row.torch}+{build} below '- pip:' to keep it"
        yield Finding(code="conda-build", message=message, at=at, fix=fix, level="warning")


def check_conda_toolkit(target: Target) -> Iterator[Finding]:
    """Report a CUDA that conda installs and the site's driver does not run."""
    gpu = target.site.gpu
    for spec in target.recipe.conda if gpu is not None and gpu.vendor == "nvidia" else ():
        major = re.match(r"[=~<>! ]*(\d+)", spec.version) if spec.name in CUDA_VERSIONS else None
        upper = spec.version.lstrip().startswith(("<", "!"))
        if gpu is None or major is None or upper or spec.text not in target.environment.conda:
            continue
        if serves_cuda(f"{major[1]}.0", site=target.site):
            continue
        at = Location(file=target.recipe.file, line=spec.line)
        message = f"'{spec.text}' is CUDA {major[1]}, the driver of '{target.site.name}' is {gpu.driver}"
        fix = f"write {spec.name}={gpu.cuda_native}" if gpu.cuda_native else "write an older one"
        yield Finding(code="package-cuda", message=message, at=at, fix=f"{fix}, or remove it")


def check_conda_default(target: Target) -> Iterator[Finding]:
    """Report packages that conda-forge does not build for AMD and Intel GPUs: a CPU build would be installed."""
    site, recipe = target.site, target.recipe
    if site.vendor not in ("amd", "intel"):
        return
    table = load_package_table()
    for spec in recipe.conda:
        cpu = spec.name in table.conda_nvidia_or_cpu.split()
        gpu_only = not cpu and spec.name in table.conda_nvidia.split()
        if not (cpu or gpu_only) or spec.text not in target.environment.conda:
            continue
        if cpu and ("cpu" in recipe.container.gpu or (spec.name == "jaxlib" and _has_package(target, "jax"))):
            continue
        at = Location(file=recipe.file, line=spec.line)
        ends = "would run without the GPU" if cpu else "would not work"
        built = "NVIDIA GPUs and for CPUs" if cpu else "NVIDIA GPUs"
        message = f"'{spec.text}' from conda is built for {built}: on '{site.name}' it {ends}"
        fix = suggest_counterpart(spec.name.removesuffix("-gpu"), site=site)
        fix += ", for the lines below '- pip:'" if fix.startswith("for ") else ""
        fix += ", or add 'cpu' to container.gpu if you want that" if cpu else ""
        yield Finding(code="conda-default", message=message, at=at, fix=fix)


def check_conda_cuda(target: Target) -> Iterator[Finding]:
    """Report the CUDA version that conda's solver uses: on a build host without NVIDIA GPU it chooses CPU builds."""
    site, environment = target.site, target.environment
    asked = [name for text in environment.conda if (name := re.split(r"[ =<>!~]", text)[0]) not in ("python", "pip")]
    if site.vendor != "nvidia" or environment.place != "conda" or not asked or site.gpu is None:
        return
    if environment.cuda:
        message = (
            f"conda's solver uses CUDA {environment.cuda}, which the driver of '{site.name}' serves: "
            "on a build machine without GPU it would choose builds for CPUs"
        )
        fix = "no action needed: CONDA_OVERRIDE_CUDA is set for the build only"
        yield Finding(code="conda-cuda", message=message, fix=fix, level="note")
        return
    message = f"the CUDA that the driver of '{site.name}' serves is unknown: conda chooses builds for CPUs"
    fix = "read the driver on a GPU node with `recipe doctor`, and pass it with --driver"
    yield Finding(code="conda-cuda", message=message, fix=fix, level="warning")


def _has_package(target: Target, name: str) -> bool:
    return any(spec.name == name for spec in target.recipe.conda)


def check_two_versions(target: Target) -> Iterator[Finding]:
    """Report a package that no version of satisfies both lists: pip replaces conda's, or refuses its own two lines."""
    pinned: dict[str, list[PipRequirement]] = {}
    for line in target.recipe.pip:
        if line.specifier and not line.url and not line.marker and line.name not in FAMILY:
            pinned.setdefault(line.name, []).append(line)
    for spec in target.recipe.conda if pinned else ():
        name = find_python_name(spec.name) or str(canonicalize_name(spec.name))
        wanted = to_specifier(spec.version) if name in pinned else None
        for line in pinned[name] if wanted else ():
            if not _has_conflict(wanted or "", line.specifier):
                continue
            by_conda = target.environment.place == "conda"
            message = f"'{line.text}' of pip contradicts '{spec.text}' of conda: "
            message += "pip replaces what conda installed" if by_conda else "pip installs both here, and refuses them"
            level: Level = "warning" if by_conda else "error"
            at = locate(target.recipe, line)
            yield Finding(code="two-versions", message=message, at=at, fix="keep one of the two", level=level)


def _has_conflict(one: str, other: str) -> bool:
    """Whether no version satisfies both; only where one of them pins a version, or its first numbers."""
    both = SpecifierSet(f"{one},{other}")
    if not any(item.operator in ("==", "===", "~=") for item in both):
        return False
    tried = {"0"}
    for item in both:
        version = item.version.removesuffix(".*")
        tried |= {version} | {f"{version}.{patch}" for patch in (0, 1, 9, 99)}
        if item.version.endswith(".*") or item.operator == "~=":
            tried |= {f"{version}.{patch}" for patch in range(2, 31)}
    return not any(both.contains(Version(version), prereleases=True) for version in tried if _is_version(version))


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except ValueError:
        return False
    return True
