"""The loaded libraries with their versions, the network of the first collective, the caches of compiled kernels."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from typing import Any, Dict, List, Optional, Tuple

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


def _call_quietly(call: Any) -> Any:
    try:
        return call()
    except Exception:
        return None


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
