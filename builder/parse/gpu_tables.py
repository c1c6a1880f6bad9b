"""Tables of GPU facts: drivers, images, packages and torch releases.

In each row `source` names entries of the table's `sources`, which have their dates, and `unsure` the fields that were
seen second-hand or inferred. Versions are text, as the publishers write them. Rows are not compared: without a method
for it a class is made in half the time.
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
    tree = parse_yaml(read_text(TABLES / name, what="table of GPU facts"), file=file, bundled=True)
    if tree is None:
        at = Location(file=file)
        raise ConfigError(Finding(code="table-empty", message=f"the table '{name}' is empty", at=at, fix="reinstall"))
    decoder = Decoder(file=file)
    table = decoder.decode_table(tree, kind, key="")
    if table is None or decoder.findings:
        raise ConfigError(*decoder.findings)
    return table


@dataclass(frozen=True, kw_only=True, eq=False)
class NameList:
    """Names of packages or images that have one thing in common."""

    source: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
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


@dataclass(frozen=True, kw_only=True, eq=False)
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


@dataclass(frozen=True, kw_only=True, eq=False)
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


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageTable:
    """`images.yaml`."""

    sources: Mapping[str, Source]
    ngc_pytorch: tuple[NgcImage, ...]
    intel_ipex: tuple[IpexImage, ...]
    site_images: tuple[SiteImage, ...]
    without_compiler: NameList
    with_git: NameList


@cache
def load_image_table() -> ImageTable:
    """Everything of `images.yaml`, tags ascending; raises ConfigError when the file is faulty."""
    return load("images.yaml", ImageTable)


@dataclass(frozen=True, kw_only=True, eq=False)
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
    page: str = ""  # where its wheels for NVIDIA GPUs and CPUs are
    downloads: bool = False  # its build first looks for a wheel that fits
    users: tuple[str, ...] = ()  # packages that require it
    needs_gpu: bool = False  # its only file loads the libraries of a GPU
    usual_on_cpu: bool = False  # many use it without a GPU
    glibc: Mapping[str, str] = field(default_factory=dict)  # vendor -> the least that its wheel needs
    pythons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # vendor -> the only ones that have a wheel
    retired: str = ""  # date of its last maintenance
    instead: str = ""  # what takes its place
    shares: tuple[str, ...] = ()  # packages with the same module, of which one only may be installed
    pins: str = ""  # what it pins of torch
    aarch64: str = ""  # first release with a wheel for aarch64 on PyPI, or `none`; "": not read
    cpu_only: str = ""  # processor whose wheels on PyPI are built for CPUs, whatever the extra
    no_sdist: bool = False  # PyPI has no source file of it
    minimum: Mapping[str, str] = field(default_factory=dict)  # vendor -> first release whose PyPI file was seen to do
    note: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class VendorMarker:
    """Names that work on one vendor's devices only: packages (shell patterns), or packages with an extra."""

    source: tuple[str, ...]
    pattern: str  # one or more, with spaces between them
    vendor: Vendor
    kind: Literal["pip", "conda"]
    extra: str = ""  # pattern[extra]; empty: the package itself
    since: str = ""  # the release that first has the extra
    build: str = ""  # conda: shell pattern of the build string; empty: any build


@dataclass(frozen=True, kw_only=True, eq=False)
class NameSuffix:
    """What a package's name or local version says of its vendor; `certain`: no other vendor has what it names."""

    source: tuple[str, ...]
    words: str  # one of them is in every text that the pattern matches
    pattern: str  # of `re`; its group `cuda` is a CUDA release: 12, 121 or 12x
    vendor: Vendor
    certain: bool = False
    devices: str = ""  # what it is for, where no site has that; `vendor` means nothing then


@dataclass(frozen=True, kw_only=True, eq=False)
class FirstRelease:
    """A package whose releases from `since` on differ in a way that the list is for."""

    source: tuple[str, ...]
    package: str
    since: str
    vendor: Vendor = "cpu"
    host: str = ""  # in an index or a find-links address of the recipe that has them
    line: str = ""  # what a recipe writes
    default: str = ""  # what the default index has instead


