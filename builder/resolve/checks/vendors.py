"""The vendor of a package by its name, extras or local version, and what serves a site in its place."""

from __future__ import annotations

import re
from functools import cache
from urllib.parse import unquote

from packaging.version import Version

from builder.model.backend import TRAITS
from builder.model.finding import Finding, Location
from builder.model.recipe import PipRequirement
from builder.model.site import BackendName, BaseImage, Site
from builder.model.target import Environment, Target
from builder.parse.gpu_tables import NameSuffix, VendorPackage, load_package_table
from builder.resolve.base_image import is_served
from builder.resolve.checks.known_builds import suggest_known_build
from builder.resolve.requested import FAMILY, find_requested_family, to_release
from builder.resolve.tokens import find_vendor, serves_cuda

VENDOR_NAMES = {"amd": "AMD", "nvidia": "NVIDIA", "intel": "Intel", "cpu": "CPU"}
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


def report_dispute(what: str, *, site: Site, at: Location | None = None) -> Finding:
    """Report what the site's driver serves by one source and not by another; `what` is what needs it."""
    gpu = site.gpu
    message = f"{what}: the sources disagree whether the driver of '{site.name}' serves it"
    if gpu is not None and gpu.other_driver:
        readings = f"{gpu.driver} ({gpu.driver_checked}) and {gpu.other_driver} ({gpu.other_driver_checked})"
        message += f", they name {readings}"
    fix = "read the driver on a GPU node with `recipe doctor`, and pass it with --driver"
    return Finding(code="driver-disputed", message=message, at=at, fix=fix, level="warning")


def read_local(line: PipRequirement) -> str:
    """Return the local version that a requirement or the name of its wheel has."""
    path = unquote(line.url).partition("#")[0]
    if path.endswith(".whl"):
        return "".join(path.rpartition("/")[2].split("-")[1:2]).partition("+")[2]
    return line.specifier.partition("+")[2]


def is_cuda_loader(line: PipRequirement) -> bool:
    """Whether a pinned release without an extra is built for CUDA on the default index, without the libraries."""
    before = None if line.extras else load_package_table().cuda_before.get(line.name)
    exact = re.fullmatch(r"={2,3}([^*,=]+)", line.specifier)
    pinned = to_release(exact[1]) if exact else None
    return before is not None and pinned is not None and pinned < Version(before)


def suggest_counterpart(
    name: str,
    *,
    site: Site,
    backend: BackendName | None = None,
    environment: Environment | None = None,
) -> str:
    """Suggest, from the table, what serves a site in place of a package, and what the backend can install of it.

    A build must fit the torch and the Python of the environment.
    """
    vendor, torch = site.vendor, environment.torch if environment is not None else None
    rows = _find_family(name)
    if known := suggest_known_build(name, site=site, torch=torch):
        return known
    built = next((row for row in rows if row.name == name and vendor in row.compilers), None)
    if built is not None and backend is not None and TRAITS[backend].one_call:
        return suggest_without_build(built, site=site, backend=backend, wheel=True)
    offers = next(filter(None, (_list_offers(row, site=site) for row in rows)), []) if vendor != "cpu" else []
    if offers:
        fitted = [_name_python(text, python=environment.python if environment is not None else None) for text in offers]
        return f"for {VENDOR_NAMES[vendor]} there is: {', or '.join(fitted)}"
    fix = f"remove it: no build for {VENDOR_NAMES[vendor]} is known"
    if any(row.cpu_only == site.node.arch for row in rows):
        fix = f"remove it: no build for {VENDOR_NAMES[vendor]} GPUs and {site.node.arch} is known"
    if vendor == "nvidia" and any(row.nvidia_cuda for row in rows):
        fix = f"remove it: no build for the CUDA that '{site.name}' serves is known"
    if vendor == "amd" and any(row.amd_rocm for row in rows):
        fix = f"remove it: no build for the ROCm that '{site.name}' serves is known"
    on_cpu = next((row.cpu for row in rows if row.cpu and row.cpu != name), "")
    return f"{fix}; {on_cpu} has the same module, without the GPU" if on_cpu else fix


def has_own_index(name: str, *, vendor: str) -> bool:
    """Whether a vendor's builds of a package are on an index of the package's own, and not on PyTorch's."""
    row = next((row for row in load_package_table().packages if row.name == name), None)
    return row is not None and "--extra-index-url" in (getattr(row, vendor, None) or "")


