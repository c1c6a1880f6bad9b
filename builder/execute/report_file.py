"""report.json: what happened, written whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from builder.model.finding import remove_edits
from builder.model.report import Report
from builder.model.text import to_dataclass
from builder.sif.bounded import parse_json
from builder.system.files import write_atomic
from builder.system.layout import REPORT_FILE
from builder.system.trust import read_below

SCHEMA = 1
LIMIT = 64 * 1024 * 1024  # bytes; a thousand ranks leave two million


def report_json(report: Report) -> str:
    """Write a report as JSON text."""
    content = {"schema": SCHEMA, **remove_edits(dataclasses.asdict(report))}
    return json.dumps(_to_plain(content), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def write_report(report: Report, folder: Path) -> Path:
    """Write report.json into the plan folder; raises OSError."""
    path = folder / REPORT_FILE
    write_atomic(path, report_json(report))
    return path


def keep_report(report: Report, folder: Path, *, note: Callable[[str], None]) -> None:
    """Write it where that is possible: a full disk must not hide what the report says."""
    try:
        write_report(report, folder)
    except OSError as error:
        note(f"{REPORT_FILE} could not be written: {(error.strerror or str(error)).lower()}")


def read_report(folder: Path) -> Report | None:
    """Read report.json again, None when there is none that this version wrote; raises ConfigError for a stranger's."""
    try:
        return to_dataclass(
            Report, parse_json(read_below(folder, REPORT_FILE, limit=LIMIT)), schema=SCHEMA, what="report"
        )
    except (OSError, ValueError):
        return None


def _to_plain(value: Any) -> Any:
    # A result comes out of an image and may hold what JSON has no word for.
    if isinstance(value, dict):
        return {str(key): _to_plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
