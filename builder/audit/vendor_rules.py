"""The vendors' own rules: which device code runs on which GPU, and which version of a stack a library is of.

The numbers are those of the libraries' own SONAMEs. NVIDIA: the files of the wheels nvidia-*-cu11, -cu12 and those
of CUDA 13 (13.5.37), looked at 2026-11-23; libcufft, libcusolver, libcusparse, libcurand and libcudnn count on their
own and say no CUDA version. AMD: ROCm's install folders, rocm.docs.amd.com, "compatibility matrix" (components), and
bitsandbytes 0.49.0, which is built for ROCm 6.2 to 7.1 by name: libamdhip64.so.6 and libhipblas.so.2 are ROCm 6,
libamdhip64.so.7 and libhipblas.so.3 are ROCm 7. Intel: libsycl.so.7 is oneAPI 2024, .8 is 2025, .9 is 2026.
libOpenCL.so.1 says no vendor: each has a driver for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from .content import CHUNK, Content
from .device_code import Code, Vendor
from .elf import parse_version

SM = re.compile(r"(?:sm|compute)_(\d{2,3})([af]?)")
# Integrated GPUs (Tegra, Jetson, Drive): 5.3, 6.2, 7.2, 8.7, 10.1 (11.0 since CUDA 13).
TEGRA = frozenset({53, 62, 72, 87, 101, 110})
# "Family-specific architecture": what runs the code of each, by compute capability.
FAMILIES: Mapping[int, frozenset[int]] = {
    100: frozenset({100, 103}), 101: frozenset({101}), 103: frozenset({103}), 110: frozenset({110, 101}),
    120: frozenset({120, 121}), 121: frozenset({121}),
}  # fmt: skip
GENERIC: Mapping[str, frozenset[str]] = {
    "gfx9-generic": frozenset({"gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"}),
    "gfx9-4-generic": frozenset({"gfx940", "gfx941", "gfx942", "gfx950"}),
    "gfx10-1-generic": frozenset({"gfx1010", "gfx1011", "gfx1012", "gfx1013"}),
    "gfx10-3-generic": frozenset({"gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"}),
    "gfx11-generic": frozenset({
        "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153",
    }),
    "gfx12-generic": frozenset({"gfx1200", "gfx1201"}),
    "gfx12-5-generic": frozenset({"gfx1250", "gfx1251"}),
}  # fmt: skip
# Version of PTX -> the first CUDA that has it: PTX ISA 9.0, "Release Notes", table "PTX Release History".
PTX_OF_CUDA: Mapping[str, str] = {
    "10.0": "6.3", "10.1": "6.4", "10.2": "6.5", "11.0": "7.0", "11.1": "7.1", "11.2": "7.2", "11.3": "7.3",
    "11.4": "7.4", "11.5": "7.5", "11.6": "7.6", "11.7": "7.7", "11.8": "7.8", "12.0": "8.0", "12.1": "8.1",
    "12.2": "8.2", "12.3": "8.3", "12.4": "8.4", "12.5": "8.5", "12.6": "8.5", "12.7": "8.6", "12.8": "8.7",
    "12.9": "8.8", "13.0": "9.0", "13.1": "9.1",
}  # fmt: skip
# Versions of Intel's devices, major.minor: PRODUCT_CONFIG in intel/compute-runtime, platforms.h.
INTEL: Mapping[str, str] = {
    "pvc": "12.60", "ats-m": "12.55", "dg2": "12.55", "mtl": "12.70", "arl": "12.74", "bmg": "20.1", "lnl": "20.4",
    "ptl": "30.0",
}  # fmt: skip


def find_newest_ptx(cuda: str) -> str:
    """The newest PTX that the driver of a CUDA toolkit compiles, "" where that is not known."""
    known = [
        (parse_version(version), ptx)
        for version, ptx in PTX_OF_CUDA.items()
        if parse_version(version) <= parse_version(cuda)
    ]
    return max(known)[1] if cuda and known else ""


def can_run(code: Code, devices: Iterable[str], *, ptx: str = "") -> bool:
    """Whether some of the devices (sm_90, gfx90a, pvc) runs a piece of code; `ptx` is the newest PTX of the driver."""
    if code.kind == "cubin":
        return any(can_run_cubin(code.target, device) for device in devices)
    if code.kind == "ptx":
        compiled = not ptx or not code.isa or parse_version(code.isa) <= parse_version(ptx)
        return compiled and any(can_compile_ptx(code.target, device) for device in devices)
    if code.kind == "hip":
        return any(can_run_hip(code.target, device) for device in devices)
    if code.kind == "sycl":
        return any(can_run_sycl(code.target, device) for device in devices)
    return any(not device.startswith(("sm_", "gfx")) for device in devices)


def can_run_cubin(target: str, device: str) -> bool:
    """Whether a GPU runs a cubin: the same major compute capability and the same or a higher minor one.

    Source: CUDA C++ Programming Guide 13.0, "Binary Compatibility" (not between integrated GPUs and others) and
    "Feature Set Compiler Targets": `a` runs on exactly that capability, `f` on the GPUs of its family.
    """
    return _serves(target, device, plain=_can_run_plain_cubin)


def can_compile_ptx(target: str, device: str) -> bool:
    """Whether the driver can make code for a GPU out of PTX: for any capability from the PTX's own one on.

    Source: CUDA C++ Programming Guide 13.0, "Just-in-Time Compilation" and "Feature Set Compiler Targets": PTX for
    `a` is compiled for exactly that capability, PTX for `f` for its family. That the driver knows the version of PTX
    is a condition of its own: "CUDA Compatibility", "Minor Version Compatibility", limitations.
    """
    return _serves(target, device, plain=lambda built, have: have >= built)


def _can_run_plain_cubin(built: int, have: int) -> bool:
    if built in TEGRA or have in TEGRA:
        return built == have
    return built // 10 == have // 10 and have >= built


def _serves(target: str, device: str, *, plain: Callable[[int, int], bool]) -> bool:
    """Compare capabilities: `a` and `f` alike for cubins and PTX, code without a letter by `plain`."""
    code, gpu = SM.fullmatch(target), SM.fullmatch(device)
    if code is None or gpu is None:
        return False
    built, have = int(code[1]), int(gpu[1])
    if code[2] == "a":
        return built == have
    if code[2] == "f":
        return have in FAMILIES.get(built, frozenset({built}))
    return plain(built, have)


def can_run_hip(target: str, device: str) -> bool:
    """Whether a GPU runs an AMD code object: the same processor, or a generic one that covers it; and its features.

    Source: LLVM's AMDGPUUsage, "Target ID": a feature that the code does not name fits any setting, one that it names
    must be the device's. "Generic processors" there, and GCC 15 "AMD GCN Options", list what a generic target covers.
    Where the device does not say it: xnack is off (HSA_XNACK=0 is the driver's default), sramecc is on.
    """
    name, *features = target.split(":")
    gpu, *settings = device.split(":")
    if name != gpu and gpu not in GENERIC.get(name, frozenset()):
        return False
    have = {"xnack": "-", "sramecc": "+"} | {word[:-1]: word[-1] for word in settings if word}
    return all(have.get(word[:-1], word[-1]) == word[-1] for word in features if word)


def can_run_sycl(target: str, device: str) -> bool:
    """Whether an Intel GPU runs an image that was compiled for named devices; one without a known name may fit any.

    Source: intel/compute-runtime, ocloc's option -device: versions of one major and minor are steppings of a device.
    """
    version = INTEL.get(device, "")
    return not version or not target[:1].isdigit() or parse_version(target)[:2] == parse_version(version)[:2]


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
