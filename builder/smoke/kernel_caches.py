"""Find the caches of kernels compiled at run time, and the types of their file systems."""

from __future__ import annotations

import os
import re
from typing import Dict, List, Tuple

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
