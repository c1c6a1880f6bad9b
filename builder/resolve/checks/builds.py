"""Checks of what packages need: a torch to compile against, a C library, a maintainer, a module to themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from builder.model.finding import Finding
from builder.model.recipe import PipRequirement
from builder.model.stack.packages import VendorPackage, package_table
from builder.model.target import Target
from builder.resolve.checks.packages import place_of


def build_needs(target: Target) -> Iterator[Finding]:
    """Packages that are compiled when they are installed, against a torch that must be there already."""
    for line, row in _installed(target):
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
        yield Finding(code="build-needs", message=message, at=place_of(target.recipe, line), fix=fix, level="warning")


def package_glibc(target: Target) -> Iterator[Finding]:
    """A wheel that needs a newer C library than the base image has."""
    has = target.base.glibc
    for line, row in _installed(target):
        needed = row.glibc.get(target.site.vendor)
        if needed and has and Version(has) < Version(needed):
            message = (
                f"the wheels of '{line.text}' need glibc {needed}, the base image '{target.base.reference}' has {has}"
            )
            at = place_of(target.recipe, line)
            yield Finding(code="glibc", message=message, at=at, fix="choose a newer base image")


def retired(target: Target) -> Iterator[Finding]:
    """A package that its maintainers have given up."""
    for line, row in _installed(target):
        if row.retired:
            message = f"'{line.text}' is given up by its maintainers: {row.retired}"
            fix = f"leave it out: {row.instead} takes its place"
            at = place_of(target.recipe, line)
            yield Finding(code="package-retired", message=message, at=at, fix=fix, level="warning")


def one_module(target: Target) -> Iterator[Finding]:
    """Packages that bring one and the same module: the last one installed is what a program gets."""
    installed = [re.split(r"[\[ =<>!~;@]", text)[0] for text in target.environment.pip_lines]
    for row in package_table().packages:
        found = sorted({name for name in installed if name in (row.name, *row.shares)}) if row.shares else []
        if len(found) > 1:
            message = f"{' and '.join(found)} bring the same module: one takes the other's place in part"
            line = next((line for line in target.recipe.pip if line.name in found), None)
            at = place_of(target.recipe, line) if line else None
            yield Finding(code="one-module", message=message, at=at, fix="keep one of them", level="warning")


def _installed(target: Target) -> Iterator[tuple[PipRequirement, VendorPackage]]:
    """The requirements that are installed as they stand, with their rows."""
    rows = {row.name: row for row in package_table().packages}
    for line in target.recipe.pip:
        if line.name in rows and line.text in target.environment.pip_lines:
            yield line, rows[line.name]
