"""Choose the build of torch for a site: release, token and index, from the tables; or report why there is none.

The requested Python is one version, a range, or any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from builder.model.finding import Finding, make_edit
from builder.model.recipe import CondaSpec, PipRequirement, Recipe
from builder.model.site import Site
from builder.model.target import DEFAULT_INDEX, Torch
from builder.parse.gpu_tables import TorchRelease, load_package_table, load_torch_table
from builder.resolve.conda_names import to_specifier
from builder.resolve.releases import has_companions, select_releases
from builder.resolve.requested import FAMILY, RequestedTorch, is_empty
from builder.resolve.tokens import find_vendor, has_trouble, list_all_tokens, list_tokens, parse_cuda

# Patch releases to try for a range such as >=3.12.4; no series had more than 30.
PATCHES = (*range(31), 99)


@dataclass(frozen=True, kw_only=True)
class PythonPin:
    """The requested Python: `minor` is X.Y if it is fixed, else `range`; `spec` is the dependency, if any.

    A range is PEP 440, or several alternatives separated by `|`.
    """

    minor: str | None = None
    range: str = ""
    spec: CondaSpec | None = None

    def allows(self, minor: str) -> bool:
        """Whether a Python X.Y can serve the request."""
        if self.minor is not None:
            return self.minor == minor
        wanted = [SpecifierSet(part) for part in self.range.split("|")]
        return any(one.contains(f"{minor}.{patch}") for one in wanted for patch in PATCHES)

    @property
    def text(self) -> str:
        """The request in words, for messages."""
        return self.minor or self.range or "any"

    def format_dependency(self, minor: str) -> str:
        """Format the conda dependency for one of the Pythons that the request allows."""
        if self.spec is not None and self.minor is not None:
            return self.spec.text
        if self.spec is None or not self.range:
            return f"python={minor}"
        return "python" + "|".join(f"{part},{minor}.*" for part in self.spec.version.split("|"))


def read_python_pin(recipe: Recipe) -> PythonPin:
    """Read the Python from a recipe's conda dependencies."""
    spec = next((spec for spec in recipe.conda if spec.name == "python"), None)
    if spec is None:
        return PythonPin()
    parts = [to_specifier(part) for part in spec.version.split("|")]
    if len(parts) > 1:
        return PythonPin(range="" if "" in parts else "|".join(filter(None, parts)), spec=spec)
    specifier = parts[0] or ""
    number = specifier.removeprefix("==").split(",")[0]
    numbers = number.split(".")
    if specifier.startswith("==") and len(numbers) >= 2 and numbers[1] != "*":
        return PythonPin(minor=".".join(numbers[:2]), spec=spec)
    return PythonPin(range=specifier, spec=spec)


def choose_torch(
    asked: Mapping[str, RequestedTorch],
    *,
    site: Site,
    index: str,
    python: PythonPin | None = None,
    packages: Sequence[PipRequirement] = (),
    indexes: Sequence[str] = (),
) -> Torch | Finding:
    """Choose release and build: the newest one that fits the request, the site and the Python.

    A build whose index the recipe names comes first, then one that the recipe's other compiled packages fit.
    """
    python = python or PythonPin()
    named = [asked[name] for name in FAMILY if name in asked]
    first = named[0] if named else None
    refusal = _refuse_source(asked, site=site, python=python)
    if refusal is not None:
        return refusal
    releases = select_releases(asked, packages=packages)
    if not any(list_tokens(row, site=site, sure=False) for row in releases):
        releases = select_releases(asked)  # what a package requires must not hide what the site can run
    if not releases:
        return _report_no_release(first, site=site, python=python)
    pinning = [item for item in named if item.local and not is_cuda_pin(item, site=site)]
    refusals = (_local_refusal(item, site=site, releases=releases, python=python) for item in pinning)
    refusal = next((item for item in refusals if item is not None), None)
    if refusal is not None:
        return refusal
    # what two sources disagree about, and a build that a companion lacks, are taken only where nothing else is
    for full, sure in ((True, True), (True, False), (False, True), (False, False)):
        for row in _sort_releases(releases, site=site, named=_list_named(indexes)):
            served = [
                token
                for token in list_tokens(row, site=site, sure=sure)
                if not full or has_companions(row, token, asked=asked)
            ]
            found = _prefer_tokens(served, row=row, site=site, packages=packages, indexes=indexes)
            token = next((token for token in found if not pinning or token == pinning[0].local), "")
            if token and any(python.allows(minor) for minor in row.pythons):
                return Torch(version=row.torch, token=token, index=_index(token, mirror=index))
    return _report_no_build(first, releases=releases, site=site, python=python)


