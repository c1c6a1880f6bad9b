"""Gather the ranks' records into one result, and diagnose which rank failed."""

from __future__ import annotations

import os
import re
import signal
from typing import Any, Dict, Iterable, List, Optional

from . import record
from .checks import to_number
from .exceptions import RunError

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
    """Merge the ranks' records into the result: the figures of the lowest rank, and a row for each rank."""
    ordered = sorted(records, key=lambda entry: int(entry["rank"]))
    for name in _OF_ALL:
        holder = next((entry for entry in ordered if name in entry), None)
        if holder is not None:
            result[name] = holder[name]
    result["ranks"] = [{name: entry[name] for name in _OF_A_RANK if name in entry} for entry in ordered]
    if ordered:
        result["seconds"].update({key: value for key, value in ordered[0]["seconds"].items() if key != "total"})
    if result.get("workload") == "startup":
        _keep_slowest(result, ordered)


def _keep_slowest(result: Dict[str, Any], ordered: List[Dict[str, Any]]) -> None:
    """Keep the slowest rank's times of a start: the others wait for it."""
    for key in {key for entry in ordered for key in entry["seconds"]} - {"total"}:
        values = [to_number(entry["seconds"].get(key)) for entry in ordered]
        result["seconds"][key] = max((value for value in values if value is not None), default=None)


def read_records(result_path: str, world: int, not_before: float = 0.0) -> List[Dict[str, Any]]:
    """Read the rank records of a result, without those of an earlier run (last written before ``not_before``).

    Each record gets "heard": the time of the rank's last sign of life, by the clock of the file system.
    """
    records = []
    for rank in range(world):
        path = record.name_rank_file(result_path, rank)
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


def find_records(result_path: str) -> List[str]:
    folder, name = os.path.split(os.path.abspath(result_path))
    pattern = re.compile(re.escape(name) + r"\.rank[0-9]{1,7}\.json")
    try:
        return [os.path.join(folder, other) for other in os.listdir(folder) if pattern.fullmatch(other)]
    except OSError:
        return []


def describe_exit(status: int) -> str:
    """Describe how a process ended, from the status that subprocess returns."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


STALE_SECONDS = 5.0  # seconds; there is a sign of life every 2 s
_CLOSED = ("closed by peer", "reset by peer", "refused", "broken pipe", "connection closed", "remote process exited")


def diagnose(records: List[Dict[str, Any]], world: int) -> Optional[str]:
    """Name the rank at fault: first one that failed itself, then absent, silent and stale ones, then bystanders."""
    ordered = sorted(records, key=lambda entry: int(entry["rank"]))
    failed = [entry for entry in ordered if entry.get("error") and not entry.get("ended_early")]
    own = [entry for entry in failed if not entry.get("lost")]
    if own:
        return _quote_error(own[0])
    absent = [entry for entry in failed if entry.get("absent")]
    if absent:
        return _quote_error(absent[0])
    lost = [entry for entry in failed if entry.get("lost")]
    seen = f" ({_quote_error(lost[0])})" if lost else ""
    known = {int(entry["rank"]) for entry in ordered}
    missing = [f"rank {rank} never reported" for rank in range(world) if rank not in known]
    if missing:
        return ", ".join(missing[:4]) + _count_more(missing, 4) + seen
    quiet = select_silent(ordered)
    gone = select_stale(ordered, quiet) or quiet  # live ranks write within a moment
    if gone and len(gone) < len(ordered):
        closed = any(word in str(entry["error"]).lower() for entry in lost for word in _CLOSED)
        names = [_describe_last(entry, ordered, "died" if closed else "died or hung") for entry in gone]
        return ", ".join(names[:4]) + _count_more(names, 4) + seen
    return _quote_error(lost[0]) if lost else None


def select_silent(records: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Select the records that are neither finished nor have an error."""
    return [entry for entry in records if not entry.get("finished") and not entry.get("error")]


def select_stale(records: List[Dict[str, Any]], among: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Select those without a sign of life for a while before the last sign of any rank."""
    return [entry for entry in among if _count_silent_seconds(entry, records) > STALE_SECONDS]


def describe_unfinished(records: List[Dict[str, Any]], ranks: Iterable[int]) -> str:
    """Describe the last known state of each of these ranks, without those that finished."""
    known = {entry["rank"]: entry for entry in records}
    waiting = []
    for rank in ranks:
        entry = known.get(rank)
        if entry is None:
            waiting.append(f"rank {rank} never reported")
        elif not entry.get("finished"):
            away = _count_silent_seconds(entry, records)
            quiet = f" (nothing heard of it for {away:.0f} s)" if away > STALE_SECONDS else ""
            waiting.append(f"rank {rank} was {entry.get('state', 'starting')}{quiet}")
    return ", ".join(waiting[:8]) + _count_more(waiting, 8)


def _describe_last(entry: Dict[str, Any], records: List[Dict[str, Any]], how: str) -> str:
    away = _count_silent_seconds(entry, records)
    heard = f", {away:.0f} s before the others were last heard of" if away > STALE_SECONDS else ""
    return f"rank {entry['rank']} on {entry.get('host', 'an unknown host')} {how} while {entry.get('state')}{heard}"


def _count_silent_seconds(entry: Dict[str, Any], records: List[Dict[str, Any]]) -> float:
    """Count the seconds between the last signs of this rank and of any; both files are on one file system."""
    newest = max((float(other.get("heard", 0.0)) for other in records), default=0.0)
    return newest - float(entry.get("heard", newest))


def _quote_error(entry: Dict[str, Any]) -> str:
    return f"rank {entry['rank']}: {entry['error']}"


def _count_more(parts: List[str], shown: int) -> str:
    return f" and {len(parts) - shown} more" if len(parts) > shown else ""
