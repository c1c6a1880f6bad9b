"""Releases of torch that fit a recipe's other lines: torchvision and torchaudio, and what requires one torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from builder.model.recipe import PipRequirement
from builder.parse.gpu_tables import TorchRelease, load_image_table, load_package_table, load_torch_table
from builder.resolve.requested import COMPANIONS, RequestedTorch

POST = re.compile(r"==\s*([\d.]+)\.post\d+")  # a release that is made again requires the same torch
LOCAL = re.compile(r"\+[a-z0-9.]+")
IPEX = "intel-extension-for-pytorch"


def find_companion(row: TorchRelease, asked: RequestedTorch) -> str:
    """Find the version to install of a companion that is requested, "" if none that belongs to the release fits.

    A version under which conda had the same release is replaced by the wheel's.
    """
    paired: str = getattr(row, asked.name)
    fitting = (version for version in (paired, *row.also.get(asked.name, ())) if version and asked.allows(version))
    found = next(fitting, "")
    same = asked.conda and any(asked.allows(version) for version in row.conda.get(asked.name, ()))
    return found or (paired if same else "")


def list_companion_builds(name: str, version: str) -> set[str]:
    """List the builds of a companion: those of the first release of torch that it was published with."""
    row = next((row for row in load_torch_table().releases if getattr(row, name) == version), None)
    if row is None:  # published for this one release only, with all of its builds
        return set()
    return {*(row.cuda or ()), *(row.rocm or ()), *(["xpu"] if row.xpu else []), *(["cpu"] if row.cpu else [])}


def has_companions(row: TorchRelease, token: str, *, asked: Mapping[str, RequestedTorch]) -> bool:
    """Whether every requested companion has the build of a release; one that does not fit is reported elsewhere."""
    wanted = {name: find_companion(row, asked[name]) for name in COMPANIONS if name in asked}
    builds = (list_companion_builds(name, version) for name, version in wanted.items() if version)
    return all(not found or token in found for found in builds)


def select_releases(
    asked: Mapping[str, RequestedTorch], *, packages: Iterable[PipRequirement] = ()
) -> list[TorchRelease]:
    """Select the releases that the request allows, preferring those that fit companions and dependents."""
    torch = asked.get("torch")
    found = [row for row in load_torch_table().releases if torch is None or torch.allows(row.torch)]
    for name in COMPANIONS:
        if name in asked:
            paired = [row for row in found if find_companion(row, asked[name])]
            found = paired or found
    for line in packages:
        pinned = [row for row in found if any(wanted.contains(row.torch) for wanted in find_required_torch(line))]
        found = pinned or found
    return found


def find_required_torch(line: PipRequirement) -> list[SpecifierSet]:
    """Find the torch that the allowed releases of a package are known to require."""
    wanted = SpecifierSet(LOCAL.sub("", line.specifier))  # each build of a release requires the same torch
    if line.name == IPEX:
        rows = [row for row in load_image_table().intel_ipex if wanted.contains(Version(row.ipex), prereleases=True)]
        return [SpecifierSet(f"=={'.'.join(Version(row.torch).base_version.split('.')[:2])}.*") for row in rows]
    pins = next((pin.torch for pin in load_package_table().torch_pins if pin.package == line.name), {})
    found = [SpecifierSet(torch) for version, torch in pins.items() if wanted.contains(version)]
    post = POST.fullmatch(LOCAL.sub("", line.specifier))
    return found or ([SpecifierSet(pins[post[1]])] if post and post[1] in pins else [])
