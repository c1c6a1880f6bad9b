"""Write results completely or not at all, and read them."""

from __future__ import annotations

import json
import math
import os
import platform
import socket
from typing import Any, Dict, Optional

from .exceptions import RunError, UsageError
from .options import DISTRIBUTED, WorkloadOptions
from .verdict import SCHEMA

UNFINISHED = "the run ended before its verdict"


def make_result(options: WorkloadOptions) -> Dict[str, Any]:
    """Make an initial result: options, host, and an error that a verdict replaces later."""
    expected: Dict[str, Any] = {"seconds": options.timeout}
    if options.workload == "imports":
        expected["modules"] = list(options.modules)
    elif options.workload == "pi":
        expected["torch"] = options.expect_torch  # it always runs on the CPU
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
    """Collect the expected values of every rank that are set; masks in hexadecimal."""
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
    """Write an initial, failed result, so that a killed run leaves one; raises UsageError if that fails."""
    if path is None:
        return
    try:
        write(path, content)
    except OSError as fault:
        raise UsageError(f'the result "{path}" cannot be written: {fault.strerror or fault}') from None


def write(path: str, content: Dict[str, Any]) -> None:
    """Write JSON to a temporary file next to the target and rename it; raises OSError."""
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
    """Overwrite a file in place, within its size: this works on a full disk.

    Returns whether that succeeded; the file is padded with spaces, so that nothing of the old content stays.
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
    """Read a JSON file; raises RunError with one sentence if it cannot be read or is not JSON."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as fault:
        raise RunError(f'"{path}" cannot be read: {fault.strerror or fault}') from None
    except (ValueError, RecursionError) as fault:
        raise RunError(f'"{path}" is not JSON: {fault}') from None


def name_rank_file(result: str, rank: int) -> str:
    """Return the path of a rank's record, next to the result."""
    return f"{result}.rank{rank}.json"


def _plain(value: Any) -> Any:
    """Replace numbers that JSON does not have (nan, inf) by their names."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
