"""Results: write and read their files, gather those of all ranks into one, and say which rank failed."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import signal
import socket
from typing import Any, Dict, Iterable, List, Optional

from .checks import to_number
from .options import DISTRIBUTED, RunError, UsageError, WorkloadOptions
from .verdict import SCHEMA

UNFINISHED = "the run ended before its verdict"


def make_result(options: WorkloadOptions) -> Dict[str, Any]:
    """Make an initial result: options, host, and an error that a verdict replaces later."""
    expected: Dict[str, Any] = {"seconds": options.timeout}
    if options.workload == "imports":
        expected["modules"] = list(options.modules)
    elif options.workload == "pi":
        expected["torch"] = options.expect_torch  # it always runs on the CPU
    elif options.workload == "mpi":
        expected["mpi"] = options.expect_mpi
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
            json.dump(to_plain(content), file, indent=1, sort_keys=True, allow_nan=False)
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
        text = (json.dumps(to_plain(content), sort_keys=True, allow_nan=False) + "\n").encode()
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


def is_unfinished(path: str) -> bool:
    """Return whether a result is still the initial one."""
    try:
        return bool(read(path)["error"] == UNFINISHED)
    except (RunError, KeyError, TypeError):
        return False


def name_rank_file(result: str, rank: int) -> str:
    """Return the path of a rank's record, next to the result."""
    return f"{result}.rank{rank}.json"


def to_plain(value: Any) -> Any:
    """Replace numbers that JSON does not have (nan, inf) by their names."""
    if isinstance(value, dict):
        return {str(key): to_plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


_OF_A_RANK = (
    "rank", "local_rank", "host", "pid", "state", "finished", "error", "lost", "ended", "device", "samples",
    "last_loss", "checksum", "initial_checksum", "orders", "seconds", "affinity", "devices", "variables", "libraries",
    "network", "caches", "workers", "sum_right", "pi", "trapezoids", "mpi",
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
        path = name_rank_file(result_path, rank)
        try:
            heard = os.stat(path).st_mtime
            if heard < not_before:
                continue
            found = read(path)
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
    """Name the rank at fault: the first that failed itself, then absent, silent and stale ones, then bystanders.

    A rank that fails does not write its record again.
    """
    ordered = sorted(records, key=lambda entry: int(entry["rank"]))
    failed = [entry for entry in ordered if entry.get("error") and not entry.get("ended_early")]
    own = [entry for entry in failed if not entry.get("lost")]
    if own:
        return _quote_error(min(own, key=lambda entry: float(entry.get("heard", math.inf))))
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