def _report_no_release(first: RequestedTorch | None, *, site: Site, python: PythonPin) -> Finding:
    """The finding for a request that no torch of the tables satisfies."""
    text = first.text if first else "torch"
    message = f"'{text}' matches no torch in the tables"
    if first is not None and is_empty(first.specifier):
        message = f"'{text}' contradicts itself: no version satisfies both bounds"
    fix = _suggest_range(first.name if first else "torch", site=site, python=python)
    if first is not None and (pair := _contradiction(first)):
        where = f", at {pair[1].location}" if pair[1].location else ""
        message = f"'{pair[0].text}' contradicts '{pair[1].text}'{where}: no version satisfies both"
        fix = "keep one of the two"
    return Finding(code="torch-unknown", message=message, at=first.location if first else None, fix=fix)


def _refuse_source(asked: Mapping[str, RequestedTorch], *, site: Site, python: PythonPin) -> Finding | None:
    """Report a request whose release is not known, or a wheel that is not one of PyTorch's."""
    unclear = next((item for item in asked.values() if item.unclear), None)
    if unclear is not None:
        message = f"'{unclear.text}' does not say which release of {unclear.name} it is"
        fix = f"write {unclear.name}==X.Y.Z, or a range with >= and <: the right build is chosen for every site"
        return Finding(code="torch-unclear", message=message, at=unclear.location, fix=fix)
    foreign = next((item for item in asked.values() if _name_publisher(item)), None)
    if foreign is not None:
        message = f"'{foreign.text}' is {_name_publisher(foreign)}, which is not in the tables"
        fix = _suggest_range(foreign.name, site=site, python=python, plain=True)
        return Finding(code="torch-unknown", message=message, at=foreign.location, fix=fix)
    return None


def _name_publisher(asked: RequestedTorch) -> str:
    """Name who built a wheel that is not one of PyTorch's, "" for all others."""
    if asked.local == "cxx11.abi":
        return "Intel's own CXX11 build"
    return "AMD's own build" if "://repo.radeon.com/" in asked.text else ""


def is_cuda_pin(asked: RequestedTorch, *, site: Site) -> bool:
    """Whether a CUDA build is pinned on a site without GPUs, where the CPU build takes its place."""
    return site.vendor == "cpu" and find_vendor(asked.local) == "nvidia"


def _prefer_tokens(
    tokens: Sequence[str],
    *,
    row: TorchRelease,
    site: Site,
    packages: Sequence[PipRequirement],
    indexes: Iterable[str],
) -> list[str]:
    """Sort builds: those that the recipe's indexes or wheels name, then those of the CUDA of its other wheels.

    Wheels of the default index are built with the CUDA of the torch there.
    """
    named = _list_named(indexes) | {line.specifier.partition("+")[2] for line in packages}
    default = row.pypi_cuda if site.node.arch == "x86_64" else row.aarch64.pypi_cuda if row.aarch64 else ""
    major = default.partition(".")[0] if any(map(_is_compiled, packages)) else ""

    def rank(token: str) -> tuple[bool, bool]:
        fits = token.startswith("cu") and parse_cuda(token).partition(".")[0] == major
        return token not in named, bool(major) and not fits

    return sorted(tokens, key=rank)


def _is_compiled(line: PipRequirement) -> bool:
    """Whether a package is known to hold device code for the CUDA of the default index."""
    table = load_package_table()
    if line.url or "+" in line.specifier or line.name in FAMILY:
        return False
    known = any(row.name == line.name and "nvidia" in row.pypi for row in table.packages)
    return known or any(pin.package == line.name for pin in table.torch_pins) or line.name.startswith("flashinfer")


def _contradiction(asked: RequestedTorch) -> tuple[RequestedTorch, RequestedTorch] | None:
    """The first two requests that no release satisfies together, where each has one."""
    releases = [row.torch for row in load_torch_table().releases]
    for one, other in combinations(asked.parts, 2):
        fits = [{name for name in releases if part.allows(name)} for part in (one, other)]
        if all(fits) and not fits[0] & fits[1]:
            return one, other
    return None


def _sort_releases(releases: list[TorchRelease], *, site: Site, named: Iterable[str] = ()) -> list[TorchRelease]:
    """Sort newest first, after those of the recipe's own indexes and those without known trouble or doubts."""

    def doubts(row: TorchRelease) -> tuple[bool, bool, bool]:
        found = list_tokens(row, site=site)
        foreign = not any(token in named for token in found)
        unsure = "rocm" in row.unsure or "cuda" in row.unsure
        return foreign, unsure, bool(found) and has_trouble(found[0], site=site)

    newest_first = list(reversed(releases))
    return sorted(newest_first, key=doubts)


def _list_named(indexes: Iterable[str]) -> set[str]:
    """List what the addresses of the recipe's indexes end in: the build that each holds."""
    return {url.rstrip("/").rpartition("/")[2] for url in indexes}


def _index(token: str, *, mirror: str) -> str:
    if not mirror:
        return load_torch_table().index.replace("{token}", token)
    return mirror if mirror == DEFAULT_INDEX else mirror.replace("{token}", token)


def find_release(version: str) -> TorchRelease | None:
    """Find the table's row of a torch version; NGC's pre-releases count as their release; None for `unknown`."""
    try:
        base = Version(version).base_version
    except InvalidVersion:
        return None
    return next((row for row in load_torch_table().releases if row.torch == base), None)


