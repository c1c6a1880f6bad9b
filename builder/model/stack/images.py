"""Images that bring a torch of their own: what each tag holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from builder.model.site import Source
from builder.model.stack.table import load


@dataclass(frozen=True, kw_only=True)
class NgcImage:
    """One tag of nvcr.io/nvidia/pytorch; its torch is a pre-release such as 2.3.0a0+40ec155e58.nv24.03."""

    source: tuple[str, ...]
    tag: str
    torch: str
    cuda: str
    python: str
    ubuntu: str
    cuda_driver: str | None  # of that CUDA release; the least that works is lower, see CudaMajor
    constraint_file: bool  # the image protects its packages from pip by /etc/pip/constraint.txt
    older_drivers: tuple[str, ...] = ()  # branches that NVIDIA lists as served through the compat libraries
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class IpexImage:
    """One release of intel/intel-extension-for-pytorch and the images (`tags`) that hold it."""

    source: tuple[str, ...]
    ipex: str
    tags: tuple[str, ...]
    torch: str
    torchvision: str | None
    torchaudio: str | None
    python: str  # of the image
    wheel_pythons: tuple[str, ...] | None
    oneapi: str
    icd: str  # user-space GPU driver in the image
    level_zero: str | None
    oneccl: str | None = None  # oneccl_bind_pt
    note: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SiteImage:
    """An image on a site's own disk; in `where`, <date> and * stand for what changes with each build."""

    source: tuple[str, ...]
    site: str
    family: str
    rocm: str
    where: str
    torch: str = ""  # "": none in it, or as the variant says
    python: str | None = None
    ubuntu: str | None = None
    recommended: bool = False


@dataclass(frozen=True, kw_only=True)
class ImageTable:
    """`images.yaml`."""

    sources: Mapping[str, Source]
    ngc_pytorch: tuple[NgcImage, ...]
    intel_ipex: tuple[IpexImage, ...]
    site_images: tuple[SiteImage, ...]


@cache
def image_table() -> ImageTable:
    """Everything of `images.yaml`, tags ascending; raises ConfigError when the file is faulty."""
    return load("images.yaml", ImageTable)
