"""Checks of names: conda's name for torch, typing errors, and distribution packages in the wrong list.

Nothing is looked up online: names are compared with those of our own tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from packaging.utils import canonicalize_name

from builder.model.finding import Finding, Location, make_edit
from builder.model.target import Target
from builder.parse.gpu_tables import package_table
from builder.resolve.checks.packages import locate
from builder.resolve.conda_names import find_python_name, load_name_table, matches
from builder.resolve.requested import FAMILY

MIN_LENGTH = 5  # shorter names are similar to too many others
# Names of Debian and Ubuntu packages that no Python or conda package has.
_SYSTEM = re.compile(
    r"lib[a-z0-9.+-]+-dev|python3-[a-z0-9-]+|build-essential|lib(?:gl1|gl1-mesa-glx|glib2\.0-0|sm6|xext6|xrender1|x11-6"
    r"|egl1|gomp1|sndfile1|opengl0|glu1-mesa|xi6|xrandr2|xcb1|tiff5|jpeg62-turbo|stdc\+\+6)"
)
# Packages that exist for one system only (conda-forge and the defaults channel).
WINDOWS = ("vs2015_runtime", "vc", "vc14_runtime", "ucrt", "pywin32", "pywinpty", "wincertstore", "win_inet_pton",
           "pyreadline3", "menuinst", "m2w64-*", "msys2-*", "vs2017_*", "vs2019_*", "vs2022_*")  # fmt: skip
MACOS = ("appnope", "python.app", "pyobjc-*", "libcxx", "libcxxabi", "clang_osx-*", "ld64", "cctools_osx-*")


def check_conda_torch(target: Target) -> Iterator[Finding]:
    """Report torch as a conda dependency: conda-forge calls it pytorch."""
    for spec in target.recipe.conda:
        if spec.name == "torch":
            at = Location(file=target.recipe.file, line=spec.line)
            # an item after pip's list may have been meant for it
            behind = 0 < target.recipe.lines.get("dependencies.pip", 0) < (spec.line or 0)
            other = "indent it below '- pip:' if pip is to install it, or write pytorch"
            message = f"'{spec.text}' is read as 'pytorch{spec.version}': conda has no package of the name 'torch'"
            yield Finding(
                code="conda-torch",
                message=message,
                at=at,
                fix=other if behind else "write pytorch there",
                level="note",
                edit=None if behind else make_edit(at, "torch", "pytorch"),
            )


def check_import_name(target: Target) -> Iterator[Finding]:
    """Report a requirement that uses the import name or conda's name, which the index does not have.

    A private index may have it.
    """
    recipe, table = target.recipe, load_name_table()
    options = recipe.pip_options
    own = bool(options.index_url or options.extra_index_urls or options.find_links or options.no_index)
    for line in recipe.pip:
        meant = table.not_on_index.get(line.name) or table.other_on_index.get(line.name)
        if meant is None or line.url:
            continue
        at, written = locate(recipe, line), re.match(r"[\w.-]*", line.text)
        missing = line.name in table.not_on_index and not own
        message = f"'{line.text}' is not the name on the package index: the package is '{meant}'"
        yield Finding(
            code="name-import",
            message=message,
            at=at,
            fix=f"write {meant}",
            level="error" if missing else "warning",
            # a package that an index has under the name may be the one that is meant
            edit=make_edit(at, written[0] if written else line.name, meant) if missing else None,
        )


def check_near_miss(target: Target) -> Iterator[Finding]:
    """Report an unknown name that differs from a well-known one by a single slip."""
    recipe = target.recipe
    asked = [(spec.name, Location(file=recipe.file, line=spec.line)) for spec in recipe.conda if not spec.url]
    asked += [(line.name, locate(recipe, line)) for line in recipe.pip if line.name and not line.url]
    for name, at in asked:
        near = "" if _is_known(name) else _find_meant(str(canonicalize_name(name)))
        if near:
            message = f"'{name}' is not a known package, and one letter away from '{near}'"
            yield Finding(
                code="name-near", message=message, at=at, fix=f"write {near} if you mean that", level="warning"
            )


def check_system_name(target: Target) -> Iterator[Finding]:
    """Report a distribution package among those of conda or pip."""
    recipe = target.recipe
    system = {other for other in load_name_table().other.values() if other}
    asked = [(spec.name, Location(file=recipe.file, line=spec.line)) for spec in recipe.conda]
    asked += [(line.name, locate(recipe, line)) for line in recipe.pip if line.name]
    for name, at in asked:
        if _is_known(name) or not (name in system or _SYSTEM.fullmatch(name)):
            continue
        message = f"'{name}' is the name of a distribution package, not of one of conda or pip"
        fix = f"move it to container.system: [{name}]"
        if target.backend in ("cotainr", "tykky"):
            fix = f"remove it, or use its conda package: {target.backend} installs no distribution packages"
        yield Finding(code="name-system", message=message, at=at, fix=fix, level="warning")


def check_other_system(target: Target) -> Iterator[Finding]:
    """Report an export from Windows or macOS: it names packages and builds that Linux does not have."""
    for system, patterns in (("Windows", WINDOWS), ("macOS", MACOS)):
        found = [spec for spec in target.recipe.conda if any(matches(spec.name, form) for form in patterns)]
        found = [spec for spec in found if spec.text in target.environment.conda]
        if found:
            at = Location(file=target.recipe.file, line=found[0].line)
            named = ", ".join(spec.name for spec in found[:4])
            message = f"this is the export of an environment of {system}: Linux has no {named}"
            fix = "write it there with `conda env export --from-history > environment.yml`, which names no builds"
            yield Finding(code="export-system", message=message, at=at, fix=fix)


@cache
def _collect_known() -> frozenset[str]:
    table = load_name_table()
    names = {*table.same, *table.renamed, *table.renamed.values(), *table.other, *table.torch_choosers, *FAMILY}
    names |= {*table.not_on_index, *table.other_on_index, *table.bring_torch}
    names |= {row.name for row in package_table().packages}
    return frozenset(str(canonicalize_name(name)) for name in names)


def _is_known(name: str) -> bool:
    return canonicalize_name(name) in _collect_known() or find_python_name(name) is not None


def _find_meant(name: str) -> str:
    """Find the known name that is one slip away, "" if there is none."""
    if len(name) < MIN_LENGTH:
        return ""
    return next(
        (other for other in sorted(_collect_known()) if len(other) >= MIN_LENGTH and _is_one_slip(name, other)), ""
    )


def _is_one_slip(one: str, other: str) -> bool:
    """Whether two letters are swapped, one is replaced, or an inner one is missing or added."""
    start = next((index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), -1)
    if start < 1:
        return False  # equal, longer at the end only (jinja and jinja2), or a different first letter
    if len(one) == len(other):
        swapped = one[start : start + 2] == other[start : start + 2][::-1] and one[start + 2 :] == other[start + 2 :]
        letters = one[start].isalpha() and other[start].isalpha()
        return swapped or (letters and one[start + 1 :] == other[start + 1 :])
    return one[start + 1 :] == other[start:] or one[start:] == other[start + 1 :]
