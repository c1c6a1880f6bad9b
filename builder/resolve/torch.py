"""Choose the build of torch for a site: release, token and index, from the tables; or report why there is none.

The requested Python is one version, a range, or any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from builder.model.finding import Finding, make_edit
from builder.model.recipe import CondaSpec, PipRequirement, Recipe
from builder.model.site import Site
from builder.model.target import DEFAULT_INDEX, Torch
from builder.parse.gpu_tables import (
    TorchRelease,
    load_driver_table,
    load_image_table,
    load_package_table,
    load_torch_table,
)
from builder.resolve.conda_names import to_specifier
from builder.resolve.requested import COMPANIONS, FAMILY, RequestedTorch, is_empty

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


IPEX = "intel-extension-for-pytorch"
VENDOR_OF_TOKEN = {"cu": "nvidia", "rocm": "amd", "xpu": "intel", "cpu": "cpu"}


def choose_torch(
    asked: Mapping[str, RequestedTorch],
    *,
    site: Site,
    index: str,
    python: PythonPin | None = None,
    packages: Iterable[PipRequirement] = (),
) -> Torch | Finding:
    """Choose release and build: the newest one that fits the request, the site and the Python."""
    python = python or PythonPin()
    first = next((asked[name] for name in FAMILY if name in asked), None)
    unclear = next((item for item in asked.values() if item.unclear), None)
    if unclear is not None:
        message = f"'{unclear.text}' does not say which release of {unclear.name} it is"
        fix = f"write {unclear.name}==X.Y.Z, or a range with >= and <: the right build is chosen for every site"
        return Finding(code="torch-unclear", message=message, at=unclear.location, fix=fix)
    releases = select_releases(asked, packages=packages)
    if not releases:
        text = first.text if first else "torch"
        message = f"'{text}' matches no torch in the tables"
        if first is not None and is_empty(first.specifier):
            message = f"'{text}' contradicts itself: no version satisfies both bounds"
        fix = _suggest_range(first.name if first else "torch", site=site, python=python)
        if first is not None and (pair := _contradiction(first)):
            one, other = pair
            where = f", at {other.location}" if other.location else ""
            message = f"'{one.text}' contradicts '{other.text}'{where}: no version satisfies both"
            fix = "keep one of the two"
        return Finding(code="torch-unknown", message=message, at=first.location if first else None, fix=fix)
    pinning = [asked[name] for name in FAMILY if name in asked and asked[name].local]
    refusals = (_local_refusal(item, site=site, releases=releases, python=python) for item in pinning)
    refusal = next((item for item in refusals if item is not None), None)
    if refusal:
        return refusal
    for row in _sort_releases(releases, site=site):
        found = list_tokens(row, site=site)
        token = next((token for token in found if not pinning or token == pinning[0].local), "")
        if token and any(python.allows(minor) for minor in row.pythons):
            return Torch(version=row.torch, token=token, index=_index(token, mirror=index))
    return _report_no_build(first, releases=releases, site=site, python=python)


def _contradiction(asked: RequestedTorch) -> tuple[RequestedTorch, RequestedTorch] | None:
    """The first two requests that no release satisfies together, where each has one."""
    releases = [row.torch for row in load_torch_table().releases]
    for one, other in combinations(asked.parts, 2):
        fits = [{name for name in releases if part.allows(name)} for part in (one, other)]
        if all(fits) and not fits[0] & fits[1]:
            return one, other
    return None


def select_releases(
    asked: Mapping[str, RequestedTorch], *, packages: Iterable[PipRequirement] = ()
) -> list[TorchRelease]:
    """Select the releases that the request allows, preferring those that fit companions and dependents."""
    torch = asked.get("torch")
    found = [row for row in load_torch_table().releases if torch is None or torch.allows(row.torch)]
    for name in COMPANIONS:
        if name in asked:
            paired = [row for row in found if getattr(row, name) and asked[name].allows(getattr(row, name))]
            found = paired or found
    for line in packages:
        pinned = [row for row in found if any(wanted.contains(row.torch) for wanted in find_required_torch(line))]
        found = pinned or found
    return found


def find_required_torch(line: PipRequirement) -> list[SpecifierSet]:
    """Find the torch that the allowed releases of a package are known to require."""
    wanted = SpecifierSet(line.specifier)
    if line.name == IPEX:
        rows = [row for row in load_image_table().intel_ipex if wanted.contains(Version(row.ipex), prereleases=True)]
        return [SpecifierSet(f"=={'.'.join(Version(row.torch).base_version.split('.')[:2])}.*") for row in rows]
    pins = next((pin.torch for pin in load_package_table().torch_pins if pin.package == line.name), {})
    return [SpecifierSet(torch) for version, torch in pins.items() if wanted.contains(version)]


def _sort_releases(releases: list[TorchRelease], *, site: Site) -> list[TorchRelease]:
    """Sort newest first, after the releases without known trouble at the site and without doubts in the tables."""

    def doubts(row: TorchRelease) -> tuple[bool, bool]:
        found = list_tokens(row, site=site)
        return "rocm" in row.unsure or "cuda" in row.unsure, bool(found) and has_trouble(found[0], site=site)

    newest_first = list(reversed(releases))
    return sorted(newest_first, key=doubts)


def has_trouble(token: str, *, site: Site) -> bool:
    """Whether a ROCm build is newer than the newest without known trouble at the site."""
    safe = site.gpu.rocm_safe if site.gpu else None
    return bool(safe) and token.startswith("rocm") and Version(parse_rocm(token)) > Version(safe or "0")


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


def find_vendor(token: str) -> str:
    """Return the vendor of a build token, "" if it is not a token."""
    return next((vendor for prefix, vendor in VENDOR_OF_TOKEN.items() if token.startswith(prefix)), "")


def list_tokens(row: TorchRelease, *, site: Site) -> tuple[str, ...]:
    """List the builds of a release that the site's driver serves, best first."""
    if site.gpu is None:
        return ("cpu",) if row.cpu else ()
    if site.gpu.vendor == "intel":
        return ("xpu",) if row.xpu else ()
    if site.gpu.vendor == "amd":
        return _rocm_tokens(row, site=site)
    return _cuda_tokens(row, site=site)


