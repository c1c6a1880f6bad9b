"""Checks of names: conda's name for torch, typing errors, and distribution packages in the wrong list.

Nothing is looked up online: names are compared with those of our own tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from packaging.utils import canonicalize_name

from builder.model.finding import Edit, Finding, Level, Location, make_edit
from builder.model.recipe import Recipe
from builder.model.target import Target
from builder.parse.gpu_tables import load_package_table
from builder.resolve.checks.packages import locate
from builder.resolve.conda_names import find_python_name, is_unsure_name, load_name_table, matches
from builder.resolve.indexes import list_pages
from builder.resolve.requested import FAMILY

PYTHON = "python"  # in no table of packages
MIN_LENGTH = 5  # shorter names are similar to too many others
# Names of Debian and Ubuntu packages that no Python or conda package has.
_SYSTEM = re.compile(
    r"lib[a-z0-9.+-]+-dev|python3-[a-z0-9-]+|build-essential|lib(?:gl1|gl1-mesa-glx|glib2\.0-0|sm6|xext6|xrender1|x11-6"
    r"|egl1|gomp1|sndfile1|opengl0|glu1-mesa|xi6|xrandr2|xcb1|tiff5|jpeg62-turbo|stdc\+\+6)"
)
# Packages that exist for one system only (conda-forge and the defaults channel).
WINDOWS = ("vs2015_runtime", "vc", "vc14_runtime", "ucrt", "pywin32", "pywinpty", "wincertstore", "win_inet_pton",
           "pyreadline3", "menuinst", "m2w64-*", "msys2-*", "vs2017_*", "vs2019_*", "vs2022_*")  # fmt: skip
# Of those, what the index has for Windows alone; the others have a wheel that any system takes.
WINDOWS_ON_INDEX = ("pywin32", "pywinpty")
MACOS_ON_INDEX = ("pyobjc", "pyobjc-*")
# The hash in builds of the defaults channel whose recipe depends on the subdir alone.
WINDOWS_BUILDS, MACOS_BUILDS = ("haa95532",), ("hecd8cb5", "hca03da5")
MACOS = ("appnope", "python.app", "pyobjc-*")
# conda-forge has these for Linux, too, where few ask for them: they count where something else says macOS.
USUAL_ON_MACOS = ("libcxx", "libcxxabi", "clang_osx-*", "ld64", "cctools_osx-*")


@dataclass(frozen=True, kw_only=True)
class OtherSystem:
    """How the export of another system looks: names, builds, prefixes, channels; `marker` is its sys.platform."""

    name: str
    marker: str
    packages: tuple[str, ...]
    also: tuple[str, ...] = ()
    on_index: tuple[str, ...]
    builds: tuple[str, ...]
    prefix: str
    subdir: str

    def matches_prefix(self, prefix: str) -> bool:
        """Whether an environment with this prefix is of that system."""
        return re.match(self.prefix, prefix) is not None

    def matches_channel(self, channel: str) -> bool:
        """Whether a channel is named with a subdir of that system."""
        return re.search(rf"/{self.subdir}/?$", channel) is not None


OTHERS = (
    OtherSystem(
        name="Windows", marker="win32", packages=WINDOWS, on_index=WINDOWS_ON_INDEX, builds=WINDOWS_BUILDS,
        prefix=r"[A-Za-z]:[\\/]", subdir=r"win-(?:32|64|arm64)",
    ),
    OtherSystem(
        name="macOS", marker="darwin", packages=MACOS, also=USUAL_ON_MACOS, on_index=MACOS_ON_INDEX,
        builds=MACOS_BUILDS, prefix=r"/(?:Users|opt/homebrew|private/var)/", subdir=r"osx-(?:64|arm64)",
    ),
)  # fmt: skip
# Names that lists of installed packages hold and that no index has -> what to do.
NO_PACKAGES = {
    "pkg-resources": "remove it: `pip freeze` on Debian and Ubuntu lists it, and setuptools has the module",
    "cudatoolkit": "remove it: wheels for NVIDIA GPUs bring the libraries of CUDA that they need",
    "pyg-lib": "name its page, as in --find-links https://data.pyg.org/whl/torch-2.8.0+cpu.html (CUDA and CPU "
    "only), or remove it",
    "detectron2": "give its repository: detectron2 @ git+https://github.com/facebookresearch/detectron2.git",
}
# Names of the index that another project has than the one that recipes mean.
OTHER_PROJECTS = {
    "apex": "give NVIDIA's repository, apex @ git+https://github.com/NVIDIA/apex.git, or remove the line where the "
    "base image brings it",
}
# What conda's Python requires on Linux alone, and what on every system, where only an export names it. As known, not
# looked up in a channel's index.
LINUX = re.compile(r"_?libgcc(?:_mutex|-ng)?|libstdcxx(?:-ng)?|libgomp|_openmp_mutex|ld_impl_linux-.*|libuuid|libnsl")
OF_EXPORTS = ("bzip2", "ca-certificates", "libffi", "openssl", "sqlite", "tk", "xz", "zlib")
EXPORT = (
    "remove the builds (NAME=VERSION is enough) and the packages that Linux does not have, "
    "or write it there with `conda env export --from-history > environment.yml`, which names no builds"
)


def check_conda_torch(target: Target) -> Iterator[Finding]:
    """Report torch as a conda dependency: conda-forge calls it pytorch."""
    there = next((spec for spec in target.recipe.conda if spec.name == "pytorch"), None)
    for spec in target.recipe.conda:
        if spec.name == "torch":
            at = Location(file=target.recipe.file, line=spec.line)
            # an item after pip's list may have been meant for it
            behind = 0 < target.recipe.lines.get("dependencies.pip", 0) < (spec.line or 0)
            other = "indent it below '- pip:' if pip is to install it, or write pytorch"
            fix = other if behind else "write pytorch there"
            edit = None if behind else make_edit(at, "torch", "pytorch")
            if there is not None and not behind:  # conda takes one line of a package
                same = spec.version in ("", there.version)
                fix = f"remove it: '{there.text}' is there" if same else f"keep one of it and '{there.text}'"
                edit = Edit(file=at.file, line=at.line, old=spec.text) if same else None
            message = f"'{spec.text}' is read as 'pytorch{spec.version}': conda has no package of the name 'torch'"
            yield Finding(code="conda-torch", message=message, at=at, fix=fix, level="note", edit=edit)


def check_import_name(target: Target) -> Iterator[Finding]:
    """Report a requirement that uses the import name or conda's name, which the index does not have.

    A private index may have it.
    """
    recipe, table = target.recipe, load_name_table()
    options = recipe.pip_options
    own = bool(options.index_url or options.extra_index_urls or options.find_links or options.no_index)
    level: Level
    for line in recipe.pip:
        if line.name in NO_PACKAGES and not line.url and not list_pages(options):
            message = f"'{line.text}' is no package of the package index"
            level = "warning" if own else "error"
            at = locate(recipe, line)
            yield Finding(code="name-import", message=message, at=at, fix=NO_PACKAGES[line.name], level=level)
        if line.name in OTHER_PROJECTS and not line.url and not own:
            message = f"'{line.text}' of the package index is another project's"
            at, fix = locate(recipe, line), OTHER_PROJECTS[line.name]
            level = "warning" if target.environment.place == "base" else "error"
            yield Finding(code="name-import", message=message, at=at, fix=fix, level=level)
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


def check_unsure_name(target: Target) -> Iterator[Finding]:
    """Report a conda dependency that is installed from the index although no source confirms the name there."""
    for spec in target.recipe.conda if target.environment.place == "base" else ():
        name = find_python_name(spec.name)
        if name is None or not is_unsure_name(spec.name):
            continue
        at = Location(file=target.recipe.file, line=spec.line)
        message = f"'{spec.text}' is installed as the Python package '{name}': no source confirms that it is the same"
        fix = f"move {name} below '- pip:' if you mean that, or use container.python: env"
        yield Finding(code="base-name", message=message, at=at, fix=fix, level="warning")


def check_near_miss(target: Target) -> Iterator[Finding]:
    """Report an unknown name that differs from a well-known one by a single slip."""
    recipe = target.recipe
    table = load_name_table()
    on_index = {**table.not_on_index, **table.other_on_index}  # pip's name of what conda, or a program, calls so
    asked: list[tuple[str, Location, Mapping[str, str]]]
    asked = [(spec.name, Location(file=recipe.file, line=spec.line), {}) for spec in recipe.conda if not spec.url]
    asked += [(line.name, locate(recipe, line), on_index) for line in recipe.pip if line.name and not line.url]
    for name, at, renamed in asked:
        near = "" if is_known_package(name) else _find_meant(str(canonicalize_name(name)))
        if near and near != PYTHON:
            message = f"'{name}' is not a known package, and one letter away from '{near}'"
            fix = f"write {renamed.get(near, near)} if you mean that"
            yield Finding(code="name-near", message=message, at=at, fix=fix, level="warning")
    yield from _report_python(target)


def _report_python(target: Target) -> Iterator[Finding]:
    """Report a misspelled `python`: the environment would get another Python than the one that the line asks for."""
    recipe = target.recipe
    written = any(spec.name == PYTHON for spec in recipe.conda)
    for spec in recipe.conda:
        if spec.url or is_known_package(spec.name) or _find_meant(spec.name) != PYTHON:
            continue
        at = Location(file=recipe.file, line=spec.line)
        edit = None if written else make_edit(at, spec.name, PYTHON)
        line = spec.text.replace(spec.name, PYTHON, 1)
        message = f"'{spec.text}' is not a known package, and one letter away from 'python'"
        fix = "remove it: a line names python already" if written else f"write '- {line}'"
        yield Finding(code="name-near", message=message, at=at, fix=fix, level="warning", edit=edit)
    for one in recipe.pip:
        name = "" if one.url or is_known_package(one.name) else str(canonicalize_name(one.name))
        if _find_meant(name) != PYTHON:
            continue
        line = f"{PYTHON}{one.specifier}" if one.specifier else f"{PYTHON}=3.12"
        message = f"'{one.text}' is not a known package, and one letter away from 'python', which pip cannot install"
        fix = f"remove it here; in an environment.yml write '- {line}' below dependencies"
        yield Finding(code="name-near", message=message, at=locate(recipe, one), fix=fix, level="warning")


def check_system_name(target: Target) -> Iterator[Finding]:
    """Report a distribution package among those of conda or pip."""
    recipe = target.recipe
    system = {other for other in load_name_table().other.values() if other}
    asked = [(spec.name, Location(file=recipe.file, line=spec.line)) for spec in recipe.conda]
    asked += [(line.name, locate(recipe, line)) for line in recipe.pip if line.name]
    for name, at in asked:
        if is_known_package(name) or not (name in system or _SYSTEM.fullmatch(name)):
            continue
        message = f"'{name}' is the name of a distribution package, not of one of conda or pip"
        fix = f"move it to container.system: [{name}]"
        if target.traits.one_call:
            fix = f"remove it, or use its conda package: {target.backend} installs no distribution packages"
        elif recipe.kind != "conda":
            fix = "remove it, and choose a base image that has it, with --base"
        yield Finding(code="name-system", message=message, at=at, fix=fix, level="warning")


def check_other_system(target: Target) -> Iterator[Finding]:
    """Report an export from Windows or macOS: it names packages and builds that Linux does not have."""
    recipe, named = target.recipe, list[Finding]()
    for system in OTHERS:
        finding = _named(target, system) or _built(target, system) or _subdir(recipe, system) or _prefix(recipe, system)
        if finding is not None:
            named.append(finding)
            yield finding
        yield from _on_index(recipe, system)
    if not named and (finding := _without_linux(recipe)):
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


def _built(target: Target, system: OtherSystem) -> Finding | None:
    """A build that only the other system has."""
    recipe = target.recipe
    for spec in recipe.conda:
        if any(mark in spec.build for mark in system.builds):
            message = f"'{spec.text}' is a build for {system.name}, and the image is Linux"
            at = Location(file=recipe.file, line=spec.line)
            return Finding(code="export-system", message=message, at=at, fix=EXPORT)
    return None


def _on_index(recipe: Recipe, system: OtherSystem) -> Iterator[Finding]:
    """Report each requirement that can only be installed on the other system."""
    for line in recipe.pip:
        if not line.url and any(matches(line.name, form) for form in system.on_index):
            message = f"'{line.text}' is for {system.name} alone: Linux cannot install it"
            fix = f"remove it, or write '{line.text}; sys_platform == \"{system.marker}\"'"
            yield Finding(code="export-system", message=message, at=locate(recipe, line), fix=fix)


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


def _without_linux(recipe: Recipe) -> Finding | None:
    """A whole export, which has packages that few ask for, without any of those that Python requires on Linux."""
    names = {spec.name for spec in recipe.conda}
    pinned = [spec for spec in recipe.conda if spec.name not in ("pip", "nodefaults")]
    if PYTHON not in names or len(names & {*OF_EXPORTS}) < 2 or any(LINUX.fullmatch(name) for name in names):
        return None
    if not all(spec.version for spec in pinned):
        return None
    built = all(spec.build and "*" not in spec.build for spec in pinned)
    system = "macOS" if {"libcxx", "libcxxabi"} & names else "another system"
    lacks = "its Python has no libgcc, which that of Linux requires"
    message = f"this is the export of an environment of {system}: {lacks}"
    at = Location(file=recipe.file, line=next(spec.line for spec in recipe.conda if spec.name == PYTHON))
    level: Level = "error" if built else "warning"
    return Finding(code="export-system", message=message, at=at, fix=EXPORT, level=level)


@cache
def _collect_known() -> frozenset[str]:
    table = load_name_table()
    names = {*table.same.split(), *table.renamed, *table.renamed.values(), *table.other, *table.torch_choosers, *FAMILY}
    names |= {*table.not_on_index, *table.other_on_index, *table.bring_torch}
    names |= {PYTHON} | {row.name for row in load_package_table().packages}
    return frozenset(str(canonicalize_name(name)) for name in names)


def is_known_package(name: str) -> bool:
    """Whether our tables have a package of this name, of conda or of pip."""
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
    first, mark, rest = name.partition("-")
    if mark and rest and first != PYTHON and _is_one_slip(first, PYTHON):
        return f"{PYTHON}-{rest}"  # the slip is in the word that begins so many names
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
