"""The GPUs of this machine: NVIDIA's by nvidia-smi, AMD's and Intel's by what the kernel says in /sys.

NVIDIA: `nvidia-smi --help-query-gpu`. AMD: https://docs.kernel.org/gpu/amdgpu and the properties of the KFD's nodes, in
which `gfx_target_version` 90010 is gfx90a. Intel: the ids of Ponte Vecchio in https://pci-ids.ucw.cz (2023-04-11);
the memory is that of Intel's specifications of the three models.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from builder.model.site import Gpu

FIELDS = "name,driver_version,memory.total,compute_cap,pci.bus_id"
QUERY = ("nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits")
SECONDS = 15.0  # nvidia-smi starts the driver where no one keeps it: some seconds on a node of eight GPUs
DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ()/+._-]{0,79}")
INTEL = {
    **dict.fromkeys(("0x0bd5", "0x0bd6"), ("Intel Data Center GPU Max 1550", "pvc", 128)),
    **dict.fromkeys(("0x0bd7", "0x0bd8"), ("Intel Data Center GPU Max 1350", "pvc", 96)),
    **dict.fromkeys(("0x0bd9", "0x0bda", "0x0bdb"), ("Intel Data Center GPU Max 1100", "pvc", 48)),
}
ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
SOURCE = ("machine",)

Answer = Callable[[Sequence[str]], str]  # what a program prints, "" where it is missing or fails


@dataclass(frozen=True, kw_only=True)
class Device:
    """One GPU; memory in GiB, `cores` are those next to it (0-15,64-79), "" if the kernel does not know."""

    vendor: str
    model: str
    target: str
    memory_gib: int | None
    driver: str | None
    cores: str = ""


def read_gpus(*, root: Path = Path("/"), answer: Answer | None = None) -> tuple[Device, ...]:
    """Return the GPUs of this machine that compute; `root` is where the system's files are."""
    return (*_read_nvidia(root, answer or _ask), *_read_amd(root), *_read_intel(root))


@cache
def read_own_gpu() -> Gpu | None:
    """Return the GPUs of this machine as those of a site, None without any that a container can use here."""
    return make_gpu(read_gpus())


def make_gpu(devices: Sequence[Device]) -> Gpu | None:
    """Make the GPU of a site of equal devices, those of the first one's kind; None without any.

    Intel's are left out: a container of this machine would need Intel's own libraries in it.
    """
    found = [device for device in devices if device.vendor in ("nvidia", "amd")]
    equal = [device for device in found if replace(device, cores="") == replace(found[0], cores="")]
    if not equal:
        return None
    first = equal[0]
    return Gpu(
        vendor="nvidia" if first.vendor == "nvidia" else "amd",
        model=first.model,
        target=first.target,
        devices=len(equal),
        scheduled=len(equal),
        memory_gib=first.memory_gib,
        driver=first.driver,
        driver_checked=None,
        source=SOURCE,
    )


def _ask(argv: Sequence[str], *, environment: Mapping[str, str] = os.environ) -> str:
    from builder.system.process import capture, find_program

    if find_program(argv[0], env=environment) is None:
        return ""
    found = capture(list(argv), env=environment, timeout=SECONDS)
    return found.text if found.exit_code == 0 else ""


def _read_nvidia(root: Path, answer: Answer) -> Iterator[Device]:
    """Read one line for each GPU: NVIDIA H100 80GB HBM3, 550.54.15, 81559, 9.0, 00000000:19:00.0."""
    if not (root / "proc/driver/nvidia/version").exists():
        return
    for line in answer(QUERY).splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) != 5 or not re.fullmatch(r"\d{1,2}\.\d", words[3]) or not DEVICE.fullmatch(words[0]):
            continue
        yield Device(
            vendor="nvidia",
            model=words[0],
            target="sm_" + words[3].replace(".", ""),
            memory_gib=round(int(words[2]) / 1024) if words[2].isdecimal() else None,
            driver=words[1] if re.fullmatch(r"\d{3,4}(\.\d{1,4}){1,3}", words[1]) else None,
            cores=_read_cores(root, words[4].lower()[-12:]),
        )


def _read_amd(root: Path) -> Iterator[Device]:
    """Read the KFD's nodes with a gfx_target_version; those of processors have 0."""
    driver = _read_text(root / "sys/module/amdgpu/version")
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    for node in sorted(nodes.glob("*"), key=lambda path: int(path.name) if path.name.isdecimal() else 0):
        properties = dict(_split(line) for line in _read_text(node / "properties").splitlines() if " " in line)
        version = int(properties.get("gfx_target_version") or 0)
        if version == 0:
            continue
        target = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        banks = [dict(_split(line) for line in _read_text(bank).splitlines() if " " in line) for bank in _banks(node)]
        size = max((int(bank.get("size_in_bytes") or 0) for bank in banks), default=0)
        yield Device(
            vendor="amd",
            model=f"AMD GPU {target}",
            target=target,
            memory_gib=round(size / 1024**3) or None,
            driver=driver if re.fullmatch(r"\d+(\.\d+)+(-[A-Za-z0-9.]+)?", driver) else None,
            cores=_read_cores(root, _name_device(properties)),
        )


def _name_device(properties: Mapping[str, str]) -> str:
    """The PCI address of a KFD node: `location_id` is bus, device and function."""
    domain, place = int(properties.get("domain") or 0), int(properties.get("location_id") or 0)
    return f"{domain:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def _read_cores(root: Path, address: str) -> str:
    cores = _read_text(root / "sys/bus/pci/devices" / address / "local_cpulist") if ADDRESS.fullmatch(address) else ""
    return cores if re.fullmatch(r"[0-9,-]{1,200}", cores) else ""


def _banks(node: Path) -> list[Path]:
    return sorted(node.glob("mem_banks/*/properties"))


def _split(line: str) -> tuple[str, str]:
    name, _, value = line.strip().partition(" ")
    return name, value if value.isdecimal() else ""


def _read_intel(root: Path) -> Iterator[Device]:
    driver = _read_text(root / "sys/module/xe/version") or _read_text(root / "sys/module/i915/version")
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        if _read_text(device / "vendor") != "0x8086":
            continue
        known = INTEL.get(_read_text(device / "device"))
        if known is not None:
            model, target, memory = known
            version = driver if re.fullmatch(r"\d+(\.\d+)*", driver) else None
            cores = _read_cores(root, device.name)
            yield Device(vendor="intel", model=model, target=target, memory_gib=memory, driver=version, cores=cores)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
