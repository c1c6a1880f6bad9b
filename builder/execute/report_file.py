"""report.json: what happened, written whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from builder.execute.names import REPORT_FILE
from builder.execute.tree import write_whole
from builder.model.finding import Finding, Place
from builder.model.report import Report, SmokeCheck, StepResult

SCHEMA = 1


def report_json(report: Report) -> str:
    """Write a report as JSON text."""
    content = {"schema": SCHEMA, **dataclasses.asdict(report)}
    return json.dumps(_plain(content), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def write_report(report: Report, folder: Path) -> Path:
    """Write report.json into the plan folder; raises OSError."""
    path = folder / REPORT_FILE
    write_whole(path, report_json(report))
    return path


def keep_report(report: Report, folder: Path, *, note: Callable[[str], None]) -> None:
    """Write it where that is possible: a full disk must not hide what the report says."""
    try:
        write_report(report, folder)
    except OSError as error:
        note(f"{REPORT_FILE} could not be written: {(error.strerror or str(error)).lower()}")


def read_report(folder: Path) -> Report | None:
    """Read report.json again, None when there is none that this version wrote."""
    try:
        found = json.loads((folder / REPORT_FILE).read_text(encoding="utf-8"))
        if found.pop("schema") != SCHEMA:
            return None
        steps = [{**item, "finding": _finding(item.get("finding"))} for item in found.pop("steps")]
        checks, findings = found.pop("checks"), found.pop("findings")
        return Report(
            **found,
            steps=tuple(StepResult(**item) for item in steps),
            checks=tuple(SmokeCheck(**item) for item in checks),
            findings=tuple(finding for item in findings if (finding := _finding(item))),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _finding(item: Any) -> Finding | None:
    if item is None:
        return None
    at = Place(**item["at"]) if item["at"] else None
    return Finding(**{**item, "at": at})


def _plain(value: Any) -> Any:
    # A result comes out of an image and may hold what JSON has no word for.
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