def _local_refusal(
    asked: RequestedTorch, *, site: Site, releases: list[TorchRelease], python: PythonPin
) -> Finding | None:
    """Check a build that the user pinned: it must exist, be for the site's vendor and run on its driver."""
    vendor = find_vendor(asked.local)
    bare = f"{asked.name}=={asked.pinned}" if asked.pinned else asked.name
    served_here = any(
        list_tokens(row, site=site, sure=False) and any(map(python.allows, row.pythons)) for row in releases
    )
    fix = f"write {bare}: the right build is chosen for every site"
    if not served_here:  # without the build it would be refused again
        fix = _suggest_range(asked.name, site=site, python=python, plain=True)
    # an unknown build may be the user's own: nothing replaces it without a question
    edit = make_edit(asked.location, asked.text, bare) if served_here and vendor else None
    if vendor and vendor != site.vendor:
        built = f"'{asked.text}' is built for {_name_vendor(vendor)}"
        message = f"{built}, the site '{site.name}' has {_name_vendor(site.vendor)}"
        return Finding(code="torch-vendor", message=message, at=asked.location, fix=fix, edit=edit)
    if any(asked.local in list_tokens(row, site=site, sure=False) for row in releases):
        return None
    arch = site.node.arch
    if not any(asked.local in list_all_tokens(row, arch=arch) for row in releases):
        message = f"'{asked.text}' is a build that is not in the tables"
        if any(asked.local in list_all_tokens(row, arch="x86_64") for row in releases):
            message = f"'{asked.text}' has no wheel for {arch}, the processors of '{site.name}'"
            return Finding(code="torch-build", message=message, at=asked.location, fix=fix, edit=edit)
        return Finding(code="torch-unknown", message=message, at=asked.location, fix=fix, edit=edit)
    served = ""
    if site.gpu and site.gpu.vendor == "amd":
        served = f": its driver serves ROCm {', '.join(site.gpu.rocm)}"
    elif site.gpu and site.gpu.vendor == "nvidia":
        served = f": its driver is {site.gpu.driver or 'not known'}"
    message = f"'{asked.text}' cannot run on the site '{site.name}'{served}"
    return Finding(code="torch-driver", message=message, at=asked.location, fix=fix, edit=edit)


def _name_vendor(vendor: str) -> str:
    return {"amd": "AMD GPUs", "nvidia": "NVIDIA GPUs", "intel": "Intel GPUs", "cpu": "CPUs only"}[vendor]


def _report_no_build(
    asked: RequestedTorch | None, *, releases: list[TorchRelease], site: Site, python: PythonPin
) -> Finding:
    """Report whether the driver or the Python excludes all builds, and which versions would work."""
    text = asked.text if asked else "torch"
    place = asked.location if asked else None
    served = [row for row in releases if list_tokens(row, site=site, sure=False)]
    if served:
        row = served[-1]
        message = f"'{text}' has no wheel for Python {python.text}"
        fix = f"use Python {', '.join(row.pythons)}"
        if f"{python.text}0" in row.pythons:  # YAML reads 3.10 as the number 3.1
            fix = f"did you mean Python {python.text}0? {fix}"
        return Finding(code="torch-python", message=message, at=place, fix=fix)
    row = releases[-1]
    arch = site.node.arch
    builds = [token for token in list_all_tokens(row, arch=arch) if find_vendor(token) == site.vendor]
    why = f" (builds: {', '.join(builds)})" if builds else ""
    reason = f"the driver of '{site.name}' serves none of its builds{why}"
    if not builds:
        reason = f"no build of it for {_name_vendor(site.vendor)}{f' on {arch}' * (arch != 'x86_64')} is known"
    elif site.gpu and site.gpu.vendor == "amd" and site.gpu.rocm:
        reason += f", it serves ROCm {', '.join(site.gpu.rocm)}"
    message = f"'{text}' cannot run on this site: {reason}"
    fix = _suggest_range(asked.name if asked else "torch", site=site, python=python)
    return Finding(code="torch-build", message=message, at=place, fix=fix)


def _suggest_range(name: str, *, site: Site, python: PythonPin, plain: bool = False) -> str:
    """Suggest the releases of torch or a companion that a site can run with a Python; `plain`: without a build."""
    usable = [row for row in load_torch_table().releases if list_tokens(row, site=site)]
    calm = [row for row in usable if not has_trouble(list_tokens(row, site=site)[0], site=site)]
    usable = calm or usable
    fitting = [row for row in usable if any(map(python.allows, row.pythons))]
    if not usable:
        return f"use another site: '{site.name}' runs none of the known releases of torch"
    text = f"use {name} {_format_range(fitting or usable, name=name)}"
    if not fitting:
        text += f", with another Python than {python.text}"
    return f"{text}, without a build" if plain else text


def _format_range(rows: list[TorchRelease], *, name: str) -> str:
    found = [version for row in rows if (version := getattr(row, name))]
    return found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"
