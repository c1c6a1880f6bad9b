"""Put the records of the ranks together into one result."""

from __future__ import annotations

import os
import re
import signal
from typing import Any, Dict, List

from . import record
from .facts import number
from .failure import RunError

_OF_A_RANK = (
    "rank", "local_rank", "host", "pid", "state", "finished", "error", "lost", "ended", "device", "samples",
    "last_loss", "checksum", "initial_checksum", "orders", "seconds", "affinity", "devices", "variables", "libraries",
    "network", "caches", "workers", "sum_right", "pi", "trapezoids",
)  # fmt: skip
_OF_ALL = (
    "torch", "device", "backend", "launcher", "data", "training", "accuracy", "test_loss", "resumed_from_epoch",
    "world", "pi", "deviation", "steps", "scaling", "sweep", "sweep_ended",
)  # fmt: skip


def assemble(result: Dict[str, Any], records: List[Dict[str, Any]]) -> None:
    """Fill the result with the ranks' records: rank 0's (or the first one's) figures, and a row for each rank."""
    ordered = sorted(records, key=lambda entry: int(entry["rank"]))
    for name in _OF_ALL:
        holder = next((entry for entry in ordered if name in entry), None)
        if holder is not None:
            result[name] = holder[name]
    result["ranks"] = [{name: entry[name] for name in _OF_A_RANK if name in entry} for entry in ordered]
    if ordered:
        result["seconds"].update({key: value for key, value in ordered[0]["seconds"].items() if key != "total"})
    if result.get("workload") == "startup":
        _slowest(result, ordered)


def _slowest(result: Dict[str, Any], ordered: List[Dict[str, Any]]) -> None:
    """Of a start the slowest rank counts: the others wait for it."""
    for key in {key for entry in ordered for key in entry["seconds"]} - {"total"}:
        values = [number(entry["seconds"].get(key)) for entry in ordered]
        result["seconds"][key] = max((value for value in values if value is not None), default=None)


def read_records(result_path: str, world: int, not_before: float = 0.0) -> List[Dict[str, Any]]:
    """Read the records that lie beside a result, leaving out those of an earlier run (last written before the time).

    Each has a "heard": when its rank last gave a sign of life, by the file system's clock.
    """
    records = []
    for rank in range(world):
        path = record.rank_path(result_path, rank)
        try:
            heard = os.stat(path).st_mtime
            if heard < not_before:
                continue
            found = record.read(path)
        except (OSError, RunError):
            continue
        if isinstance(found, dict) and found.get("rank") == rank and isinstance(found.get("seconds"), dict):
            records.append({**found, "heard": heard})
    return records


def records_beside(result_path: str) -> List[str]:
    """The names of the rank records that lie beside a result."""
    folder, name = os.path.split(os.path.abspath(result_path))
    pattern = re.compile(re.escape(name) + r"\.rank[0-9]{1,7}\.json")
    try:
        return [os.path.join(folder, other) for other in os.listdir(folder) if pattern.fullmatch(other)]
    except OSError:
        return []


def ended_as(status: int) -> str:
    """Say how a process ended, from the status that subprocess gives."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
