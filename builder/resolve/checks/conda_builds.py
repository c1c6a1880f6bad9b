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
from builder.resolve.checks.packages import locate, name_devices, suggest_cpu
from builder.resolve.checks.triton import suggest_triton
from builder.resolve.checks.vendors import VENDOR_NAMES, report_dispute, suggest_counterpart
from builder.resolve.conda_names import CUDA_VERSIONS, find_conda_cuda, find_python_name, matches, to_specifier
from builder.resolve.requested import FAMILY, to_release
from builder.resolve.tokens import list_tokens, parse_cuda, serves_cuda
from builder.resolve.torch import find_release

# Packages of conda-forge that it installs only where there is a driver of NVIDIA (`__cuda`).
NEED_DRIVER = ("tensorflow-gpu", "py-xgboost-gpu")
CPU_BUILD = re.compile(r"(?:cpu|mkl|eigen)_")  # the start of a build string


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
    if site.vendor in ("amd", "intel", "cpu"):
        yield from _check_other_cuda_builds(target)
    elif site.vendor == "nvidia":
        yield from _check_torch_builds(target)
        yield from _check_cpu_builds(target)


def check_conda_cuda_version(target: Target) -> Iterator[Finding]:
    """Report that torch is built for another CUDA than the recipe names."""
    torch, found = target.environment.torch, find_conda_cuda(target.recipe)
    if found is None or torch is None or not torch.token.startswith("cu") or torch.token == found[1]:
        return
    spec, token = found
    if spec.build:  # reported with the build strings
        return
    at = Location(file=target.recipe.file, line=spec.line)
    message = (
        f"'{spec.text}' asks for CUDA {parse_cuda(token)}, torch {torch.local} is built for {parse_cuda(torch.token)}"
    )
    fix = f"no action needed where that is as good: torch {torch.version} has no build for CUDA {parse_cuda(token)}"
    if not serves_cuda(parse_cuda(token), site=target.site):
        fix = f"no action needed: the driver of '{target.site.name}' does not serve CUDA {parse_cuda(token)}"
    yield Finding(code="torch-index", message=message, at=at, fix=fix, level="warning")


def _is_marked(marker: VendorMarker, spec: CondaSpec) -> bool:
    if marker.kind != "conda" or not any(matches(spec.name, form) for form in marker.pattern.split()):
        return False
    return not marker.build or matches(spec.build, marker.build)


def _check_other_cuda_builds(target: Target) -> Iterator[Finding]:
    """Report any other CUDA build, which would be installed unchanged."""
    if target.environment.place != "conda":
        return
    reported = {found.at for found in check_conda_default(target) if found.level == "error"}  # any build is refused
    for spec in target.recipe.conda:
        if Location(file=target.recipe.file, line=spec.line) in reported:
            continue
        known = () if target.site.vendor == "cpu" else load_package_table().conda_nvidia.split()
        needs_driver = spec.name in NEED_DRIVER and spec.name not in known
        if not ("cuda" in spec.build or needs_driver) or any(
            _is_marked(row, spec) for row in load_package_table().markers
        ):
            continue
        if spec.text in target.environment.conda:
            at = Location(file=target.recipe.file, line=spec.line)
            message = f"'{spec.text}' is a CUDA build, '{target.site.name}' has {name_devices(target.site.vendor)}"
            fix = f"write {spec.name.removesuffix('-gpu')}" if needs_driver else "remove the build string"
            yield Finding(code="conda-build", message=message, at=at, fix=fix)


def _check_cpu_builds(target: Target) -> Iterator[Finding]:
    """Report a build string that chooses a build for CPUs of a package that conda-forge builds for NVIDIA GPUs, too."""
    known = load_package_table().conda_nvidia_or_cpu.split()
    for spec in target.recipe.conda if "cpu" not in target.recipe.container.gpu else ():
        if spec.name in known and CPU_BUILD.match(spec.build) and spec.text in target.environment.conda:
            at = Location(file=target.recipe.file, line=spec.line)
            message = f"'{spec.text}' is a build for CPUs: on '{target.site.name}' it would run without the GPU"
            fix = f"remove the build string, or if you want that, {suggest_cpu(target)}"
            yield Finding(code="conda-build", message=message, at=at, fix=fix)


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
        if serves_cuda(f"{major[1]}.0", site=target.site, sure=False):
            yield report_dispute(f"'{spec.text}' is CUDA {major[1]}", site=target.site, at=at)
            continue
        message = f"'{spec.text}' is CUDA {major[1]}, the driver of '{target.site.name}' is {gpu.driver or 'not known'}"
        fix = f"write {spec.name}={gpu.cuda_native}" if gpu.cuda_native else "write an older one"
        yield Finding(code="package-cuda", message=message, at=at, fix=f"{fix}, or remove it")


