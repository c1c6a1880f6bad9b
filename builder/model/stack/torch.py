"""Releases of torch: their companions, interpreters, builds and the architectures in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from builder.model.site import Source, Vendor
from builder.model.stack.table import load


@dataclass(frozen=True, kw_only=True)
class TorchRelease:
    """One release of torch; a token (cu126, rocm6.4) names an index and is the local version of its wheels."""

    source: tuple[str, ...]
    torch: str
    torchvision: str
    torchaudio: str  # "": there is no release for this torch
    pythons: tuple[str, ...]  # X.Y that torch, torchvision and torchaudio all have wheels for
    cuda: tuple[str, ...] | None  # tokens; None: not known
    rocm: tuple[str, ...] | None  # tokens; None: not known
    xpu: bool | None
    cpu: bool
    pypi_cuda: str  # CUDA runtime of the wheel on PyPI, Linux x86_64
    glibc: str  # the newest that any wheel of the release needs
    triton: str  # what the CUDA wheel requires: a version, or a specifier with its operator
    triton_rocm: str = ""  # requirement of the ROCm wheel, where it was read
    triton_xpu: str = ""  # requirement of the XPU wheel, where it was read
    freethreaded: tuple[str, ...] = ()
    note: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TritonName:
    """The name of Triton for a vendor; the bounds are releases of torch, inclusive, empty where there is none."""

    source: tuple[str, ...]
    vendor: Vendor
    package: str
    torch_min: str = ""
    torch_max: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TorchTargets:
    """The gfx targets compiled into the ROCm wheels of torch X.Y."""

    source: tuple[str, ...]
    torch: str
    gfx: tuple[str, ...]
    gfx_from_rocm6: tuple[str, ...] = ()  # only in the wheels for ROCm 6 and newer
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NameList:
    """Names of packages that have one thing in common."""

    source: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TorchTable:
    """`torch.yaml`."""

    sources: Mapping[str, Source]
    index: str  # holds {token}
    tokens: tuple[str, ...]
    releases: tuple[TorchRelease, ...]
    triton: tuple[TritonName, ...]
    gfx: tuple[TorchTargets, ...]
    indexed: NameList  # packages that the index serves
    gpu_dependent: NameList  # packages whose one name hides different GPU builds


@cache
def torch_table() -> TorchTable:
    """Everything of `torch.yaml`, releases ascending; raises ConfigError when the file is faulty."""
    return load("torch.yaml", TorchTable)
