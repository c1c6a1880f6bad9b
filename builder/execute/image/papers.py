"""What lies beside a published image: its bill of materials and how it came to be."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from builder.compile.provenance import provenance
from builder.execute.tree import write_whole
from builder.model.plan import Plan
from builder.model.report import Report

BILL, PROVENANCE = ".cdx.json", ".provenance.json"


def papers_of(image: Path) -> tuple[Path, Path]:
    """Where they lie."""
    return image.with_name(image.name + BILL), image.with_name(image.name + PROVENANCE)


def write_papers(plan: Plan, report: Report, *, sbom: str) -> str:
    """Write them beside an image that passed; returns what could not be written, "" when all is there."""
    if report.status != "passed" or not report.image:
        return ""
    image = Path(report.image)
    bill, origin = papers_of(image)
    try:
        named = None
        if sbom:
            write_whole(bill, sbom)
            named = (bill.name, hashlib.sha256(sbom.encode()).hexdigest())
        else:
            bill.unlink(missing_ok=True)  # of an earlier image
        if report.image_sha256:
            finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            text = provenance(plan, report, name=image.name, finished=finished, sbom=named)
            write_whole(origin, text)
    except OSError as error:
        return f"the papers of '{image}' could not be written: {(error.strerror or str(error)).lower()}"
    return ""
