"""Change the GPU driver of a site, after an update or as read on a node; the GPU as the audit of packages needs it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import Version

from builder.model.finding import ConfigError, Finding
from builder.model.site import Gpu, Site
from builder.parse.driver_tables import load_driver_table
from builder.parse.site_rules import is_driver

if TYPE_CHECKING:
    from builder.audit.judged_machine import Machine


OLDEST_DRIVER = 100  # the first number of NVIDIA's drivers is larger, that of a CUDA is not


def apply_driver(site: Site, driver: str) -> Site:
    """Return the site with a driver and the values that depend on it; raises ConfigError if it is unknown.

    With "" the site's own driver is used, and values missing in its file are read from the tables.

    AMD: a kernel driver of the ROCm tables (6.3, 30.10), or the version of the amdgpu module (6.10.5). NVIDIA: a driver
    version (535.86.10). Intel: recorded only, because no table lists what a driver serves.
    """
    gpu = site.gpu
    if gpu is None:
        if driver:
            message = f"the site '{site.name}' has no GPU: it has no driver"
            raise ConfigError(Finding(code="driver", message=message, fix="remove --driver"))
        return site
    if driver and gpu.other_driver:  # read on a node: the two readings have been decided between
        gpu = replace(gpu, other_driver=None, other_driver_checked=None, unsure=())
        site = replace(site, gpu=gpu)
    if driver in ("", gpu.driver):
        missing = (gpu.vendor == "amd" and not gpu.rocm) or (gpu.vendor == "nvidia" and gpu.cuda_native is None)
        return replace(site, gpu=_follow(gpu, gpu.driver)) if missing and gpu.driver else site
    return replace(site, gpu=replace(_follow(gpu, driver), driver_checked=None, rocm_disputed=(), unsure=()))


def apply_compat(site: Site, *, cuda: str) -> Site:
    """Return the site with the driver that came with a CUDA, whose user-space part an image brings along."""
    release = ".".join(cuda.split(".")[:2])
    rows = [row for row in load_driver_table().cuda_toolkits if f"{row.cuda}.".startswith(f"{release}.")]
    least = min((row.driver for row in rows), key=Version, default="")
    return apply_driver(site, least) if least else site


def _follow(gpu: Gpu, driver: str) -> Gpu:
    if not is_driver(driver, vendor=gpu.vendor):
        message = f"'{driver}' is not a driver version"
        raise ConfigError(Finding(code="driver", message=message, fix="write it as the node prints it, e.g. 535.86.10"))
    change = {"amd": _amd, "nvidia": _nvidia}.get(gpu.vendor)
    return change(gpu, driver) if change else replace(gpu, driver=driver)


def _amd(gpu: Gpu, driver: str) -> Gpu:
    """Set the ROCm user spaces: the kernel driver limits them in both directions."""
    wanted = find_kernel_driver(driver)
    row = next((row for row in load_driver_table().rocm_windows if row.kmd == wanted), None)
    if row is None:
        known = ", ".join(row.kmd for row in load_driver_table().rocm_windows)
        message = f"no table says which ROCm the driver '{driver}' serves"
        raise ConfigError(Finding(code="driver", message=message, fix=f"known kernel drivers: {known}"))
    patch = Version(read_kernel_patch(driver))
    more = (user_space for user_space, first in row.patches.items() if patch >= Version(first))
    return replace(gpu, driver=driver, rocm=tuple(sorted({*row.user_space, *more}, key=Version)), rocm_safe=None)


def read_kernel_patch(driver: str) -> str:
    """Read the patch release of a kernel driver: 6.3.3 of 6.3.60303, 30.10.1 of itself; X.Y where none is certain."""
    kernel, module = find_kernel_driver(driver), driver.partition("-")[0]
    tail = module.removeprefix(f"{kernel}.") if module.startswith(f"{kernel}.") else ""
    if tail.isdigit() and len(tail) == 5:  # 60303 is ROCm 6.3.3
        return f"{kernel}.{int(tail[3:])}"
    return module if tail.isdigit() else kernel


def find_kernel_driver(driver: str) -> str:
    """Find the kernel driver of the ROCm tables (6.3, 30.10) for a version; "" if it is not certain.

    The amdgpu module has its own numbers: 6.3.6 came with ROCm 6.0. Only a long third part, as in 6.3.60300, repeats
    the number of ROCm.
    """
    table = load_driver_table()
    module = driver.partition("-")[0]
    seen = next((row.kmd for row in table.site_drivers if row.amdgpu.partition("-")[0] == module), "")
    came_with = next((row.rocm for row in table.amdgpu_versions if row.amdgpu == module), "")
    parts = module.split(".")
    ours = len(parts) == 2 or (len(parts) > 2 and (len(parts[2]) >= 5 or int(parts[0]) >= 30))
    return seen or ".".join((came_with or (module if ours else "")).split(".")[:2])


def list_doubts(gpu: Gpu) -> tuple[str, ...]:
    """List what is uncertain in the table rows about a driver; nothing if the site's file states it."""
    if gpu.driver is None or gpu.unsure:
        return ()
    try:
        followed = _follow(gpu, gpu.driver)
    except ConfigError:
        return ()
    table = load_driver_table()
    if gpu.vendor == "amd" and gpu.rocm == followed.rocm:
        module = gpu.driver.partition("-")[0]
        seen = next((row.unsure for row in table.site_drivers if row.amdgpu.partition("-")[0] == module), ())
        window = next(row.unsure for row in table.rocm_windows if row.kmd == find_kernel_driver(gpu.driver))
        return (
            *(f"which ROCm brought it: {text}" for text in seen),
            *(f"the ROCm it serves: {text}" for text in window),
        )
    if gpu.vendor == "nvidia" and gpu.cuda_native == followed.cuda_native:
        native = [row for row in table.cuda_toolkits if Version(row.driver) <= Version(gpu.driver)]
        same = [row for row in native if ".".join(row.cuda.split(".")[:2]) == gpu.cuda_native]
        if same and all("driver" in row.unsure for row in same):
            return (f"whether CUDA {gpu.cuda_native} came with it or later",)
    return ()


