"""Checks of what packages need: torch at build time, a C library, a maintainer, a module name of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from builder.model.finding import Finding, Level, Location
from builder.model.recipe import PipRequirement
from builder.model.site import Site
from builder.model.target import Target
from builder.parse.gpu_tables import VendorPackage, load_image_table, load_package_table
from builder.resolve.checks.packages import locate, name_devices
from builder.resolve.checks.vendors import ONE_CALL, VENDOR_NAMES, suggest_without_build
from builder.resolve.conda_names import matches

NAMED_ROCM = re.compile(r"-rocm-?(\d)(?:-(\d+))?(?:-local)?$")  # the ROCm of the image: cupy-rocm-7-0, jax[rocm7-local]


def check_build_needs(target: Target) -> Iterator[Finding]:
    """Report packages that are compiled on installation and need an installed torch."""
    vendor = target.site.vendor
    for line, row in _find_installed(target):
        if not row.needs or line.url.endswith(".whl"):
            continue
        message = f"'{line.text}' is built from source and needs {row.needs}"
        fix = "install it after the others, in container.run: "
        fix += f"python3 -m pip install --no-build-isolation {line.name}{line.specifier}"
        level: Level = "warning"
        bare = row.compilers and _has_no_compiler(target)
        if target.backend in ONE_CALL:
            fix = suggest_without_build(row, site=target.site, backend=target.backend)
        elif line.name in target.environment.compiled and target.context.lock is None:
            fix = "no action needed if the base image has a compiler: it is installed last, against the others' torch"
            if target.environment.place == "base":
                fix += f"; if the base image brings its own {line.name}, remove the line"
            if bare:
                fix = "choose a base image with a compiler, if the project offers no wheel for this torch"
        if bare:
            message += f"; the base image '{target.base.reference}' has no compiler"
        if row.compilers and vendor not in row.compilers:
            where = "CPUs" if vendor == "cpu" else name_devices(vendor)
            message = f"'{line.text}' is built from source for GPUs, and has no build for {where}"
            sites = " or ".join(VENDOR_NAMES[name] for name in row.compilers)
            fix = f"remove it here, or choose a site with {sites} GPUs"
            level = "warning" if vendor == "cpu" else "error"
        yield Finding(code="build-needs", message=message, at=locate(target.recipe, line), fix=fix, level=level)


def _has_no_compiler(target: Target) -> bool:
    """Whether the base image is known to have no compiler, and the recipe adds none."""
    name = target.base.reference.removeprefix("docker://").removeprefix("docker.io/").removeprefix("library/")
    added = (*target.recipe.container.system, *target.environment.conda)
    if any(re.search(r"nvcc|hipcc|compiler|cuda-toolkit|rocm-dev", text) for text in added):
        return False
    return any(matches(name, form) for form in load_image_table().without_compiler.names)


def check_git(target: Target) -> Iterator[Finding]:
    """Report a requirement of a git repository where the base image is known to have no git."""
    added = {re.split(r"[ =<>!]", text)[0] for text in (*target.recipe.container.system, *target.environment.conda)}
    name = target.base.reference.removeprefix("docker://").removeprefix("docker.io/").removeprefix("library/")
    bare = any(matches(name, form) for form in load_image_table().without_compiler.names)
    line = next((line for line in target.recipe.pip if line.url.startswith("git+")), None)
    if line is None or not bare or "git" in added or target.backend in ONE_CALL:
        return
    message = f"'{line.text}' is cloned during the build; the base image '{target.base.reference}' has no git"
    fix = "write system: [git] below container:, or choose a base image with git"
    if target.recipe.kind != "conda":
        fix = "choose a base image with git, or name this file in an environment.yml with container.system: [git]"
    at = locate(target.recipe, line)
    yield Finding(code="build-needs", message=message, at=at, fix=fix, level="warning")


def check_index_login(target: Target) -> Iterator[Finding]:
    """Report code that can read the login of an index or a proxy during the build.

    layers/index_proxy.py hides the login of an index; every program of a build sees that of a proxy.
    """
    context, environment = target.context, target.environment
    installs = bool(environment.pip_lines or environment.torch_lines)
    apart = target.backend in ("apptainer", "layers")
    logins = context.logins if installs and not apart else ()
    parts = [
        f"the login of {what} in {' and '.join(repr(name) for name in names)}"
        for what, names in (("an index", logins), ("a proxy", context.proxies))
        if names
    ]
    seen = _find_login_reader(target, installs=installs) if parts else None
    if seen is None:
        return
    who, at, level = seen
    other = next((name for name in ("apptainer", "layers") if name in target.site.build.backends), "")
    fix = "use a token that can only read this index"
    if context.proxies:
        fix = f"use a proxy without a login{f', and {fix}' if logins else ''}"
    elif other:
        fix = f"build with --backend {other}, where no build can read it"
    yield Finding(code="index-login", message=f"{who} {' and '.join(parts)}", at=at, fix=fix, level=level)


def _find_login_reader(target: Target, *, installs: bool) -> tuple[str, Location, Level] | None:
    """Find the code that can read a login: the start of a sentence, its location and a level."""
    built, at = _find_built(target), Location(file=target.recipe.file)
    if target.backend in ONE_CALL:
        return f"every program that runs while {target.backend} installs can read", at, "warning"
    if built:
        return (
            f"'{built[0].text}' is built from source, and its build can read",
            locate(target.recipe, built[0]),
            "warning",
        )
    if target.context.proxies and target.recipe.container.run:
        return "the commands of container.run can read", at, "warning"
    if installs and target.lock is not None and any(file.kind != "wheel" for file in target.lock.pip):
        return "the lock contains source packages, and their builds can read", at, "warning"
    if installs and target.lock is None:
        return "the build of a package without a wheel could read", at, "note"
    if target.context.proxies and (target.recipe.container.system or target.environment.place == "conda"):
        return "programs that packages run while they are installed could read", at, "note"
    return None


def _find_built(target: Target) -> list[PipRequirement]:
    """Find the requirements that are known to be built from source, if no lock lists them."""
    if target.lock is not None:
        return []
    compiled = target.environment.compiled
    return [
        line
        for line in target.recipe.pip
        if line.name in compiled or line.editable or (line.url and not line.url.partition("#")[0].endswith(".whl"))
    ]


def check_package_glibc(target: Target) -> Iterator[Finding]:
    """Report a wheel that needs a newer C library than the base image has."""
    has = target.base.glibc
    for line, row in _find_installed(target):
        needed = row.glibc.get(target.site.vendor)
        if needed and has and Version(has) < Version(needed):
            message = (
                f"the wheels of '{line.text}' need glibc {needed}, the base image '{target.base.reference}' has {has}"
            )
            at = locate(target.recipe, line)
            yield Finding(code="glibc", message=message, at=at, fix="choose a newer base image")


def check_package_rocm(target: Target) -> Iterator[Finding]:
    """Report a package that needs another ROCm than the base image has, or the site's driver serves."""
    site, base = target.site, target.base
    for line in target.recipe.pip if site.vendor == "amd" else ():
        match = next(filter(None, map(NAMED_ROCM.search, (line.name, *(f"-{extra}" for extra in line.extras)))), None)
        wanted = ".".join(filter(None, match.groups())) if match and line.text in target.environment.pip_lines else ""
        if not wanted or _has_rocm(base.rocm, wanted=wanted, site=site):
            continue
        has = f"the base image '{base.reference}' has ROCm {base.rocm}" if base.rocm else f"'{site.name}' serves none"
        message = f"'{line.text}' needs ROCm {wanted}, {has}"
        image = next(
            (one for one in site.base_images if one.rocm and _has_rocm(one.rocm, wanted=wanted, site=site)), None
        )
        way = f"use the base image {image.reference}" if image else f"use a base image with ROCm {wanted}"
        if site.gpu is not None and not any(f"{one}.".startswith(f"{wanted}.") for one in site.gpu.rocm):
            way = f"remove it: '{site.name}' serves ROCm {', '.join(site.gpu.rocm)}"
        yield Finding(code="package-cuda", message=message, at=locate(target.recipe, line), fix=way)


