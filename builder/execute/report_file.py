"""report.json: what happened, written whole or not at all; whether it says that a build has been done already.

A build has been done where the report says that it passed, of this plan and of the image that is there.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from builder.inspect.origin import (
    compute_plan_digest,
    compute_sources_identity,
    is_image_of,
    read_image_plan,
    read_image_report,
    read_plan_digest,
    remove_kept_report,
)
from builder.model.finding import remove_edits
from builder.model.plan import Plan
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
    from builder.smoke.result_files import to_plain  # read where a report is written

    return json.dumps(to_plain(content), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def write_report(report: Report, folder: Path) -> Path:
    """Write report.json into the plan folder; raises OSError."""
    path = folder / REPORT_FILE
    write_atomic(path, report_json(report))
    if report.status == "passed":
        remove_kept_report(folder)
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


def find_current_result(plan: Plan, *, folder: Path, output: Path, recipe_folder: Path, no_smoke: bool) -> str | None:
    """Say how an earlier build of this very plan ended when its image is still there, else None.

    The report has to name this plan, the base image and files of this machine as they are, and this image. The plan
    folder must hold the same plan: its scripts are the image's. Where a later build did not replace the image, the
    plan can be written there again.
    """
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        report, kept = read_image_report(folder, output)
        if report["status"] != "passed" or report["image"] != str(output.resolve()):
            return None
        smoked = _was_smoked(report)
        if not (smoked or no_smoke) or report["plan"] != compute_plan_digest(plan):
            return None
        if not kept and read_plan_digest(folder) != report["plan"]:
            return None
        if report["sources"] != compute_sources_identity(plan, recipe_folder=recipe_folder, folder=folder):
            return None
        if is_image_of(report, output):
            if not smoked:
                return "was not tested"
            return "passed its smoke test" if report["checks"] else "was not tested: its smoke test has no workload"
    return None


def _was_smoked(report: dict[str, Any]) -> bool:
    return any(step["name"] == "smoke" and step["status"] == "ok" for step in report["steps"])


def explain_not_current(plan: Plan, *, folder: Path, output: Path, recipe_folder: Path) -> tuple[str, str]:
    """Why an image that is there is not known as built and tested from this plan, and the fix; "" where unknown.

    Both are for the message that the image would be overwritten.
    """
    said = read_image_plan(output)
    if not said:
        return "", ""
    if said != compute_plan_digest(plan):
        return "it was built from another plan", ""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        report, _ = read_image_report(folder, output)
        if report["plan"] == said:
            if report["sources"] != compute_sources_identity(plan, recipe_folder=recipe_folder, folder=folder):
                return "a file that went into it, or its base image, has another time, size or place now", ""
            if not is_image_of(report, output):
                return "it was changed since it was built", ""
            if read_plan_digest(folder) != said:
                why = "it was built from this plan, and its plan folder holds another plan now"
                return why, "write this plan into the folder again with `recipe plan`"
            if report["status"] == "passed" and not _was_smoked(report):
                return "it was built from this plan, and was not tested", "give --from smoke to test it"
            return (
                "it was built from this plan, and has not passed its smoke test",
                "give --from smoke to test it again",
            )
    return "it was built from this plan by a build that was ended before it could write its report", ""