def check_conda_default(target: Target) -> Iterator[Finding]:
    """Report packages that conda-forge does not build for AMD and Intel GPUs: a CPU build would be installed."""
    site, recipe = target.site, target.recipe
    if site.vendor == "cpu":
        yield from _check_gpu_only(target)
    if site.vendor not in ("amd", "intel"):
        return
    table = load_package_table()
    for spec in recipe.conda:
        if target.environment.torch is not None and str(canonicalize_name(spec.name)) in table.conda_torch.split():
            continue  # reported with torch
        usual = spec.name in table.conda_usual_on_cpu.split()
        cpu = usual or spec.name in table.conda_nvidia_or_cpu.split()
        gpu_only = not cpu and spec.name in table.conda_nvidia.split()
        if not (cpu or gpu_only) or spec.text not in target.environment.conda:
            continue
        if cpu and ("cpu" in recipe.container.gpu or (spec.name == "jaxlib" and _has_package(target, "jax"))):
            continue
        at = Location(file=recipe.file, line=spec.line)
        ends = "would run without the GPU" if cpu else "would not work"
        built = "NVIDIA GPUs and for CPUs" if cpu else "NVIDIA GPUs"
        message = f"'{spec.text}' from conda is built for {built}: on '{site.name}' it {ends}"
        fix = suggest_counterpart(spec.name.removesuffix("-gpu"), site=site, environment=target.environment)
        if spec.name == "triton":
            wanted = to_specifier(spec.version) or ""
            fix = suggest_triton(wanted, site=site, python=target.environment.python) or fix
            fix = fix.replace("write ", "below '- pip:' write ", 1)
        fix += ", for the lines below '- pip:'" if fix.startswith("for ") else ""
        fix += f", or if you want that, {suggest_cpu(target)}" if cpu else ""
        fix = f"if you want that, {suggest_cpu(target)}" if usual else fix
        level: Level = "warning" if usual else "error"
        yield Finding(code="conda-default", message=message, at=at, fix=fix, level=level)


def _check_gpu_only(target: Target) -> Iterator[Finding]:
    """Report packages that conda-forge builds for NVIDIA GPUs only, on a site without GPUs."""
    torch = target.environment.torch
    known = {*load_package_table().conda_nvidia.split()} - {*NEED_DRIVER}  # those are errors already
    known -= {*load_package_table().conda_torch.split()} if torch is not None else {*()}
    for spec in target.recipe.conda:
        if spec.name in known and "cuda" not in spec.build and spec.text in target.environment.conda:
            message = f"'{spec.text}' from conda is built for NVIDIA GPUs, '{target.site.name}' has CPUs only"
            at = Location(file=target.recipe.file, line=spec.line)
            fix = suggest_counterpart(spec.name, site=target.site)
            yield Finding(code="conda-default", message=message, at=at, fix=fix, level="warning")


def check_conda_torch_users(target: Target) -> Iterator[Finding]:
    """Report packages of conda that are linked to conda's PyTorch, next to the torch of the site."""
    torch = target.environment.torch
    for spec in target.recipe.conda if torch is not None else ():
        name = str(canonicalize_name(spec.name))
        if name not in load_package_table().conda_torch.split() or spec.text not in target.environment.conda:
            continue
        message = f"'{spec.text}' from conda is linked to conda's PyTorch: next to the torch of '{target.site.name}' "
        message += "it would not load"
        other = name.replace("pytorch-", "torch-") if name.startswith("pytorch-") else name
        fix = f"write {other}{to_specifier(spec.version) or ''} below '- pip:', or remove it"
        at = Location(file=target.recipe.file, line=spec.line)
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


def check_default_channel(target: Target) -> Iterator[Finding]:
    """Report a package that names the channel `defaults` itself; that of the whole file is reported elsewhere."""
    for spec in target.recipe.conda:
        if spec.channel in ("defaults", "main", "pkgs/main") and spec.text in target.environment.conda:
            message = f"'{spec.text}' is of the channel '{spec.channel}', whose licence many institutes must buy"
            at = Location(file=target.recipe.file, line=spec.line)
            fix = f"write {spec.text.rpartition('::')[2]}, which conda-forge has"
            yield Finding(code="channel-defaults", message=message, at=at, fix=fix, level="warning")


def check_channel(target: Target) -> Iterator[Finding]:
    """Report packages of Bioconductor where no channel of the recipe has them; a channel of one's own may."""
    recipe = target.recipe
    channels = {*target.environment.channels}
    if any("bioconda" in name for name in channels):
        return
    level: Level = "warning" if channels - {"conda-forge", "nodefaults", "defaults", "nvidia"} else "error"
    for spec in recipe.conda:
        if not spec.name.startswith("bioconductor-") or spec.channel or spec.url:
            continue
        if spec.text not in target.environment.conda:
            continue
        message = f"'{spec.text}' is a package of the channel bioconda, and the channels are "
        message += ", ".join(name for name in target.environment.channels if name != "nodefaults")
        at = Location(file=recipe.file, line=spec.line)
        fix = "add bioconda to channels, after conda-forge"
        yield Finding(code="channel-missing", message=message, at=at, fix=fix, level=level)


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
    return not any(both.contains(Version(version), prereleases=True) for version in tried if to_release(version))