def _has_rocm(brought: str | None, *, wanted: str, site: Site) -> bool:
    """Whether an image's ROCm is the wanted one (X or X.Y); of an unknown image what the driver serves decides."""
    served = (brought,) if brought else site.gpu.rocm if site.gpu else ()
    return not served or any(f"{one}.".startswith(f"{wanted}.") for one in served)


def check_retired(target: Target) -> Iterator[Finding]:
    """Report a package that its maintainers have abandoned."""
    for line, row in _find_installed(target):
        if row.retired:
            message = f"'{line.text}' was abandoned by its maintainers: {row.retired}"
            fix = f"remove it: {row.instead} replaces it"
            at = locate(target.recipe, line)
            yield Finding(code="package-retired", message=message, at=at, fix=fix, level="warning")


def check_one_module(target: Target) -> Iterator[Finding]:
    """Report packages that provide the same module: the last one installed overwrites the others."""
    installed = [re.split(r"[\[ =<>!~;@]", text)[0] for text in target.environment.pip_lines]
    for row in load_package_table().packages:
        found = sorted({name for name in installed if name in (row.name, *row.shares)}) if row.shares else []
        if len(found) > 1:
            message = f"{' and '.join(found)} install the same module: one overwrites the other in part"
            line = next((line for line in target.recipe.pip if line.name in found), None)
            at = locate(target.recipe, line) if line else None
            yield Finding(code="one-module", message=message, at=at, fix="keep one of them", level="warning")


def _find_installed(target: Target) -> Iterator[tuple[PipRequirement, VendorPackage]]:
    """Find the requirements that are installed unchanged, with their rows."""
    rows = {row.name: row for row in load_package_table().packages}
    for line in target.recipe.pip:
        if line.name in rows and line.text in target.environment.pip_lines:
            yield line, rows[line.name]
