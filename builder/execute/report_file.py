"""report.json: what happened, written whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

from builder.execute.names import REPORT_FILE
from builder.execute.tree import write_whole
from builder.model.report import Report

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


def _plain(value: Any) -> Any:
    # A result comes out of an image and may hold what JSON has no word for.
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
