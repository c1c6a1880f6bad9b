"""Checks of packages whose file on the default index is for another vendor's GPUs, or for CPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from builder.model.finding import Finding, Level
from builder.model.recipe import PipRequirement
from builder.model.target import Target
from builder.parse.gpu_tables import VendorPackage, load_package_table
from builder.resolve.checks.packages import (
    find_other_vendor,
    find_own_replacement,
    has_extra,
    is_dropped,
    is_marked,
    locate,
    name_devices,
    suggest_cpu,
)
from builder.resolve.checks.vendors import VENDOR_NAMES, find_named_vendor, is_cuda_loader, suggest_counterpart
from builder.resolve.indexes import WheelPage, list_pages
from builder.resolve.requested import FAMILY, TRITON, to_release
from builder.resolve.tokens import find_vendor


def check_default_wheel(target: Target) -> Iterator[Finding]:
    """Report a package whose file on the default index is for another vendor or the CPU."""
    site, recipe = target.site, target.recipe
    pages = list_pages(recipe.pip_options)
    if site.vendor == "cpu":
        yield from _check_gpu_only(target, pages=pages)
        return
    names = {line.name for line in recipe.pip}
    for line in recipe.pip:
        row = _find_default_row(line, names=names)
        if row is None or not row.pypi or _is_judged_elsewhere(row, line, target=target):
            continue
        if _is_served(row, line, names=names, target=target):
            continue
        if row.name == line.name and any(page.vendor == site.vendor and page.has(line) for page in pages):
            continue
        wanted_cpu = "cpu" in recipe.container.gpu and "cpu" in row.pypi
        other = find_named_vendor(line)
        if other is not None and (other[0].devices or other[0].vendor != site.vendor):
            continue  # reported by its name
        if site.vendor in row.pypi or wanted_cpu or line.url:
            yield from _check_minimum(row, line, target=target)
            continue
        built = " and ".join(VENDOR_NAMES[vendor] for vendor in row.pypi)
        message = f"'{line.text}' " if row.name == line.name else f"'{line.text}' requires {row.name}, which "
        where = f" for {site.node.arch}" if row.cpu_only == site.node.arch else ""
        message += f"from the default index is built for {built}{where}: on '{site.name}' it would run without the GPU"
        fix = _fix_default_wheel(row, line, target=target)
        level: Level = "warning" if row.usual_on_cpu else "error"
        yield Finding(code="default-wheel", message=message, at=locate(recipe, line), fix=fix, level=level)


def _is_judged_elsewhere(row: VendorPackage, line: PipRequirement, *, target: Target) -> bool:
    """Whether another check judges the package, or something replaces it."""
    return bool(
        row.name in FAMILY
        or row.name in TRITON
        or find_own_replacement(line, target=target)
        or find_other_vendor(line, target=target)
        or (row.name == line.name and "cpu" in line.extras)  # jax[cpu] names it
        or (target.site.vendor == "nvidia" and row.name == line.name and is_cuda_loader(line))
    )


def _fix_default_wheel(row: VendorPackage, line: PipRequirement, *, target: Target) -> str:
    """The counterpart or the index for the site's vendor, or how to take the CPU's file on purpose."""
    fix = suggest_counterpart(row.name, site=target.site, backend=target.backend, environment=target.environment)
    if row.name != line.name:
        fix = fix.replace("remove it", f"remove {line.name}", 1)
    if row.usual_on_cpu and fix.startswith("remove it"):
        fix = f"if you want that, {suggest_cpu(target)}"
    if row.pypi == ("cpu",) and not fix.startswith("if you want that"):
        plain = f"write {row.name} without the extra, and " if row.cpu_only and line.extras else ""
        fix += f", or if you want that, {plain}{suggest_cpu(target)}"
    return fix


def _check_gpu_only(target: Target, *, pages: list[WheelPage]) -> Iterator[Finding]:
    """Report a package whose file on the default index is for NVIDIA GPUs only, on a site without GPUs."""
    rows = {row.name: row for row in load_package_table().packages if row.pypi == ("nvidia",)}
    for line in target.recipe.pip:
        own = bool(line.url) or "+" in line.specifier or any(page.vendor == "cpu" and page.has(line) for page in pages)
        known = line.name in rows and not rows[line.name].needs_gpu and line.name not in (*FAMILY, *TRITON)
        if own or not known or is_dropped(line, target=target):
            continue
        if find_other_vendor(line, target=target) is None:
            message = f"'{line.text}' from the default index is built for NVIDIA GPUs, "
            message += f"'{target.site.name}' has {name_devices('cpu')}"
            fix = suggest_counterpart(line.name, site=target.site, backend=target.backend)
            at = locate(target.recipe, line)
            yield Finding(code="default-wheel", message=message, at=at, fix=fix, level="warning")


def _find_default_row(line: PipRequirement, *, names: set[str]) -> VendorPackage | None:
    """Find the row of a package, else that of one that it requires and no line names."""
    rows = load_package_table().packages
    own = next((row for row in rows if row.name == line.name), None)
    return own or next((row for row in rows if line.name in row.users and row.name not in names), None)


def _is_served(row: VendorPackage, line: PipRequirement, *, names: set[str], target: Target) -> bool:
    """Whether the vendor's build is installed with it: by an extra, a plug-in, or in the base image."""
    if row.name in target.base.provides and target.environment.place == "base":
        return True
    if row.name == "jaxlib" and "jax" in names:
        return True
    if row.name == "jax" and any(
        one.name == "jaxlib" and find_vendor(one.specifier.partition("+")[2]) == target.site.vendor
        for one in target.recipe.pip
    ):
        return True  # the local version of older releases of jaxlib
    if find_vendor(line.specifier.partition("+")[2]) == target.site.vendor:
        return True  # no file on a default index has a local version
    if row.cpu_only == target.site.node.arch:
        return False  # the extra brings libraries that nothing in the wheel loads
    own = [marker for marker in load_package_table().markers if marker.vendor == target.site.vendor and marker.extra]
    extras = any(is_marked(marker, line) and has_extra(marker, line) for marker in own)
    plugin = any(name.startswith((f"{row.name}-cuda", f"{row.name}-rocm")) for name in names)
    return extras or (row.name == "jax" and plugin) or row.plugins.get(target.site.vendor) in names


def _check_minimum(row: VendorPackage, line: PipRequirement, *, target: Target) -> Iterator[Finding]:
    least = row.minimum.get(target.site.vendor)
    exact = re.fullmatch(r"={2,3}([^*,=]+)", line.specifier)
    pinned = to_release(exact[1]) if exact else None
    if least and pinned and pinned < Version(least):
        message = f"'{line.text}' has no build for {name_devices(target.site.vendor)}: the first one known is {least}"
        yield Finding(
            code="default-wheel", message=message, at=locate(target.recipe, line), fix=f"use {row.name}>={least}"
        )
