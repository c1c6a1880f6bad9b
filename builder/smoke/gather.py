"""Put the records of the ranks together into one result."""

from __future__ import annotations

import os
import signal
from typing import Any, Dict, Iterable, List, Optional

from . import record
from .failure import RunError

_OF_A_RANK = (
    "rank", "local_rank", "host", "pid", "state", "finished", "error", "lost", "ended", "device", "samples",
    "last_loss", "checksum", "initial_checksum", "seconds",
)  # fmt: skip
_OF_ALL = (
    "torch", "device", "backend", "launcher", "data", "training", "accuracy", "test_loss", "resumed_from_epoch",
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


def read_records(result_path: str, world: int, not_before: float = 0.0) -> List[Dict[str, Any]]:
    """Read the records that lie beside a result, leaving out those of an earlier run (last written before the time)."""
    records = []
    for rank in range(world):
        path = record.rank_path(result_path, rank)
        try:
            if os.stat(path).st_mtime < not_before:
                continue
            found = record.read(path)
        except (OSError, RunError):
            continue
        if isinstance(found, dict) and found.get("rank") == rank and isinstance(found.get("seconds"), dict):
            records.append(found)
    return records


def cause(records: List[Dict[str, Any]]) -> Optional[str]:
    """Name the rank that failed first-hand; a rank that merely lost the others is named when there is no such one."""
    for lost in (False, True):
        for entry in sorted(records, key=lambda entry: int(entry["rank"])):
            if entry.get("error") and bool(entry.get("lost")) is lost:
                return f"rank {entry['rank']}: {entry['error']}"
    return None


def unfinished(records: List[Dict[str, Any]], ranks: Iterable[int]) -> str:
    """Say what each of these ranks was doing when it was last heard of, leaving out those that had finished."""
    known = {entry["rank"]: entry for entry in records}
    waiting = []
    for rank in ranks:
        entry = known.get(rank)
        if entry is None:
            waiting.append(f"rank {rank} never reported")
        elif not entry.get("finished"):
            waiting.append(f"rank {rank} was {entry.get('state', 'starting')}")
    return ", ".join(waiting[:8]) + (f" and {len(waiting) - 8} more" if len(waiting) > 8 else "")


def ended_as(status: int) -> str:
    """Say how a process ended, from the status that subprocess gives."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
