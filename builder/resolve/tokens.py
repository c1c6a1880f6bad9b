"""The tokens of torch's builds (cu126, rocm6.4, xpu, cpu): what they name, and which of them a release has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from packaging.version import Version

from builder.model.site import Site
from builder.parse.driver_tables import load_driver_table
from builder.parse.gpu_tables import TorchRelease

VENDORS = {"cu": "nvidia", "rocm": "amd", "xpu": "intel", "cpu": "cpu"}


def find_vendor(token: str) -> str:
    """Return the vendor of a build token, "" if it is not a token."""
    return next((vendor for prefix, vendor in VENDORS.items() if token.startswith(prefix)), "")


def parse_rocm(token: str) -> str:
    """Parse X.Y of a ROCm token: rocm6.2.4 is 6.2."""
    return ".".join(token.removeprefix("rocm").split(".")[:2])


def parse_cuda(token: str) -> str:
    """Parse X.Y of a CUDA token: cu126 is 12.6."""
    digits = token.removeprefix("cu")
    return f"{digits[:-1]}.{digits[-1]}"


def list_all_tokens(row: TorchRelease, *, arch: str) -> tuple[str, ...]:
    """List every build of a release for a processor; there are none for AMD and Intel GPUs on aarch64."""
    if arch == "x86_64":
        more = (*(("xpu",) if row.xpu else ()), *(("cpu",) if row.cpu else ()))
        return (*(row.cuda or ()), *(row.rocm or ()), *more)
    arm = row.aarch64
    return (*(arm.cuda or ()), *(("cpu",) if arm.cpu else ())) if arm else ()


def has_trouble(token: str, *, site: Site) -> bool:
    """Whether a ROCm build is newer than the newest without known trouble at the site."""
    safe = site.gpu.rocm_safe if site.gpu else None
    return bool(safe) and token.startswith("rocm") and Version(parse_rocm(token)) > Version(safe or "0")


def list_tokens(row: TorchRelease, *, site: Site, sure: bool = True) -> tuple[str, ...]:
    """List the builds of a release that the site's driver serves, best first.

    Without `sure` those that only one of two sources says it serves come last.
    """
    if not sure:
        certain = list_tokens(row, site=site)
        possible = _list_possible_tokens(row, site=site)
        return (*certain, *(token for token in possible if token not in certain))
    builds = list_all_tokens(row, arch=site.node.arch)
    if site.gpu is None:
        return ("cpu",) if "cpu" in builds else ()
    if site.gpu.vendor == "intel":
        return ("xpu",) if "xpu" in builds else ()
    if site.gpu.vendor == "amd":
        return _rocm_tokens(builds, site=site)
    return _cuda_tokens(builds, site=site, last=row.unannounced)


def _list_possible_tokens(row: TorchRelease, *, site: Site) -> tuple[str, ...]:
    if site.gpu is None or not (site.gpu.other_driver or site.gpu.rocm_disputed):
        return ()
    builds = list_all_tokens(row, arch=site.node.arch)
    if site.gpu.vendor == "amd":
        wider = replace(site.gpu, rocm=(*site.gpu.rocm, *site.gpu.rocm_disputed))
        return _rocm_tokens(builds, site=replace(site, gpu=wider))
    cuda = (token for token in builds if find_vendor(token) == "nvidia")
    return tuple(token for token in cuda if serves_cuda(parse_cuda(token), site=site, sure=False))


def _rocm_tokens(builds: Iterable[str], *, site: Site) -> tuple[str, ...]:
    """Sort the builds within the driver's window: the newest without known trouble first."""
    assert site.gpu is not None
    rocm = (token for token in builds if find_vendor(token) == "amd")
    fitting = [token for token in rocm if not site.gpu.rocm or parse_rocm(token) in site.gpu.rocm]
    known = site.gpu.driver is not None  # else the oldest first, which needs the least of the driver
    newest_first = sorted(fitting, key=lambda token: Version(token.removeprefix("rocm")), reverse=known)
    return tuple(sorted(newest_first, key=lambda token: has_trouble(token, site=site)))


def serves_cuda(cuda: str, *, site: Site, sure: bool = True) -> bool:
    """Whether the site's driver runs programs of a CUDA toolkit; minor-version compatibility counts.

    Where two sources name two drivers: whether both do, or without `sure` one of them.
    """
    if site.gpu is None or site.gpu.driver is None:
        return True
    major = int(cuda.split(".")[0])
    row = next((row for row in load_driver_table().cuda_majors if row.major == major), None)
    if row is None:
        return False
    drivers = filter(None, (site.gpu.driver, site.gpu.other_driver))
    return (all if sure else any)(Version(row.min_driver) <= Version(driver) for driver in drivers)


def _cuda_tokens(builds: Iterable[str], *, site: Site, last: Sequence[str]) -> tuple[str, ...]:
    """Sort the builds: native toolkits first (they have every feature), then the newest that the driver runs.

    Where the driver is unknown, the oldest toolkit first: it needs the least of it.
    """
    assert site.gpu is not None
    cuda = (token for token in builds if find_vendor(token) == "nvidia")
    fitting = [token for token in cuda if serves_cuda(parse_cuda(token), site=site)]
    newest_first = sorted(fitting, key=lambda token: Version(parse_cuda(token)), reverse=True)
    if site.gpu.cuda_native is None and not site.gpu.driver:
        return tuple(reversed(newest_first))
    native = Version(site.gpu.cuda_native or "999")
    return tuple(sorted(newest_first, key=lambda token: (token in last, Version(parse_cuda(token)) > native)))
