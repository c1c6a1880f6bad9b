"""Tables of GPU facts: drivers, images, packages and torch releases.

In each row `source` names entries of the table's `sources`, which have their dates, and `unsure` the fields that were
seen second-hand or inferred. Versions are text, as the publishers write them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from builder.model.finding import ConfigError, Finding, Location
from builder.model.site import Source, Vendor
from builder.parse.decoder import Decoder
from builder.parse.yaml import parse_yaml, read_text

TABLES = Path(__file__).parents[1] / "data" / "gpu"

T = TypeVar("T")


def load(name: str, kind: type[T]) -> T:
    """Read one table; raises ConfigError with every fault of the file."""
    file = str(TABLES / name)
    tree = parse_yaml(read_text(TABLES / name, what="table of GPU facts"), file=file)
    if tree is None:
        fault = Finding(
            code="table-empty", message=f"the table '{name}' is empty", at=Location(file=file), fix="reinstall"
        )
        raise ConfigError(fault)
    decoder = Decoder(file=file)
    table = decoder.decode_table(tree, kind, key="")
    if table is None or decoder.findings:
        raise ConfigError(*decoder.findings)
    return table


@dataclass(frozen=True, kw_only=True)
class CudaMajor:
    """Minor-version compatibility: any toolkit of a major runs on any driver of at least `min_driver`."""

    source: tuple[str, ...]
    major: int
    min_driver: str
    native_until: str | None = None  # first driver branch that is native to the next major


@dataclass(frozen=True, kw_only=True)
class CudaToolkit:
    """The driver that came with a CUDA release: from it on the whole toolkit works."""

    source: tuple[str, ...]
    cuda: str
    driver: str
    note: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RocmWindow:
    """The ROCm user spaces (X.Y) that a kernel driver supports; the driver counts 30.x from ROCm 7 on."""

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
def load_driver_table() -> DriverTable:
    """Everything of `drivers.yaml`, drivers ascending; raises ConfigError when the file is faulty."""
    return load("drivers.yaml", DriverTable)


@dataclass(frozen=True, kw_only=True)
class NameList:
    """Names of packages or images that have one thing in common."""

    source: tuple[str, ...]
    names: tuple[str, ...]


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
    torch: str = ""  # "": none, or given by the variant
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
    without_compiler: NameList


@cache
def load_image_table() -> ImageTable:
    """Everything of `images.yaml`, tags ascending; raises ConfigError when the file is faulty."""
    return load("images.yaml", ImageTable)


@dataclass(frozen=True, kw_only=True)
class VendorPackage:
    """A package that exists in several GPU builds; the texts per vendor say where to get that vendor's build."""

    source: tuple[str, ...]
    name: str
    pypi: tuple[Vendor, ...]  # vendor of the PyPI file; empty: not a wheel, the build decides
    nvidia: str | None = None
    amd: str | None = None
    intel: str | None = None
    silent_loss: bool = False  # the wrong build installs and imports, and has no GPU
    tell: str = ""  # how to tell the builds apart
    needs: str = ""  # what must be there before it is installed
    tools: tuple[str, ...] = ()  # packages that its build takes from the environment, besides torch
    amd_rocm: Mapping[str, str] = field(default_factory=dict)  # ROCm (X or X.Y) -> what to get
    nvidia_cuda: Mapping[str, str] = field(default_factory=dict)  # CUDA major -> what to get
    plugins: Mapping[str, str] = field(default_factory=dict)  # vendor -> the package that adds its devices
    cpu: str = ""  # the package with the same module where there is no GPU
    compilers: Mapping[str, str] = field(default_factory=dict)  # vendor -> the compiler of its build
    usual_on_cpu: bool = False  # many use it without a GPU
    glibc: Mapping[str, str] = field(default_factory=dict)  # vendor -> the least that its wheel needs
    retired: str = ""  # date of its last maintenance
    instead: str = ""  # what takes its place
    shares: tuple[str, ...] = ()  # packages with the same module, of which one only may be installed
    pins: str = ""  # what it pins of torch
    minimum: Mapping[str, str] = field(default_factory=dict)  # vendor -> first release whose PyPI file was seen to do
    note: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class VendorMarker:
    """Names that work on one vendor's devices only: packages (shell patterns), or packages with an extra."""

    source: tuple[str, ...]
    pattern: str  # one or more, with spaces between them
    vendor: Vendor
    kind: Literal["pip", "conda"]
    extra: str = ""  # pattern[extra]; empty: the package itself
    build: str = ""  # conda: shell pattern of the build string; empty: any build


@dataclass(frozen=True, kw_only=True)
class NameSuffix:
    """What a package's name or local version says of its vendor; `certain`: no other vendor has what it names."""

    source: tuple[str, ...]
    words: str  # one of them is in every text that the pattern matches
    pattern: str  # of `re`; its group `cuda` is a CUDA release: 12, 121 or 12x
    vendor: Vendor
    certain: bool = False
    devices: str = ""  # what it is for, where no site has that; `vendor` means nothing then


@dataclass(frozen=True, kw_only=True)
class TorchPin:
    """The torch that releases of a package require: version -> specifier."""

    source: tuple[str, ...]
    package: str
    torch: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Counterpart:
    """The package that replaces another for a vendor; its module has the same name.

    `extra` is left out with it. Without `versions` and `renumbered` both packages have the same versions.
    """

    source: tuple[str, ...]
    name: str  # shell pattern
    vendor: Vendor
    becomes: str
    extra: str = ""  # shell pattern; empty: whatever extras there are
    gains: str = ""  # an extra of the counterpart
    versions: tuple[str, ...] = ()  # that both have
    renumbered: Mapping[str, str] = field(default_factory=dict)  # version -> the counterpart's
    rocm: str = ""  # what the image must bring, as far as it matters: 7, or 7.0
    cuda: str = ""  # what the driver must run
    pythons: tuple[str, ...] = ()  # X.Y that there are files for; empty: any
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PackageTable:
    """`packages.yaml`."""

    sources: Mapping[str, Source]
    packages: tuple[VendorPackage, ...]
    markers: tuple[VendorMarker, ...]
    endings: tuple[NameSuffix, ...]
    conda_nvidia: str  # words
    conda_nvidia_or_cpu: str  # words
    harmless: str  # words
    counterparts: tuple[Counterpart, ...]
    torch_pins: tuple[TorchPin, ...]


@cache
def load_package_table() -> PackageTable:
    """Everything of `packages.yaml`; raises ConfigError when the file is faulty."""
    return load("packages.yaml", PackageTable)


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
def load_torch_table() -> TorchTable:
    """Everything of `torch.yaml`, releases ascending; raises ConfigError when the file is faulty."""
    return load("torch.yaml", TorchTable)
