"""Import the named modules one after the other, in one process."""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any, Dict

from . import record
from .run import WorkloadRun, find_first_line


def work(run: WorkloadRun) -> None:
    """Fill the run's result; if a module kills the process, the result's error names it."""
    found = run.result["imports"] = []
    for name in run.options.modules:
        if run.options.result is not None:
            run.result["error"] = f'the process ended while importing "{name}"'
            record.write(run.options.result, run.result)
        entry = _import_module(name)
        found.append(entry)
        run.print_progress(f"{name} {entry['version'] or ''} {entry['error'] or 'imported'} ({entry['seconds']:.2f} s)")


def _import_module(name: str) -> Dict[str, Any]:
    began = time.monotonic()
    error = version = None
    try:
        importlib.import_module(name)
        version = _version(name)
    except (Exception, SystemExit) as fault:
        error = f"{type(fault).__name__}: {find_first_line(fault)}"
    return {"name": name, "error": error, "version": version, "seconds": round(time.monotonic() - began, 3)}


def _version(name: str) -> Any:
    version = getattr(sys.modules.get(name.split(".")[0]), "__version__", None)
    return None if version is None else str(version)
