"""What this machine has: the devices, and the libraries that this process has loaded."""

from __future__ import annotations

import gc
import os
import re
import socket
import subprocess
import sys
import warnings
from typing import Any, Dict, List, Optional, Tuple

from .options import RunError

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


def load_torch(*, collect: bool = False) -> Any:
    """Import torch; raises RunError if that fails for any reason. With ``collect`` as any program imports it."""
    # torch makes this folder when DistributedDataParallel is imported (2.13). Nothing is compiled here, so an existing
    # folder is enough, also in a read-only image and for a user without a name
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.dirname(os.path.abspath(__file__)))
    # on shared cores, busy-waiting threads would slow down those that work
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.filterwarnings("ignore", message=".*Failed to initialize NumPy")  # nothing here uses numpy
    # nothing of it is garbage, and searching it takes a quarter of what a rank needs to start
    if not collect:
        gc.disable()
    try:
        import torch
    except Exception as fault:
        lines = str(fault).strip().splitlines() or [type(fault).__name__]
        raise RunError(f"torch cannot be imported: {lines[0]}") from None
    finally:
        if not collect:
            gc.freeze()
            gc.enable()
    return torch


def describe_torch(torch: Any) -> Dict[str, Any]:
    """Return the versions torch was built with, and the GPU architectures it has kernels for."""
    accelerator = _module(torch, "xpu") if getattr(torch.version, "xpu", None) else torch.cuda
    listed = getattr(accelerator, "get_arch_list", None)
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "xpu": getattr(torch.version, "xpu", None),
        "architectures": [str(name) for name in _call_quietly(listed) or []],
    }


def choose_device(torch: Any, wanted: str, local_rank: int = 0) -> Tuple[str, int]:
    """Choose the device type and this rank's device; raises RunError if ``wanted`` is not available.

    A rank that sees exactly one GPU got it from the launcher (Slurm's --gpus-per-task, ROCR_VISIBLE_DEVICES).
    """
    for kind in ("cuda", "xpu"):
        if wanted in ("auto", kind):
            count = count_devices(torch, kind)
            if count:
                return kind, local_rank % count
    if wanted not in ("auto", "cpu"):
        built = describe_torch(torch)
        builds = ", ".join(f"{name} {built[name]}" for name in ("cuda", "hip", "xpu") if built[name]) or "the CPU only"
        raise RunError(f'no "{wanted}" device: torch {built["version"]} is built for {builds} and sees none')
    return "cpu", 0


def count_devices(torch: Any, kind: str) -> int:
    """Count the devices of this type that torch sees."""
    module = _module(torch, kind)
    if module is None or not _call_quietly(module.is_available):
        return 0
    return int(_call_quietly(module.device_count) or 0)


def describe_device(torch: Any, kind: str, index: int) -> Dict[str, Any]:
    """Return name and count of the device, and an identity that is unique on its host."""
    if kind == "cpu":
        return {"type": "cpu", "index": 0, "count": _cores(), "name": "cpu", "identity": None, "architecture": None}
    properties = _module(torch, kind).get_device_properties(index)
    return {
        "type": kind,
        "index": index,
        "count": count_devices(torch, kind),
        "name": str(getattr(properties, "name", "unknown")),
        "architecture": _architecture(properties),
        "memory": getattr(properties, "total_memory", None),
        "identity": _identity(properties, index),
        "visible": {name: os.environ[name] for name in _VISIBLE if name in os.environ},
    }


def select_device(torch: Any, kind: str, index: int) -> Any:
    """Select the process's current device and return it."""
    if kind == "cpu":
        return torch.device("cpu")
    _module(torch, kind).set_device(index)
    return torch.device(kind, index)


def synchronize(torch: Any, device: Any) -> None:
    """Wait for the device to finish its work."""
    if device.type != "cpu":
        _module(torch, device.type).synchronize(device)


def measure_free_memory(torch: Any, device: Any) -> float:
    """Measure the bytes free for this process on the device, or of the host in proportion to its cores."""
    if device.type == "cpu":
        return _measure_host_memory()
    module = _module(torch, device.type)
    asked = getattr(module, "mem_get_info", None)  # for xpu since torch 2.6, and not with every driver
    found = None if asked is None else _call_quietly(lambda: asked(device))
    if found is not None:
        return float(found[0])
    total = float(getattr(module.get_device_properties(device), "total_memory", 0))
    return max(0.0, 0.8 * total - float(_call_quietly(lambda: module.memory_allocated(device)) or 0))


