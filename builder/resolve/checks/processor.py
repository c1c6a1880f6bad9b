"""Checks of packages against the processors of a site."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from builder.model.finding import Finding, Level
from builder.model.recipe import PipOptions
from builder.model.target import Target
from builder.parse.gpu_tables import load_package_table
from builder.resolve.checks.packages import locate
from builder.resolve.requested import to_release


def check_wheel_processor(target: Target) -> Iterator[Finding]:
    """Report a package without a wheel for aarch64 on the default index."""
    if target.site.node.arch != "aarch64":
        return
    rows = {row.name: row for row in load_package_table().packages if row.aarch64}
    for line in target.recipe.pip:
        row = rows.get(line.name)
        if row is None or line.url or line.text not in target.environment.pip_lines:
            continue
        release = row.aarch64
        exact = re.fullmatch(r"={2,3}([^*,=]+)", line.specifier)
        pinned = to_release(exact[1]) if exact else None
        if release != "none" and (pinned is None or pinned >= Version(release)):
            continue
        message = (
            f"'{line.text}' has no wheel for aarch64, the processors of '{target.site.name}', on the default index"
        )
        fix = "remove it, or give the address of a wheel for aarch64"
        fix = fix if release == "none" else f"use {line.name}>={release}"
        lost = row.no_sdist and pinned is not None and not has_own_files(target.recipe.pip_options)
        message += ", and no source file" if lost else ""
        level: Level = "error" if lost else "warning"
        yield Finding(code="default-wheel", message=message, at=locate(target.recipe, line), fix=fix, level=level)


def has_own_files(options: PipOptions) -> bool:
    """Whether an address of the recipe may have files that the default index does not."""
    return bool(options.index_url or options.extra_index_urls or options.find_links)
