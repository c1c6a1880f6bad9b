"""Checks of names: conda's name for torch, typing errors, and distribution packages in the wrong list.

Nothing is looked up online: names are compared with those of our own tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from packaging.utils import canonicalize_name

from builder.model.finding import Finding, Level, Location, make_edit
from builder.model.recipe import Recipe
from builder.model.target import Target
from builder.parse.gpu_tables import load_package_table
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
MACOS = ("appnope", "python.app", "pyobjc-*")
# conda-forge has these for Linux, too, where few ask for them: they count where something else says macOS.
USUAL_ON_MACOS = ("libcxx", "libcxxabi", "clang_osx-*", "ld64", "cctools_osx-*")


@dataclass(frozen=True, kw_only=True)
class OtherSystem:
    """How the export of another system looks: names, prefixes, and the subdirs of channels."""

    name: str
    packages: tuple[str, ...]
    also: tuple[str, ...] = ()
    prefix: str
    subdir: str

    def matches_prefix(self, prefix: str) -> bool:
        """Whether an environment with this prefix is of that system."""
        return re.match(self.prefix, prefix) is not None

    def matches_channel(self, channel: str) -> bool:
        """Whether a channel is named with a subdir of that system."""
        return re.search(rf"/{self.subdir}/?$", channel) is not None


OTHERS = (
    OtherSystem(name="Windows", packages=WINDOWS, prefix=r"[A-Za-z]:[\\/]", subdir=r"win-(?:32|64|arm64)"),
    OtherSystem(
        name="macOS", packages=MACOS, also=USUAL_ON_MACOS, prefix=r"/(?:Users|opt/homebrew|private/var)/",
        subdir=r"osx-(?:64|arm64)",
    ),
)  # fmt: skip
EXPORT = "write it there with `conda env export --from-history > environment.yml`, which names no builds"


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


def check_conda_import(target: Target) -> Iterator[Finding]:
    """Report a conda dependency by the name that Python imports."""
    recipe, table = target.recipe, load_name_table()
    for spec in recipe.conda:
        meant = table.import_names.get(spec.name)
        if meant is None or spec.url:
            continue
        at = Location(file=recipe.file, line=spec.line)
        message = f"'{spec.text}' is the name of a module: conda's package is '{meant}'"
        yield Finding(code="name-import", message=message, at=at, fix=f"write {meant}", level="warning")


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
    recipe = target.recipe
    for system in OTHERS:
        finding = _named(target, system) or _subdir(recipe, system) or _prefix(recipe, system)
        if finding is not None:
            yield finding


def _named(target: Target, system: OtherSystem) -> Finding | None:
    """A package that only the other system has."""
    recipe = target.recipe
    listed = set(target.environment.conda)
    installed = [spec for spec in recipe.conda if spec.text in listed]
    found = [spec for spec in installed if any(matches(spec.name, form) for form in system.packages)]
    why = ": Linux has no"
    if not found and system.matches_prefix(recipe.prefix):
        why = ", by its prefix and"
        found = [spec for spec in installed if any(matches(spec.name, form) for form in system.also)]
    if not found:
        return None
    named = ", ".join(spec.name for spec in found[:4])
    message = f"this is the export of an environment of {system.name}{why} {named}"
    at = Location(file=recipe.file, line=found[0].line)
    return Finding(code="export-system", message=message, at=at, fix=EXPORT)


def _subdir(recipe: Recipe, system: OtherSystem) -> Finding | None:
    """A channel that is named with the packages of the other system only."""
    named = [(spec.text, spec.line) for spec in recipe.conda if system.matches_channel(spec.channel)]
    named += [(name, recipe.lines.get("channels")) for name in recipe.channels if system.matches_channel(name)]
    if not named:
        return None
    text, line = named[0]
    message = f"'{text}' names packages for {system.name}, and the image is Linux"
    fix = f"leave the part after the channel's name out, or {EXPORT}"
    return Finding(code="export-system", message=message, at=Location(file=recipe.file, line=line), fix=fix)


def _prefix(recipe: Recipe, system: OtherSystem) -> Finding | None:
    """An environment of the other system with its builds; a warning where only versions are pinned.

    An export of the requests alone has a prefix, too.
    """
    if not system.matches_prefix(recipe.prefix) or not recipe.conda:
        return None
    built = next((spec for spec in recipe.conda if spec.build not in ("", "*")), None)
    if built is None and not all(spec.version for spec in recipe.conda):
        return None
    line = built.line if built else recipe.lines.get("prefix")
    why = f"the build '{built.text}' may not exist for Linux" if built else "Linux may lack some of its packages"
    message = f"this is the export of an environment of {system.name}, by its prefix: {why}"
    level: Level = "error" if built else "warning"
    at = Location(file=recipe.file, line=line)
    return Finding(code="export-system", message=message, at=at, fix=EXPORT, level=level)


@cache
def _collect_known() -> frozenset[str]:
    table = load_name_table()
    names = {*table.same.split(), *table.renamed, *table.renamed.values(), *table.other, *table.torch_choosers, *FAMILY}
    names |= {*table.not_on_index, *table.other_on_index, *table.bring_torch}
    names |= {row.name for row in load_package_table().packages}
    return frozenset(str(canonicalize_name(name)) for name in names)


def _is_known(name: str) -> bool:
    return canonicalize_name(name) in _collect_known() or find_python_name(name) is not None


@cache
def _group_known() -> dict[tuple[str, int], list[str]]:
    """Group the known names by their first letter and length: a slip changes the length by one at most."""
    groups: dict[tuple[str, int], list[str]] = {}
    for name in _collect_known():
        if len(name) >= MIN_LENGTH:
            groups.setdefault((name[0], len(name)), []).append(name)
    return groups


@cache
def _find_meant(name: str) -> str:
    """Find the known name that is one slip away, "" if there is none."""
    if len(name) < MIN_LENGTH:
        return ""
    groups, size = _group_known(), len(name)
    near = [other for step in (-1, 0, 1) for other in groups.get((name[0], size + step), ())]
    return min((other for other in near if _is_one_slip(name, other)), default="")


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