def _nvidia(gpu: Gpu, driver: str) -> Gpu:
    """Set the newest native toolkit: a driver is native to every toolkit released with it or before it."""
    _refuse_cuda(driver)
    native = [row.cuda for row in load_driver_table().cuda_toolkits if Version(row.driver) <= Version(driver)]
    newest = max(native, key=Version, default=None)
    return replace(gpu, driver=driver, cuda_native=".".join(newest.split(".")[:2]) if newest else None)


def _refuse_cuda(driver: str) -> None:
    """Raise ConfigError for a CUDA version: the drivers of NVIDIA have three digits before the first dot."""
    if int(driver.partition(".")[0]) >= OLDEST_DRIVER:
        return
    rows = [row for row in load_driver_table().cuda_toolkits if f"{row.cuda}.".startswith(f"{driver}.")]
    least = min((row.driver for row in rows), key=Version, default="")
    message = f"'{driver}' is a version of CUDA, and no driver"
    fix = f"CUDA {driver} came with the driver {least}: " if least else ""
    fix += "nvidia-smi prints the driver of a node as 'Driver Version'"
    raise ConfigError(Finding(code="driver", message=message, fix=fix))


def make_machine(site: Site) -> Machine:
    """What the audit has to know of a site; the driver of CUDA serves majors by minor-version compatibility."""
    from builder.audit.judged_machine import Machine

    glibc = next((image.glibc for image in site.base_images[:1] if image.glibc), "")
    plain = Machine(vendor=site.vendor, arch=site.node.arch, glibc=glibc, level=site.node.level or "")
    gpu = apply_driver(site, "").gpu
    if gpu is None:
        return plain
    return replace(plain, targets=(gpu.target,), majors=_list_majors(gpu), cuda=gpu.cuda_native or "")


def _list_majors(gpu: Gpu) -> tuple[int, ...]:
    """Majors of CUDA or ROCm that the driver serves, none where that is not known."""
    if gpu.vendor == "amd":
        return tuple(sorted({Version(version).major for version in (*gpu.rocm, *gpu.rocm_disputed)}))
    if gpu.vendor == "nvidia" and gpu.driver:
        driver = max(map(Version, filter(None, (gpu.driver, gpu.other_driver))))
        return tuple(sorted(row.major for row in load_driver_table().cuda_majors if Version(row.min_driver) <= driver))
    return ()
