"""Properties of torch and the devices it sees: builds, devices, the device of this rank."""

from __future__ import annotations

import gc
import os
import warnings
from typing import Any, Dict, List, Optional, Tuple

from .exceptions import RunError

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
