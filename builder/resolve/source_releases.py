"""Releases that the index has no wheel of: pip builds them from source."""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from builder.model.recipe import Recipe
from builder.parse.gpu_tables import load_package_table
from builder.resolve.conda_names import to_specifier


def find_first_wheel(name: str) -> str:
    """Find the first release of a package that has a wheel, of those that the table has."""
    return next(row.since for row in load_package_table().first_wheels if row.package == name)


def find_source_release(recipe: Recipe, name: str) -> str:
    """Find the first line of a recipe that leaves only releases of a package without a wheel; "" if there is none."""
    since = find_first_wheel(name)
    for line in recipe.pip:
        if line.name != name or line.url.partition("#")[0].endswith(".whl"):
            continue
        if line.url or name in recipe.pip_options.no_binary or not allows_since(line.specifier, since):
            return line.text
    for spec in recipe.conda:
        if spec.name == name and not allows_since(to_specifier(spec.version) or "", since):
            return spec.text
    return ""


def allows_since(specifier: str, since: str) -> bool:
    """Whether a specifier allows a release of at least `since`; a pin between two known releases counts, too."""
    try:
        asked = SpecifierSet(specifier)
    except InvalidSpecifier:
        return True
    first = Version(since)
    named = [Version(item.version.removesuffix(".*")) for item in asked if item.operator != "==="]
    tried = [first, Version(f"{first.major}.{first.minor}.99"), Version("999"), *(one for one in named if one >= first)]
    return any(asked.contains(one, prereleases=True) for one in tried)
