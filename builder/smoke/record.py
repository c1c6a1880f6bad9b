"""Write results whole or not at all, and read them back."""

from __future__ import annotations

import json
import math
import os
import platform
import socket
from typing import Any, Dict, Optional

from .errors import RunError, UsageError
from .options import DISTRIBUTED, WorkloadOptions
from .verdict import SCHEMA

UNFINISHED = "the run ended before its verdict"


def make_result(options: WorkloadOptions) -> Dict[str, Any]:
    """Begin a result: what was asked, where, and the error that stands until a verdict replaces it."""
    expected: Dict[str, Any] = {"seconds": options.timeout}
    if options.workload == "imports":
        expected["modules"] = list(options.modules)
    elif options.workload == "pi":
        expected["torch"] = options.expect_torch  # it runs on the CPU whatever device is there
    else:
        expected.update(device=options.device, vendor=options.expect_vendor, torch=options.expect_torch)
    if options.workload in DISTRIBUTED:
        expected["ranks"] = options.ranks or options.expect_ranks
    if options.workload == "probe":
        expected.update(_probe(options))
    if options.workload == "allreduce":
        expected["floors"] = {str(size): floor for size, floor in options.floor}
    return {
        "schema": SCHEMA,
        "workload": options.workload,
        "error": UNFINISHED,
        "expected": expected,
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "seconds": {},
    }


def _probe(options: WorkloadOptions) -> Dict[str, Any]:
    """What was expected of every rank, as far as anything was; masks in hexadecimal."""
    found = {
        "masks": [hex(mask) for mask in options.expect_masks] or None,
        "cores": options.expect_cores,
        "devices": options.expect_devices,
        "gfx": options.expect_gfx,
        "network": options.expect_network,
        "variables": dict(options.expect_variable) or None,
        "caches": [os.path.realpath(path) for path in options.cache_not_under] or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def write_initial(path: Optional[str], content: Dict[str, Any]) -> None:
    """Write a first result, so that a killed run leaves a failed one; raises UsageError where none can be written."""
    if path is None:
        return
    try:
        write(path, content)
    except OSError as fault:
        raise UsageError(f'the result "{path}" cannot be written: {fault.strerror or fault}') from None


def write(path: str, content: Dict[str, Any]) -> None:
    """Write JSON beside its place and rename it there; raises OSError."""
    if os.path.isdir(path):
        raise IsADirectoryError(21, "it is a folder", path)
    draft = f"{path}.{os.getpid()}.tmp"
    try:
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(_plain(content), file, indent=1, sort_keys=True, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        if os.path.exists(draft):
            os.remove(draft)
        raise


def overwrite(path: str, content: Dict[str, Any]) -> bool:
    """Write over a file where it is, within its size: a full disk takes that when it takes nothing new.

    Says whether that went well; the file is padded with spaces, so that no rest of the old one stays.
    """
    try:
        text = (json.dumps(_plain(content), sort_keys=True, allow_nan=False) + "\n").encode()
        with open(path, "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if len(text) > size:
                return False
            file.write(text.rjust(size))
            file.flush()
            os.fsync(file.fileno())
        return True
    except OSError:
        return False


def read(path: str) -> Any:
    """Read a JSON file; raises RunError in one sentence when it cannot be read or is no JSON."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as fault:
        raise RunError(f'"{path}" cannot be read: {fault.strerror or fault}') from None
    except (ValueError, RecursionError) as fault:
        raise RunError(f'"{path}" is not JSON: {fault}') from None


def name_rank_file(result: str, rank: int) -> str:
    """Where a rank keeps its own record, beside the result."""
    return f"{result}.rank{rank}.json"


def _plain(value: Any) -> Any:
    """Replace what JSON has no word for (nan, inf) by its name."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
