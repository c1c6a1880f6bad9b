"""Drivers: the CUDA toolkits and ROCm user spaces that each serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from builder.model.site import Source
from builder.model.stack.table import load


@dataclass(frozen=True, kw_only=True)
class CudaMajor:
    """Minor-version compatibility: any toolkit of a major runs on any driver of at least `min_driver`."""

    source: tuple[str, ...]
    major: int
    min_driver: str
    native_until: str | None = None  # first driver branch that is native to the next major


@dataclass(frozen=True, kw_only=True)
class CudaToolkit:
    """The driver that came with a CUDA release: from it on nothing of that toolkit is missing."""

    source: tuple[str, ...]
    cuda: str
    driver: str
    note: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RocmWindow:
    """The ROCm user spaces (X.Y) that a kernel driver serves; the driver counts 30.x from ROCm 7 on."""

    source: tuple[str, ...]
    kmd: str
    user_space: tuple[str, ...]
    note: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RocmUserSpace:
    """The kernel drivers that serve one ROCm release, as its own documents list them."""

    source: tuple[str, ...]
    rocm: str
    kmd: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AmdgpuVersion:
    """The version in /sys/module/amdgpu/version and the ROCm release that brought it."""

    source: tuple[str, ...]
    amdgpu: str
    rocm: str


@dataclass(frozen=True, kw_only=True)
class SiteDriver:
    """What a site's GPU nodes ran from `since` to `until` (dates as far as known)."""

    source: tuple[str, ...]
    site: str
    kmd: str
    since: str = ""
    until: str = ""
    amdgpu: str = ""
    user_space: tuple[str, ...] = ()
    note: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DriverTable:
    """`drivers.yaml`."""

    sources: Mapping[str, Source]
    cuda_majors: tuple[CudaMajor, ...]
    cuda_toolkits: tuple[CudaToolkit, ...]
    rocm_windows: tuple[RocmWindow, ...]
    rocm_user_spaces: tuple[RocmUserSpace, ...]
    amdgpu_versions: tuple[AmdgpuVersion, ...]
    site_drivers: tuple[SiteDriver, ...]


@cache
def driver_table() -> DriverTable:
    """Everything of `drivers.yaml`, drivers ascending; raises ConfigError when the file is faulty."""
    return load("drivers.yaml", DriverTable)