def suggest_without_build(row: VendorPackage, *, site: Site, backend: BackendName, wheel: bool = False) -> str:
    """Suggest what serves where a backend cannot compile a package against the torch that it installs.

    `wheel` says that the recipe names a wheel of another vendor.
    """
    other = next((name for name in site.build.backends if name != backend and can_compile(site, backend=name)), "")
    compiler = row.compilers.get(site.vendor, "")
    where = f" (in a base image with {compiler})" if compiler else ""
    why = f"{backend} installs in one call of pip, before torch is there"
    why = why if TRAITS[backend].one_call else f"nothing can be compiled in an image on '{site.name}'"
    fix = f"{why}: remove it for '{site.name}'"
    version = f"write {row.name} with a version and " if wheel else ""
    fix += f", {version}build with --backend {other}, which installs it after torch{where}" if other else ""
    if site.vendor != "cpu":
        fix += f", or give the address of a wheel that was built for {VENDOR_NAMES[site.vendor]} GPUs and this torch"
    if not other and "layers" in site.build.backends:
        fix += ", or remove it, name an image of another machine that has it and torch in container.base, and build "
        fix += "with --backend layers"
    return fix


def can_compile(site: Site, *, backend: BackendName) -> bool:
    """Whether a backend can compile a package against the torch that it installs; layers does it as root."""
    return not TRAITS[backend].one_call and (backend != "layers" or site.build.fakeroot != "no")


def format_page(row: VendorPackage, *, target: Target) -> str:
    """The address of a package's wheels for the torch that is installed, "" where the project has none for it."""
    torch = target.environment.torch
    asked = find_requested_family(target.recipe).get("torch")
    if torch is not None and asked is not None and not asked.allows(torch.version):
        return ""  # a refused recipe is checked with another torch
    if not row.page or torch is None or torch.provided or find_vendor(torch.token) not in ("nvidia", "cpu"):
        return ""
    return row.page.replace("{torch}", torch.version).replace("{build}", torch.token)


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
    own = next((f"{image.rocm}." for image in site.base_images if image.rocm), "")  # what needs no other image first
    served = [
        text
        for rocm, text in sorted(row.amd_rocm.items(), key=lambda item: not own.startswith(f"{item[0]}."))
        if site.vendor == "amd" and (not window or any(f"{one}.".startswith(f"{rocm}.") for one in window))
    ]
    served += [
        text
        for cuda, text in row.nvidia_cuda.items()
        if site.vendor == "nvidia" and serves_cuda(f"{cuda}.0", site=site)
    ]
    served = [_name_rocm_image(text, site=site) for text in served]
    text = getattr(row, site.vendor) if row.cpu_only != site.node.arch else None
    text = f"{row.name} of {text}" if text and text.startswith("PyPI") else text
    return [*served, *([text] if text else [])]


def _name_python(text: str, *, python: str | None) -> str:
    """Name the Python to write for an offer that does not have the environment's."""
    known = re.search(r"Python ([\d.]+) (?:to ([\d.]+)|or newer)", text)
    if known is None or python is None:
        return text
    if Version(python) < Version(known[1]):
        return text.replace(known[0], f"with python={known[1]}")
    return (
        text.replace(known[0], f"with python={known[2]}") if known[2] and Version(python) > Version(known[2]) else text
    )


def _name_rocm_image(text: str, *, site: Site) -> str:
    """Name the site's image with the ROCm of an offer, where its first one has another."""
    wanted = re.search(r"ROCm ([\d.]+) in the image", text)
    if wanted is None:
        return text
    has = [image for image in site.base_images if f"{image.rocm}.".startswith(f"{wanted[1]}.")]
    if has and has[0] is next((image for image in site.base_images if image.rocm), None):
        return text
    where = f"the base image {has[0].reference}" if has else f"a base image of your own, '{site.name}' names none"
    return text.replace(wanted[0], f"ROCm {wanted[1]}: {where}")


def find_rocm_of_cupy(line: PipRequirement) -> str:
    """The ROCm of AMD's own build of CuPy, of the releases that the table names, "" for others."""
    offers = {row.name: row.amd_rocm for row in load_package_table().packages if row.name == "cupy"}.get("cupy", {})
    named = (rocm for rocm, text in offers.items() if text.split()[0] == line.text.partition(" ")[0])
    return next(named, "") if line.name == "amd-cupy" else ""


def name_cuda_image(site: Site) -> str:
    """Name the site's first image with CUDA and its compiler, in brackets; "" if its file has none."""
    found = (image for image in site.base_images if image.family == "ngc-pytorch" or _has_toolkit(image))
    return next((f" ({image.reference})" for image in found if is_served(image, site=site, sure=False)), "")


def _has_toolkit(image: BaseImage) -> bool:
    return bool(image.cuda) and bool(re.search(r"nvcr\.io/nvidia/pytorch:|/cuda:.*-devel", image.reference))
