"""Checks of what packages need: a torch to compile against, a C library, a maintainer, a module to themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from builder.model.finding import Finding, Level, Location
from builder.model.recipe import PipRequirement
from builder.model.target import Target
from builder.parse.gpu_tables import VendorPackage, package_table
from builder.resolve.checks.packages import locate


def check_build_needs(target: Target) -> Iterator[Finding]:
    """Packages that are compiled when they are installed, against a torch that must be there already."""
    for line, row in _find_installed(target):
        if not row.needs or line.url.endswith(".whl"):
            continue
        message = f"'{line.text}' is built from source and needs {row.needs}"
        fix = "install it after the others, in container.run: "
        fix += f"python3 -m pip install --no-build-isolation {line.name}{line.specifier}"
        if target.backend in ("cotainr", "tykky"):
            fix = (
                f"{target.backend} installs in one call of pip: name a ready wheel by its address, or use another site"
            )
        elif line.name in target.environment.compiled and target.context.lock is None:
            fix = "nothing, where the base image has the compiler: it comes after the others, against its torch"
        yield Finding(code="build-needs", message=message, at=locate(target.recipe, line), fix=fix, level="warning")


def check_index_login(target: Target) -> Iterator[Finding]:
    """Code that runs beside the login of an index or a proxy, where the backend cannot keep it apart.

    layers/index_proxy.py keeps that of an index apart; that of a proxy is seen by all that runs in a build.
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
    fix = "use a token that can do nothing but read this index"
    if context.proxies:
        fix = f"use a proxy without a login{f', and {fix}' if logins else ''}"
    elif other:
        fix = f"build with --backend {other}, where no build sees it"
    yield Finding(code="index-login", message=f"{who} {' and '.join(parts)}", at=at, fix=fix, level=level)


def _find_login_reader(target: Target, *, installs: bool) -> tuple[str, Location, Level] | None:
    """What runs in the build, as the beginning of a sentence, where it comes from, and how sure it is."""
    built, at = _find_built(target), Location(file=target.recipe.file)
    if target.backend in ("cotainr", "tykky"):
        return f"all that runs while {target.backend} installs sees", at, "warning"
    if built:
        return (
            f"'{built[0].text}' is built from source, and its build sees",
            locate(target.recipe, built[0]),
            "warning",
        )
    if target.context.proxies and target.recipe.container.run:
        return "the commands of container.run see", at, "warning"
    if installs and target.lock is not None and any(file.kind != "wheel" for file in target.lock.pip):
        return "what the lock has as sources is built, and its build sees", at, "warning"
    if installs and target.lock is None:
        return "the build of a package that has no wheel would see", at, "note"
    if target.context.proxies and (target.recipe.container.system or target.environment.place == "conda"):
        return "what packages run while they are installed would see", at, "note"
    return None


def _find_built(target: Target) -> list[PipRequirement]:
    """The requirements that are known to be built, where no lock says it."""
    if target.lock is not None:
        return []
    compiled = target.environment.compiled
    return [
        line
        for line in target.recipe.pip
        if line.name in compiled or line.editable or (line.url and not line.url.partition("#")[0].endswith(".whl"))
    ]


def check_package_glibc(target: Target) -> Iterator[Finding]:
    """A wheel that needs a newer C library than the base image has."""
    has = target.base.glibc
    for line, row in _find_installed(target):
        needed = row.glibc.get(target.site.vendor)
        if needed and has and Version(has) < Version(needed):
            message = (
                f"the wheels of '{line.text}' need glibc {needed}, the base image '{target.base.reference}' has {has}"
            )
            at = locate(target.recipe, line)
            yield Finding(code="glibc", message=message, at=at, fix="choose a newer base image")


def check_retired(target: Target) -> Iterator[Finding]:
    """A package that its maintainers have given up."""
    for line, row in _find_installed(target):
        if row.retired:
            message = f"'{line.text}' is given up by its maintainers: {row.retired}"
            fix = f"leave it out: {row.instead} takes its place"
            at = locate(target.recipe, line)
            yield Finding(code="package-retired", message=message, at=at, fix=fix, level="warning")


def check_one_module(target: Target) -> Iterator[Finding]:
    """Packages that bring one and the same module: the last one installed is what a program gets."""
    installed = [re.split(r"[\[ =<>!~;@]", text)[0] for text in target.environment.pip_lines]
    for row in package_table().packages:
        found = sorted({name for name in installed if name in (row.name, *row.shares)}) if row.shares else []
        if len(found) > 1:
            message = f"{' and '.join(found)} bring the same module: one takes the other's place in part"
            line = next((line for line in target.recipe.pip if line.name in found), None)
            at = locate(target.recipe, line) if line else None
            yield Finding(code="one-module", message=message, at=at, fix="keep one of them", level="warning")


def _find_installed(target: Target) -> Iterator[tuple[PipRequirement, VendorPackage]]:
    """The requirements that are installed as they stand, with their rows."""
    rows = {row.name: row for row in package_table().packages}
    for line in target.recipe.pip:
        if line.name in rows and line.text in target.environment.pip_lines:
            yield line, rows[line.name]
