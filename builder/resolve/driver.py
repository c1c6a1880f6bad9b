"""A site under another driver than its file says: after an update, or as read on a node."""

from __future__ import annotations

from dataclasses import replace

from packaging.version import InvalidVersion, Version

from builder.model.finding import ConfigError, Finding
from builder.model.site import Gpu, Site
from builder.model.stack import driver_table


def with_driver(site: Site, driver: str) -> Site:
    """Return the site with the driver and what follows from it; raises ConfigError for one the tables do not know.

    AMD: a kernel driver of the ROCm tables (6.3, 30.10), or the version of the amdgpu module (6.10.5).
    NVIDIA: a driver version (535.86.10). Intel: noted, since no table says what a driver serves.
    """
    if not driver:
        return site
    if site.gpu is None:
        message = f"the site '{site.name}' has no GPU: there is no driver to replace"
        raise ConfigError(Finding(code="driver", message=message, fix="leave out --driver"))
    try:
        Version(driver.partition("-")[0])
    except InvalidVersion:
        message = f"'{driver}' is no version of a driver"
        raise ConfigError(
            Finding(code="driver", message=message, fix="write it as the node says it, e.g. 535.86.10")
        ) from None
    change = {"amd": _amd, "nvidia": _nvidia}.get(site.gpu.vendor)
    gpu = change(site.gpu, driver) if change else replace(site.gpu, driver=driver)
    return replace(site, gpu=replace(gpu, driver_checked=None))


def _amd(gpu: Gpu, driver: str) -> Gpu:
    """ROCm's user spaces are bound to the kernel driver in both directions."""
    table = driver_table()
    module = driver.partition("-")[0]
    rocm = next((row.rocm for row in table.amdgpu_versions if row.amdgpu == module), "")
    wanted = ".".join((rocm or module).split(".")[:2])
    row = next((row for row in table.rocm_windows if row.kmd == wanted), None)
    if row is None:
        known = ", ".join(row.kmd for row in table.rocm_windows)
        message = f"no table says which ROCm the driver '{driver}' serves"
        raise ConfigError(Finding(code="driver", message=message, fix=f"known kernel drivers: {known}"))
    return replace(gpu, driver=driver, rocm=row.user_space, rocm_safe=None)


def _nvidia(gpu: Gpu, driver: str) -> Gpu:
    """A driver is native to every toolkit that came with it or before it."""
    native = [row.cuda for row in driver_table().cuda_toolkits if Version(row.driver) <= Version(driver)]
    newest = max(native, key=Version, default=None)
    return replace(gpu, driver=driver, cuda_native=".".join(newest.split(".")[:2]) if newest else None)
