"""The table of GPU drivers: which CUDA and ROCm they serve, and which driver a site or a kernel module has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from builder.model.site import Source
from builder.parse.gpu_tables import load


@dataclass(frozen=True, kw_only=True, eq=False)
class CudaMajor:
    """Minor-version compatibility: any toolkit of a major runs on any driver of at least `min_driver`."""

    source: tuple[str, ...]
    major: int
    min_driver: str
    native_until: str | None = None  # first driver branch that is native to the next major


@dataclass(frozen=True, kw_only=True, eq=False)
class CudaToolkit:
    """The driver that came with a CUDA release: from it on the whole toolkit works."""

    source: tuple[str, ...]
    cuda: str
    driver: str
    note: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class RocmWindow:
    """The ROCm user spaces (X.Y) that a kernel driver supports; the driver counts 30.x from ROCm 7 on."""

    source: tuple[str, ...]
    kmd: str
    user_space: tuple[str, ...]
    patches: Mapping[str, str] = field(
        default_factory=dict
    )  # user space -> the first patch of the driver that serves it
    note: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class RocmUserSpace:
    """The kernel drivers that serve one ROCm release."""

    source: tuple[str, ...]
    rocm: str
    kmd: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class AmdgpuVersion:
    """The version in /sys/module/amdgpu/version and the ROCm release that brought it."""

    source: tuple[str, ...]
    amdgpu: str
    rocm: str


@dataclass(frozen=True, kw_only=True, eq=False)
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


@dataclass(frozen=True, kw_only=True, eq=False)
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
def load_driver_table() -> DriverTable:
    """Everything of `drivers.yaml`, drivers ascending; raises ConfigError when the file is faulty."""
    return load("drivers.yaml", DriverTable)
