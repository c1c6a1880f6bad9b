"""Whether a build has been done already: same plan, same image, a report that says it passed."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from builder.execute.names import PLAN_FILE, REPORT_FILE
from builder.layering.tree import walk
from builder.model.plan import Plan
from builder.model.plan_json import to_json


def current_report(plan: Plan, *, folder: Path, output: Path, recipe_folder: Path, no_smoke: bool) -> str | None:
    """Say how an earlier build of this very plan ended when its image still stands, else None.

    The plan folder must hold the same plan byte for byte, and neither the image nor a base image or file of this
    machine may have changed after the report was written.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        if (folder / PLAN_FILE).read_text(encoding="utf-8") != to_json(plan):
            return None
        report_file = folder / REPORT_FILE
        report = json.loads(report_file.read_text(encoding="utf-8"))
        written = report_file.stat().st_mtime
        image = output.stat()
        if report["status"] != "passed" or report["image"] != str(output.resolve()):
            return None
        if plan.image_kind == "sif" and report["image_bytes"] != image.st_size:
            return None
        sources = [Path(plan.base), *(recipe_folder / copy.source for copy in plan.copies if not copy.bundled)]
        newest = max([image.st_mtime, *(_newest(source) for source in sources)])
        smoked = any(step["name"] == "smoke" and step["status"] == "ok" for step in report["steps"])
        if newest <= written and (smoked or no_smoke):
            return "passed its smoke test" if smoked else "was not smoke-tested"
    return None


def _newest(source: Path) -> float:
    """The newest change at or below a path of this machine; 0 for what is none, such as an image of a registry."""
    if not source.is_absolute() or not source.exists():
        return 0.0
    below = walk(source.resolve()) if source.is_dir() else ()
    return max([source.lstat().st_mtime, *(entry.stat().st_mtime for entry in below)])