@dataclass(frozen=True, kw_only=True, eq=False)
class TorchPin:
    """The torch that releases of a package require; `builds` on PyTorch's index: the releases of each, in one text."""

    source: tuple[str, ...]
    package: str
    torch: Mapping[str, str]
    builds: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
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
    libraries: str = ""  # the extra that brings the libraries of CUDA, for an image without them
    since: str = ""  # the first release that it has; older ones are not replaced
    pythons: tuple[str, ...] = ()  # X.Y that there are files for; empty: any
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MissingPlugin:
    """Releases between two others, whose extra requires what the default index does not have."""

    package: str
    extra: str
    after: str
    before: str
    source: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class PackageTable:
    """`packages.yaml`."""

    sources: Mapping[str, Source]
    packages: tuple[VendorPackage, ...]
    markers: tuple[VendorMarker, ...]
    endings: tuple[NameSuffix, ...]
    conda_nvidia: str  # words
    conda_nvidia_or_cpu: str  # words
    conda_usual_on_cpu: str  # words
    conda_torch: str  # words
    harmless: str  # words
    other_indexes: tuple[FirstRelease, ...]  # not on the default index
    newest_pythons: Mapping[
        str, Mapping[str, str]
    ]  # words -> {X.Y: the newest Python of the wheels up to that release}
    last_releases: Mapping[str, Mapping[str, str]]  # package -> {X.Y: the last release of a closed series}
    first_wheels: tuple[FirstRelease, ...]  # with a wheel for Linux
    missing_plugins: tuple[MissingPlugin, ...]
    empty_since: Mapping[str, str]  # package -> its first release that no pip can install
    cuda_before: Mapping[str, str]  # package -> its releases before this one load the libraries, without an extra
    cuda_loaders: Mapping[str, str]  # pattern, or name[extra] -> the extras that bring the libraries
    counterparts: tuple[Counterpart, ...]
    torch_pins: tuple[TorchPin, ...]


@cache
def load_package_table() -> PackageTable:
    """Everything of `packages.yaml`; raises ConfigError when the file is faulty."""
    return load("packages.yaml", PackageTable)


@dataclass(frozen=True, kw_only=True, eq=False)
class Aarch64Builds:
    """The builds of a release of torch for aarch64."""

    cuda: tuple[str, ...] | None  # tokens; None: not known
    cpu: bool
    plain: bool = False  # torchvision and torchaudio have no local version and are built for CPUs
    pypi_cuda: str = ""  # CUDA runtime of the wheel on PyPI; "": it is built for CPUs


@dataclass(frozen=True, kw_only=True, eq=False)
class TorchRelease:
    """One release of torch for x86-64, and its builds for aarch64.

    A token (cu126, rocm6.4) names an index and is the local version of its wheels.
    """

    source: tuple[str, ...]
    torch: str
    torchvision: str
    torchaudio: str
    pythons: tuple[str, ...]  # X.Y that torch, torchvision and torchaudio all have wheels for
    cuda: tuple[str, ...] | None  # tokens; None: not known
    rocm: tuple[str, ...] | None  # tokens; None: not known
    xpu: bool | None
    cpu: bool
    pypi_cuda: str  # CUDA runtime of the wheel on PyPI
    glibc: str  # the newest that any wheel of the release needs
    triton: str  # what the CUDA wheel requires: a version, or a specifier with its operator
    triton_rocm: str = ""  # requirement of the ROCm wheel, where it was read
    triton_xpu: str = ""  # requirement of the XPU wheel, where it was read
    freethreaded: tuple[str, ...] = ()
    aarch64: Aarch64Builds | None = None  # None: no build for it is known
    unannounced: tuple[str, ...] = ()  # tokens, last among those that fit
    also: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # companion -> other versions that fit it
    conda: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # companion -> conda's numbers of the release
    note: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class TritonName:
    """The name of Triton for a vendor; the bounds are releases of torch, inclusive, empty where there is none."""

    source: tuple[str, ...]
    vendor: Vendor
    package: str
    torch_min: str = ""
    torch_max: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class TorchTargets:
    """The gfx targets compiled into the ROCm wheels of torch X.Y."""

    source: tuple[str, ...]
    torch: str
    gfx: str  # words
    gfx_from_rocm6: str = ""  # only in the wheels for ROCm 6 and newer
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class CudaTargets:
    """The sm targets compiled into a CUDA build of torch; the bounds are releases, inclusive."""

    source: tuple[str, ...]
    build: str
    sm: str  # words
    torch_min: str = ""
    torch_max: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class TorchTable:
    """`torch.yaml`."""

    sources: Mapping[str, Source]
    index: str  # holds {token}
    tokens: tuple[str, ...]
    releases: tuple[TorchRelease, ...]
    triton: tuple[TritonName, ...]
    sm: tuple[CudaTargets, ...]
    gfx: tuple[TorchTargets, ...]
    indexed: NameList  # packages that the index serves
    gpu_dependent: NameList  # packages whose one name hides different GPU builds


@cache
def load_torch_table() -> TorchTable:
    """Everything of `torch.yaml`, releases ascending; raises ConfigError when the file is faulty."""
    return load("torch.yaml", TorchTable)