def _measure_host_memory() -> float:
    """Return the kernel's available memory per core of this process, or a cgroup's limit if it is less."""
    free = 1e9
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        free = float(lines["MemAvailable"].split()[0]) * 1024
        for folder in ("/sys/fs/cgroup", "/sys/fs/cgroup" + _cgroup()):
            limit, used = (_number(f"{folder}/memory.{name}") for name in ("max", "current"))
            if limit is not None and used is not None:
                free = min(free, max(0.0, limit - used))
    except (OSError, KeyError, ValueError):
        pass  # keep the estimate
    return free * min(1.0, _cores() / (os.cpu_count() or 1)) / 2


def _cgroup() -> str:
    with open("/proc/self/cgroup", encoding="ascii") as file:
        return next((line.strip()[3:] for line in file if line.startswith("0::")), "")


def _number(path: str) -> Optional[float]:
    try:
        with open(path, encoding="ascii") as file:
            return float(file.read())
    except (OSError, ValueError):  # "max" means no limit
        return None


def describe_devices(torch: Any, kind: str) -> List[Dict[str, Any]]:
    """Describe every device of the type that this process sees."""
    if kind == "cpu":
        return []
    properties = _module(torch, kind).get_device_properties
    found = []
    for index in range(count_devices(torch, kind)):
        one = properties(index)
        found.append(
            {
                "index": index,
                "name": str(getattr(one, "name", "unknown")),
                "architecture": _architecture(one),
                "memory": getattr(one, "total_memory", None),
                "identity": _identity(one, index),
            }
        )
    return found


