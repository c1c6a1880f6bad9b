"""Judge the results of a job: one verdict, and the rank at fault if a workload has no result."""

from __future__ import annotations

import os
import re
import socket
import sys
from dataclasses import asdict
from typing import Any, Dict, List, Optional, Tuple

from . import result_files, verdict
from .checks import look_up, show, to_integer, to_number
from .options import RunError, WorkloadOptions

VERDICT_FILE = "verdict.json"
_RESULT = re.compile(r"(?P<workload>[a-z][a-z0-9-]*)\.json")
_RANK = re.compile(r"(?P<workload>[a-z][a-z0-9-]*)\.json\.rank[0-9]+\.json")


def judge_suite(options: WorkloadOptions) -> int:
    """Judge the folder, write its verdict, print a table; 0 pass, 1 FAIL. Raises RunError without a folder."""
    if not os.path.isdir(options.folder):
        raise RunError(f'the folder "{options.folder}" does not exist')
    found = {name: _judge_workload(options.folder, name) for name in _list_workloads(options)}
    good = bool(found) and all(entry["verdict"] == "pass" for entry in found.values()) and not options.reason
    content = {
        "schema": verdict.SCHEMA,
        "verdict": "pass" if good else "FAIL",
        "reason": options.reason or None,
        "host": socket.gethostname(),
        "workloads": found,
    }
    path = os.path.join(options.folder, VERDICT_FILE)
    try:
        result_files.write(path, content)
    except OSError as fault:
        print(f'error: the verdict "{path}" cannot be written: {fault.strerror or fault}', file=sys.stderr)
        good = False
    for line in _table(found, options.reason, good):
        print(line)
    return 0 if good else 1


def _list_workloads(options: WorkloadOptions) -> List[str]:
    """List the expected workloads in order, then the others that left files."""
    names = dict.fromkeys(options.expect)
    for file in sorted(os.listdir(options.folder)):
        match = _RESULT.fullmatch(file) or _RANK.fullmatch(file)
        if match is not None and file != VERDICT_FILE:
            names.setdefault(match["workload"])
    return list(names)


def _judge_workload(folder: str, workload: str) -> Dict[str, Any]:
    path = os.path.join(folder, f"{workload}.json")
    result, error = _read(path)
    if isinstance(result, dict):
        if result.get("error") == result_files.UNFINISHED:
            error = result["error"] = f"{result_files.UNFINISHED}{_blame_rank(path)}"
        elif result.get("workload") != workload:
            error = f'"{path}" is the result of {show(result.get("workload"))}'
        else:
            error = _text(result.get("error"))
    else:
        error = f"{show(result)} is not a result" if error is None else f"{error}{_blame_rank(path)}"
    checks = verdict.judge(result) if isinstance(result, dict) else []
    good = verdict.has_passed(checks) and error is None
    return {
        "verdict": "pass" if good else "FAIL",
        "seconds": to_number(look_up(result, "seconds", "total")),
        "error": error,
        "checks": [asdict(check) for check in checks],
    }


def _text(error: object) -> Optional[str]:
    return error if error is None or isinstance(error, str) else show(error)


def _read(path: str) -> Tuple[Any, Optional[str]]:
    if not os.path.lexists(path):
        return None, "it left no result"
    try:
        return result_files.read(path), None
    except RunError as fault:
        return None, str(fault)


def _blame_rank(path: str) -> str:
    """Return the diagnosis of the rank records as ": rank 1 ...", "" if there are none."""
    records, world = _records(path)
    if not records:
        return ""
    found = result_files.diagnose(records, world) or result_files.describe_unfinished(records, range(world))
    return f": {found}" if found else ""


def _records(path: str) -> Tuple[List[Dict[str, Any]], int]:
    """Read the rank records of a result, and the number of ranks that they mention."""
    ranks = [int(name.rsplit(".rank", 1)[1][: -len(".json")]) for name in result_files.find_records(path)]
    records = result_files.read_records(path, max(ranks, default=-1) + 1)
    told = [to_integer(entry.get("world")) or 0 for entry in records]
    return records, min(max([len(records), *told]), 10**6)


def _table(found: Dict[str, Dict[str, Any]], reason: Optional[str], good: bool) -> List[str]:
    """Format a line for each workload, and the verdict."""
    wide = max([8, *(len(name) for name in found)])
    lines = []
    for name, entry in found.items():
        bad = [f"{check['name']}: {check['measured']}" for check in entry["checks"] if not check["ok"]]
        why = "" if entry["verdict"] == "pass" else entry["error"] or "; ".join(bad[:3])
        taken = f"{entry['seconds']:8.1f} s" if entry["seconds"] is not None else "         -"
        mark = "ok  " if entry["verdict"] == "pass" else "FAIL"
        lines.append(f"  {mark}  {name:{wide}} {taken}  {show(why) if why else ''}".rstrip())
    failed = [name for name, entry in found.items() if entry["verdict"] != "pass"]
    causes = ([reason] if reason else []) + failed
    lines.append("verdict: pass" if good else f"verdict: FAIL ({', '.join(causes) or 'nothing was run'})")
    return lines
