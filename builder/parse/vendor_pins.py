"""Words by which a file is for the GPUs of one vendor, and what a recipe for every site has in their place."""

from __future__ import annotations

import re
from dataclasses import dataclass

FAMILY = ("torch", "torchvision", "torchaudio")
SITES_BASE = "the base image is the site's; `base:` or --base names another"
BUILD = re.compile(r"\+(?:cu\d+|rocm[\d.]+|xpu|cpu)(?:[\w.]*)", re.IGNORECASE)
# The indexes and the lists of wheels of one build: PyTorch's, and Intel's and AMD's of theirs.
VENDOR_INDEX = re.compile(
    r"https?://(?:download(?:-r2)?\.pytorch\.org/(?:whl|libtorch)|pytorch-extension\.intel\.com|repo\.radeon\.com"
    r"|(?:data\.pyg\.org|pytorch-geometric\.com)/whl/torch-[^/\s]*\+(?:cu|rocm)"
    r"|pypi\.(?:ngc\.)?nvidia\.com|pypi\.amd\.com|rocm\.\w+\.amd\.com)[^\s]*"
)
# Libraries of a vendor: they come with the torch of a site or are in its base image.
PIP_LIBRARIES = re.compile(
    r"(?:nvidia-[a-z0-9-]+|pytorch-triton(?:-rocm|-xpu)?|triton-(?:rocm|xpu)|intel-extension-for-pytorch"
    r"|oneccl-bind-pt|intel-cmplr-[a-z-]+)",
    re.IGNORECASE,
)
CONDA_LIBRARIES = re.compile(
    r"(?:pytorch-cuda|pytorch-mutex|cpuonly|cuda|cudatoolkit(?:-dev)?|cuda-[a-z0-9-]+|cudnn|nccl|libcu[a-z]+|libnv[a-z]+"
    r"|nvidia::.*)"
)
CONDA_TORCH = {"pytorch": "torch", "torchvision": "torchvision", "torchaudio": "torchaudio", "pytorch-gpu": "torch"}
VENDOR_CHANNELS = ("pytorch", "nvidia", "intel", "pytorch-nightly", "pytorch-lts")
SYSTEM_LIBRARIES = re.compile(
    r"(?:cuda|nvidia|libcud|libnccl|libnv|libcublas|libcusparse|libcusolver|libcufft|libcurand|tensorrt|libnpp|rocm"
    r"|hip|miopen|rccl|rocblas|intel-oneapi|intel-level-zero|level-zero|intel-opencl)[\w.+-]*"
)
PYTHON_PACKAGES = re.compile(
    r"python(?:3(?:\.(?P<minor>\d+))?)?(?:-(?:pip|dev|devel|venv|distutils|setuptools|wheel|virtualenv|minimal|full))?"
    r"|python-is-python3|py3-pip|python-?3?-?pip|pip|virtualenv"
)
# What only a build uses: to fetch and to unpack, to add a package source.
BUILD_TOOLS = (
    "apt-transport-https", "apt-utils", "bzip2", "ca-certificates", "curl", "dirmngr", "gnupg", "gnupg2", "gpg",
    "lsb-release", "software-properties-common", "unzip", "wget", "xz-utils", "zip",
)  # fmt: skip
# Images whose content is a GPU's software or nothing but a distribution, and the packages that they bring.
FRAMEWORKS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern), packages)
    for pattern, packages in (
        (r"(?:pytorch/pytorch|nvcr\.io/nvidia/pytorch|rocm/pytorch(?:-\w+)?|rocm/vllm.*)", FAMILY[:1]),
        (r"intel/(?:intel-extension-for-pytorch|intel-optimized-pytorch|pytorch|deep-learning.*)", FAMILY[:1]),
        (r"(?:amdih|amd)/pytorch.*|huggingface/transformers-(?:pytorch|all).*", FAMILY[:1]),
        (r"(?:tensorflow/tensorflow|nvcr\.io/nvidia/tensorflow|rocm/tensorflow.*)", ("tensorflow",)),
        (r"(?:nvcr\.io/nvidia/jax|rocm/jax.*)", ("jax",)),
    )
)
PLAIN = re.compile(
    r"(?:nvcr\.io/)?nvidia/(?:cuda|cudagl|opengl|cuda-dl-base|hpc-sdk|nvhpc).*|rocm/(?:dev-|rocm-terminal).*"
    r"|intel/(?:oneapi.*|hpckit.*|python.*|intel-gpu.*)"
    r"|(?:(?:library|amd64|arm64v8)/)?(?:ubuntu|debian|rockylinux|almalinux|centos|fedora|alpine|opensuse/\w+|python"
    r"|buildpack-deps|pypy|photon|scratch|busybox)|rockylinux/rockylinux|redhat/ubi\d.*|registry\.access\.redhat\.com/.*"
    r"|continuumio/(?:mini|ana)conda3?|(?:conda-forge|condaforge)/(?:mini|mamba)forge.*|mambaorg/micromamba"
    r"|(?:ghcr\.io/)?astral-sh/uv|quay\.io/centos/.*|mcr\.microsoft\.com/(?:vscode/)?devcontainers/.*"
)


@dataclass(frozen=True, kw_only=True)
class NeutralBase:
    """What a recipe has in the place of a base image: packages and a Python, or the image itself."""

    image: str = ""
    packages: tuple[str, ...] = ()
    python: str = ""


def read_base(image: str) -> NeutralBase:
    """Find out what a base image is for; `image` as a file names it."""
    scheme, separator, rest = image.rpartition("://")
    plain = (rest if separator else image).removeprefix("docker.io/").removeprefix("index.docker.io/")
    name, _, tag = plain.partition("@")[0].partition(":")
    name = name.removeprefix("library/").lower()
    if scheme not in ("", "docker"):
        return NeutralBase(image=image)
    for pattern, packages in FRAMEWORKS:
        if pattern.fullmatch(name):
            return NeutralBase(packages=packages)
    if PLAIN.fullmatch(name):
        version = re.match(r"3\.\d+", tag) if name == "python" else re.search(r"python(3\.\d+)", tag)
        found = version[version.re.groups] if version else ""
        return NeutralBase(python=found)
    return NeutralBase(image=f"docker://{plain}" if not separator else image)


def is_vendor_index(address: str) -> bool:
    """Whether an index has the wheels of one build, or of one vendor."""
    return VENDOR_INDEX.match(address) is not None


def open_requirement(text: str, *, by_index: bool) -> str | None:
    """Return a requirement without its vendor, None where nothing of it is left.

    `by_index`: its command named an index of one build.
    """
    name = re.split(r"[\s\[<>=!~;@+]", text.strip(), maxsplit=1)[0].lower().replace("_", "-")
    wheel = re.search(r"(?:^|/)(torch|torchvision|torchaudio)-[^/]*\.whl", text)
    if wheel:
        return wheel[1]
    if PIP_LIBRARIES.fullmatch(name):
        return None
    if name in FAMILY and (by_index or BUILD.search(text) or "dev" in text):
        return name
    return BUILD.sub("", text)
