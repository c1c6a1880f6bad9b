"""The vendor of a package by its name, extras or local version, and what serves a site in its place."""

from __future__ import annotations

import re
from functools import cache
from urllib.parse import unquote

from builder.model.recipe import PipRequirement
from builder.model.site import Site
from builder.parse.gpu_tables import NameSuffix, VendorPackage, load_package_table
from builder.resolve.requested import FAMILY
from builder.resolve.torch import serves_cuda

VENDOR_NAMES = {"amd": "AMD", "nvidia": "NVIDIA", "intel": "Intel", "cpu": "CPU"}
ONE_CALL = ("cotainr", "tykky")  # backends that install everything in one call of pip
# An ending of a package's name that tells its builds apart; other words behind a row's name make another package.
_BUILD = re.compile(r"-(?:gpu|cpu|cu(?:da)?\d.*|rocm.*|xpu|migraphx|openvino)")


def find_named_vendor(line: PipRequirement) -> tuple[NameSuffix, str, bool] | None:
    """Find the ending that names a vendor, what has it, and whether that is an extra, which names more packages."""
    local = read_local(line)
    known = any(row.name == line.name for row in load_package_table().packages)
    if local and (ending := find_ending(f"+{local}")):
        return ending[0], f"the build '+{local}'", False
    if not known and (ending := find_ending(line.name)):
        return ending[0], "its name", False
    for extra in line.extras:
        ending = find_ending(f"-{extra}")
        if not known and ending and ending[0].certain:
            return ending[0], f"its extra '{extra}'", True
    return None


@cache
def find_ending(text: str) -> tuple[NameSuffix, str] | None:
    """Find the ending that a text has, and the CUDA major that it names ("" for none)."""
    for ending in load_package_table().endings:
        found = any(word in text for word in ending.words.split())  # a pattern takes long to compile
        if found and (match := re.search(f"(?:{ending.pattern})$", text)):
            digits = (match.groupdict().get("cuda") or "").removesuffix("x")
            return ending, digits[:1] if digits[:1] in ("8", "9") else digits[:2]
    return None


def read_local(line: PipRequirement) -> str:
    """Return the local version that a requirement or the name of its wheel has."""
    path = unquote(line.url).partition("#")[0]
    if path.endswith(".whl"):
        return "".join(path.rpartition("/")[2].split("-")[1:2]).partition("+")[2]
    return line.specifier.partition("+")[2]


def suggest_counterpart(name: str, *, site: Site, backend: str = "") -> str:
    """Suggest, from the table, what serves a site in place of a package, and what the backend can install of it."""
    vendor = site.vendor
    rows = _find_family(name)
    built = next((row for row in rows if row.name == name and vendor in row.compilers), None)
    if built is not None and backend in ONE_CALL:
        return suggest_without_build(built, site=site, backend=backend, wheel=True)
    offers = next(filter(None, (_list_offers(row, site=site) for row in rows)), []) if vendor != "cpu" else []
    if offers:
        return f"for {VENDOR_NAMES[vendor]} there is: {', or '.join(offers)}"
    fix = f"remove it: no build for {VENDOR_NAMES[vendor]} is known"
    if vendor == "nvidia" and any(row.nvidia_cuda for row in rows):
        fix = f"remove it: no build for the CUDA that '{site.name}' serves is known"
    if vendor == "amd" and any(row.amd_rocm for row in rows):
        fix = f"remove it: no build for the ROCm that '{site.name}' serves is known"
    on_cpu = next((row.cpu for row in rows if row.cpu and row.cpu != name), "")
    return f"{fix}; {on_cpu} has the same module, without the GPU" if on_cpu else fix


def suggest_without_build(row: VendorPackage, *, site: Site, backend: str, wheel: bool = False) -> str:
    """Suggest what serves where a backend cannot compile a package against the torch that it installs.

    `wheel` says that the recipe names a wheel of another vendor.
    """
    known = {*ONE_CALL, backend}
    other = next((name for name in site.build.backends if name not in known), "")
    compiler = row.compilers.get(site.vendor, "")
    where = f" (in a base image with {compiler})" if compiler else ""
    fix = f"{backend} installs in one call of pip, before torch is there: remove it for '{site.name}'"
    version = f"write {row.name} with a version and " if wheel else ""
    fix += f", {version}build with --backend {other}, which installs it after torch{where}" if other else ""
    fits = f"a wheel that was built for {VENDOR_NAMES[site.vendor]} GPUs and this torch"
    return f"{fix}, or give the address of {fits}" if site.vendor != "cpu" else fix


def _find_family(name: str) -> list[VendorPackage]:
    """Find the rows of a package: its own, that of the package it is a build of, those with a word of its name."""
    rows = load_package_table().packages
    own = [row for row in rows if row.name == name]
    own += [row for row in rows if name.startswith(row.name) and _BUILD.fullmatch(name[len(row.name) :])]
    own += [row for row in rows if row.name not in FAMILY and f"-{row.name}-" in f"-{name}-"]
    return own


def _list_offers(row: VendorPackage, *, site: Site) -> list[str]:
    """List what the table names for a vendor, of AMD and NVIDIA what the site's driver serves."""
    window = site.gpu.rocm if site.gpu is not None else ()
    served = [
        text
        for rocm, text in row.amd_rocm.items()
        if site.vendor == "amd" and (not window or any(f"{one}.".startswith(f"{rocm}.") for one in window))
    ]
    served += [
        text
        for cuda, text in row.nvidia_cuda.items()
        if site.vendor == "nvidia" and serves_cuda(f"{cuda}.0", site=site)
    ]
    text = getattr(row, site.vendor)
    text = f"{row.name} of {text}" if text and text.startswith("PyPI") else text
    return [*served, *([text] if text else [])]
