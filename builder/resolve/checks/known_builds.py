"""Releases of a package that the tables know with the torch that each requires: the one to write for a site."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from builder.model.site import Site
from builder.model.target import Torch
from builder.parse.gpu_tables import TorchPin, TorchRelease, load_package_table, load_torch_table
from builder.resolve.tokens import list_tokens


def suggest_known_build(name: str, *, site: Site, torch: Torch | None) -> str:
    """Suggest the newest build that is known to exist: for this torch, else with the torch that it requires.

    "" for a package whose builds are not in the tables, or where the site has another vendor.
    """
    pin = next((pin for pin in load_package_table().torch_pins if pin.package == name), None)
    if pin is None or not pin.builds or site.vendor not in ("amd", "nvidia"):
        return ""
    found = list(_list_known(pin, site=site))
    own = [(text, row) for text, row in found if torch is not None and torch.version and _is_same(row, torch)]
    if own:
        return f"write {own[-1][0]}"
    if found:
        text, row = found[-1]
        return f"write torch=={row.torch} and {text}"
    return ""


def find_known_release(name: str, *, site: Site, torch: Torch | None) -> str:
    """Find the newest release that is known to require this torch, with its build where it has one; "" for none."""
    pin = next((pin for pin in load_package_table().torch_pins if pin.package == name), None)
    if pin is None or torch is None or not torch.version:
        return ""
    if pin.builds and site.vendor == "amd":
        own = suggest_known_build(name, site=site, torch=torch)
        return own.removeprefix("write ") if not own.startswith("write torch==") else ""
    base = Version(torch.version).base_version
    found = [version for version in pin.torch if SpecifierSet(pin.torch[version]).contains(base)]
    return f"{name}=={max(found, key=Version)}" if found else ""


def _list_known(pin: TorchPin, *, site: Site) -> Iterator[tuple[str, TorchRelease]]:
    """List requirements and a torch that each fits, the oldest first, of what the site serves.

    The build for the default CUDA has no local version; those for ROCm have.
    """
    for version in sorted(pin.torch, key=Version):
        wanted = SpecifierSet(pin.torch[version])
        for row in load_torch_table().releases:
            served = list_tokens(row, site=site) if wanted.contains(row.torch) else ()
            if site.vendor == "nvidia" and served:
                yield f"{pin.package}=={version}", row
            for token in reversed(served):
                if version in pin.builds.get(token, "").split():
                    yield f"{pin.package}=={version}+{token}", row


def _is_same(row: TorchRelease, torch: Torch) -> bool:
    return row.torch == Version(torch.version).base_version