def _identity(properties: Any, index: int) -> str:
    """Return PCI address and UUID; before torch 2.7, which has neither, how the device was selected."""
    address = [getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
    number = getattr(properties, "uuid", None)
    parts: List[str] = [":".join(str(part) for part in address if part is not None)]
    if number is not None:
        parts.append(str(number))
    else:
        parts += [f"{name}={os.environ[name]}" for name in _VISIBLE if name in os.environ]
        parts.append(f"index={index}")
    return " ".join(part for part in parts if part)


def _architecture(properties: Any) -> Optional[str]:
    gfx = getattr(properties, "gcnArchName", None)
    if gfx:
        return str(gfx)
    major, minor = getattr(properties, "major", None), getattr(properties, "minor", None)
    return None if major is None or minor is None else f"sm_{major}{minor}"


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _module(torch: Any, kind: str) -> Any:
    return getattr(torch, kind, None)


def _call_quietly(call: Any) -> Any:
    """Return the result of a call, None if a missing or broken driver raises."""
    if call is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call()
    except Exception:
        return None


# Lines of NCCL's log (NCCL_DEBUG=INFO) that describe the network; RCCL writes the same.
_TELLING = re.compile(r"NET/|Using network|NCCL version|RCCL version|Plugin|plugin|provider|cxi", re.IGNORECASE)
_USED = re.compile(r"Using network (?P<name>\S.*?)\s*$")
_LIBRARY = re.compile(
    r"lib(nccl|rccl|fabric|mlx5|ibverbs|psm|cxi|ccl|mpi|ucp|uct|MIOpen|cudnn|hsa-runtime|ze_loader|cuda|amdhip)[\w.+-]*\.so",
    re.IGNORECASE,
)
_LINES = 24
_FABRIC = "import ctypes; version = ctypes.CDLL('{}').fi_version(); print(f'{{version >> 16}}.{{version & 65535}}')"


def redirect_log(path: str) -> None:
    """Make NCCL write its log to the file; it reads the variables when the first communicator is made."""
    os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", NCCL_DEBUG_FILE=path)


def describe_network(backend: str, log: Optional[str]) -> Dict[str, Any]:
    """Describe the network of the ranks: NCCL's log, the loaded libraries and, for gloo, the interface."""
    lines = _read_telling_lines(log) if backend == "nccl" else []
    used = next((found["name"] for found in map(_USED.search, lines) if found), None)
    if backend == "gloo":
        used = find_interface()
    elif used is None and backend != "nccl":
        used = os.environ.get("FI_PROVIDER") or os.environ.get("CCL_ATL_TRANSPORT")
    return {"backend": backend, "used": used or "unknown", "lines": lines, "libraries": sorted(find_loaded())}


def find_interface() -> str:
    """Find the interface set for gloo, or the address of the host's name, which is its default."""
    told = os.environ.get("GLOO_SOCKET_IFNAME")
    if told:
        return told
    try:
        return f"{socket.gethostbyname(socket.gethostname())} (no GLOO_SOCKET_IFNAME)"
    except OSError:
        return "the host's name has no address"


def find_loaded() -> Dict[str, str]:
    """Find the loaded libraries of network, devices and kernels: name to path."""
    found = {}
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                path = line.split(None, 5)[-1].strip()
                name = os.path.basename(path)
                if path.startswith("/") and _LIBRARY.match(name):
                    found[name] = path
    except OSError:
        pass
    return found


def read_versions(torch: Any) -> Dict[str, str]:
    """Read the versions of NCCL or RCCL, cuDNN or MIOpen, and libfabric, as far as present."""
    found = {}
    amd = bool(torch.version.hip)
    if torch.cuda.is_available():
        collective = _call_quietly(torch.cuda.nccl.version)
        if isinstance(collective, tuple):
            found["rccl" if amd else "nccl"] = ".".join(map(str, collective))
        kernels = _call_quietly(torch.backends.cudnn.version)
        if kernels is not None:
            found["miopen" if amd else "cudnn"] = str(kernels)
    fabric = _fabric()
    if fabric:
        found["libfabric"] = fabric
    return found


def _fabric() -> Optional[str]:
    """Read libfabric's version in a process of its own: loading it may change this one."""
    path = next((path for name, path in find_loaded().items() if name.startswith("libfabric")), "libfabric.so.1")
    if "'" in path or "\\" in path:
        return None
    try:
        done = subprocess.run(
            [sys.executable, "-c", _FABRIC.format(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    text = done.stdout.decode("ascii", "replace").strip()
    return text if done.returncode == 0 and re.fullmatch(r"[0-9]+\.[0-9]+", text) else None


def _read_telling_lines(log: Optional[str]) -> List[str]:
    found: List[str] = []
    try:
        with open(log or "", encoding="utf-8", errors="replace") as file:
            for line in file:
                text = line.strip()[:200]
                if _TELLING.search(text) and text not in found and len(found) < _LINES:
                    found.append(text)
    except OSError:
        pass
    return found


# The variables of each vendor's libraries, with their defaults.
_CACHES: Dict[str, Tuple[Tuple[str, str], ...]] = {
    "amd": (("MIOPEN_USER_DB_PATH", "~/.config/miopen"), ("MIOPEN_CUSTOM_CACHE_DIR", "~/.cache/miopen")),
    "nvidia": (("CUDA_CACHE_PATH", "~/.nv/ComputeCache"),),
    "intel": (("NEO_CACHE_DIR", "~/.cache/neo_compiler_cache"),),
    "cpu": (),
}
_OPTIONAL = ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def find_caches(vendor: str) -> List[Dict[str, str]]:
    """Find the caches in use: the vendor's, and those that a variable names."""
    own = os.path.dirname(os.path.abspath(__file__))
    found = dict(_CACHES[vendor])
    for name in _OPTIONAL:
        if name in os.environ and os.environ[name] != own:  # set by hardware.py for this process only
            found.setdefault(name, "")
    rows = []
    for name, default in found.items():
        path = os.path.realpath(os.path.expanduser(os.environ.get(name) or default))
        rows.append({"name": name, "path": path, "filesystem": find_file_system(path)})
    return rows


def find_file_system(path: str) -> str:
    """Find the type of the file system of a path or its nearest existing folder; "unknown" if there is no answer."""
    best, kind = "", "unknown"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                left, _, right = line.partition(" - ")
                point = _plain(left.split()[4])
                if f"{path.rstrip('/')}/".startswith(f"{point.rstrip('/')}/") and len(point) >= len(best):
                    best, kind = point, right.split()[0]
    except (OSError, IndexError):
        pass
    return kind


def _plain(text: str) -> str:
    """Decode a path of the kernel's list, in which blanks and the like are octal."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
