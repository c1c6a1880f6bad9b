"""Libraries of the GPU vendors by their names, and which version of the vendor's stack each one belongs to.

The numbers are those of the libraries' own SONAMEs. NVIDIA: the files of the wheels nvidia-*-cu11, -cu12 and those
of CUDA 13 (13.5.37), looked at 2026-11-23; libcufft, libcusolver, libcusparse, libcurand and libcudnn count on their
own and say no CUDA version. AMD: ROCm's install folders, rocm.docs.amd.com, "compatibility matrix" (components), and
bitsandbytes 0.49.0, which is built for ROCm 6.2 to 7.1 by name: libamdhip64.so.6 and libhipblas.so.2 are ROCm 6,
libamdhip64.so.7 and libhipblas.so.3 are ROCm 7. Intel: libsycl.so.7 is oneAPI 2024, .8 is 2025, .9 is 2026.
libOpenCL.so.1 says no vendor: each has a driver for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .content import CHUNK, Content
from .device_code import Vendor

# Whose driver brings the library: it is not in an image, and has no version of the stack.
DRIVERS: Mapping[Vendor, frozenset[str]] = {
    "nvidia": frozenset({
        "cuda", "nvidia-ml", "nvidia-ptxjitcompiler", "nvidia-nvvm", "nvcuvid", "nvidia-encode", "nvidia-opticalflow",
        "nvoptix", "cudadebugger", "nvidia-fbc",
    }),
    "amd": frozenset(),
    "intel": frozenset(),
}  # fmt: skip
# Libraries whose own number is that of the stack.
STACK: Mapping[Vendor, frozenset[str]] = {
    "nvidia": frozenset({
        "cudart", "cublas", "cublasLt", "nvrtc", "nvrtc-builtins", "nvJitLink", "cupti", "nppc", "nppial", "nppicc",
        "nppidei", "nppif", "nppig", "nppim", "nppist", "nppitc", "npps",
    }),
    "amd": frozenset({"amdhip64", "hiprtc"}),
    "intel": frozenset(),
}  # fmt: skip
# Libraries whose number is that of a major of the stack; of oneAPI the last two digits of the year.
NUMBERED: Mapping[str, Mapping[int, int]] = {"hipblas": {1: 5, 2: 6, 3: 7}, "sycl": {6: 23, 7: 24, 8: 25, 9: 26}}
# All other libraries of a vendor: they say whose they are, and no version of the stack.
OTHERS: Mapping[Vendor, re.Pattern[str]] = {
    "nvidia": re.compile(
        r"cudnn(?:_\w+)?|cufftw?|curand|cusolver(?:Mg)?|cusparse(?:Lt)?|nccl|cufile|nvshmem_host|nvinfer(?:_\w+)?"
        r"|nvonnxparser|nvToolsExt|nvjpeg|cutensor(?:Mg)?|nvfatbin|cudss|custatevec|cutensornet"
    ),
    "amd": re.compile(
        r"hip(?:blas|blaslt|fft|rand|sparse|solver|sparselt|tensor)|roc(?:blas|fft|rand|sparse|solver)|MIOpen|rccl"
        r"|hsa-runtime64|amd_comgr|roctx64|roctracer64|rocprofiler-\w+(?:-\w+)*|rocm_smi64|amd_smi|rocm-core|migraphx\w*"
    ),
    "intel": re.compile(
        r"sycl|ze_loader|ze_intel_gpu|ur_loader|pi_level_zero|mkl_sycl(?:_\w+)?|onemkl_\w+|intel-ext-pt-gpu"
    ),
}
# auditwheel puts a digest behind the name of what it copies in: libcudart-d0da41ae.so.11.0.
FORM = re.compile(r"lib([A-Za-z][A-Za-z0-9_+-]*?)(?:-[0-9a-f]{8})?\.so((?:\.\d{1,9}){0,4})")
OPENED = re.compile(rb"(?<![A-Za-z0-9_-])lib([A-Za-z][A-Za-z0-9_-]{1,40})\.so((?:\.\d{1,4}){0,3})\0")
MOST_OPENED = 100
SEARCHED = 256 << 20  # bytes of .rodata


@dataclass(frozen=True, kw_only=True)
class RuntimeLibrary:
    """A library of a vendor: the major version of the vendor's stack, None where the name does not say it."""

    name: str
    vendor: Vendor
    major: int | None = None
    driver: bool = False


def find_runtime(soname: str) -> RuntimeLibrary | None:
    """The runtime with this file name, None for any other library."""
    match = FORM.fullmatch(soname)
    if match is None:
        return None
    return _find_known(match[1], match[2], soname)


def _find_known(stem: str, number: str, soname: str) -> RuntimeLibrary | None:
    first = int(number.split(".")[1]) if number else None
    for vendor, others in OTHERS.items():
        if stem in DRIVERS[vendor]:
            return RuntimeLibrary(name=soname, vendor=vendor, driver=True)
        if stem in STACK[vendor]:
            return RuntimeLibrary(name=soname, vendor=vendor, major=first)
        if others.fullmatch(stem):
            return RuntimeLibrary(name=soname, vendor=vendor, major=NUMBERED.get(stem, {}).get(first or 0))
    return None


def find_opened_names(content: Content, *, offset: int, size: int) -> Iterator[str]:
    """Names of GPU runtimes among the texts of a file: what it may open when it runs; raises OSError."""
    seen: set[bytes] = set()
    place, end = offset, offset + min(size, SEARCHED)
    overlap = 64
    while place < end and len(seen) < MOST_OPENED:
        data = content.read(place, min(CHUNK + overlap, end - place))
        if not data:
            return
        for match in OPENED.finditer(data):
            name = match[0][:-1]
            if name not in seen and _find_known(match[1].decode(), match[2].decode(), name.decode()):
                seen.add(name)
                yield name.decode()
        place += CHUNK