def _rocm_tokens(row: TorchRelease, *, site: Site) -> tuple[str, ...]:
    """Sort the builds within the driver's window: the newest without known trouble first."""
    assert site.gpu is not None
    fitting = [token for token in row.rocm or () if not site.gpu.rocm or parse_rocm(token) in site.gpu.rocm]
    newest_first = sorted(fitting, key=lambda token: Version(token.removeprefix("rocm")), reverse=True)
    return tuple(sorted(newest_first, key=lambda token: has_trouble(token, site=site)))


def parse_rocm(token: str) -> str:
    """Parse X.Y of a ROCm token: rocm6.2.4 is 6.2."""
    return ".".join(token.removeprefix("rocm").split(".")[:2])


def parse_cuda(token: str) -> str:
    """Parse X.Y of a CUDA token: cu126 is 12.6."""
    digits = token.removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}"


def serves_cuda(cuda: str, *, site: Site) -> bool:
    """Whether the site's driver runs programs of a CUDA toolkit; minor-version compatibility counts."""
    if site.gpu is None or site.gpu.driver is None:
        return True
    major = int(cuda.split(".")[0])
    row = next((row for row in load_driver_table().cuda_majors if row.major == major), None)
    return row is not None and Version(row.min_driver) <= Version(site.gpu.driver)


def _cuda_tokens(row: TorchRelease, *, site: Site) -> tuple[str, ...]:
    """Sort the builds: native toolkits first (they have every feature), then the newest that the driver runs."""
    assert site.gpu is not None
    fitting = [token for token in row.cuda or () if serves_cuda(parse_cuda(token), site=site)]
    newest_first = sorted(fitting, key=lambda token: Version(parse_cuda(token)), reverse=True)
    if site.gpu.cuda_native is None:
        return tuple(newest_first)
    native = Version(site.gpu.cuda_native)
    return tuple(sorted(newest_first, key=lambda token: Version(parse_cuda(token)) > native))


def _local_refusal(
    asked: RequestedTorch, *, site: Site, releases: list[TorchRelease], python: PythonPin
) -> Finding | None:
    """Check a build that the user pinned: it must exist, be for the site's vendor and run on its driver."""
    vendor = find_vendor(asked.local)
    bare = f"{asked.name}=={asked.pinned}" if asked.pinned else asked.name
    served_here = any(list_tokens(row, site=site) and any(map(python.allows, row.pythons)) for row in releases)
    fix = f"write {bare}: the right build is chosen for every site"
    if not served_here:  # without the build it would be refused again
        fix = _suggest_range(asked.name, site=site, python=python, plain=True)
    # an unknown build may be the user's own: nothing replaces it without a question
    edit = make_edit(asked.location, asked.text, bare) if served_here and vendor else None
    if vendor and vendor != site.vendor:
        built = f"'{asked.text}' is built for {_name_vendor(vendor)}"
        message = f"{built}, the site '{site.name}' has {_name_vendor(site.vendor)}"
        return Finding(code="torch-vendor", message=message, at=asked.location, fix=fix, edit=edit)
    if any(asked.local in list_tokens(row, site=site) for row in releases):
        return None
    if not any(asked.local in (*(row.cuda or ()), *(row.rocm or ()), "xpu" if row.xpu else "") for row in releases):
        message = f"'{asked.text}' is a build that is not in the tables"
        return Finding(code="torch-unknown", message=message, at=asked.location, fix=fix, edit=edit)
    served = ""
    if site.gpu and site.gpu.vendor == "amd":
        served = f": its driver serves ROCm {', '.join(site.gpu.rocm)}"
    elif site.gpu and site.gpu.vendor == "nvidia":
        served = f": its driver is {site.gpu.driver}"
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
    served = [row for row in releases if list_tokens(row, site=site)]
    if served:
        row = served[-1]
        message = f"'{text}' has no wheel for Python {python.text}"
        fix = f"use Python {', '.join(row.pythons)}"
        if f"{python.text}0" in row.pythons:  # YAML reads 3.10 as the number 3.1
            fix = f"did you mean Python {python.text}0? {fix}"
        return Finding(code="torch-python", message=message, at=place, fix=fix)
    row = releases[-1]
    builds = {"amd": row.rocm, "nvidia": row.cuda}.get(site.vendor)
    why = f" (builds: {', '.join(builds)})" if builds else ""
    reason = f"the driver of '{site.name}' serves none of its builds{why}"
    if builds is None:
        reason = f"no build of it for {_name_vendor(site.vendor)} is known"
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
