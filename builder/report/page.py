"""The page: one file that a browser shows without a network, a script or a font from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from builder.compile.render import render_page, verbatim
from builder.model.results import Results
from builder.report import tables
from builder.report.plots import figures
from builder.report.tables import comparison, differences, import_seconds, key_transfer
from builder.report.units import duration, figure, megabytes, size

STATUS = {
    "passed": "passed",
    "smoke-failed": "smoke test failed",
    "failed": "build failed",
    "interrupted": "interrupted",
    "built": "built, not tested",
}


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One number to see first."""

    name: str
    value: str
    note: str = ""


def report_page(reports: Sequence[Results], *, tool: str) -> str:
    """Make the page of one report, or of several side by side."""
    style = verbatim("report.css")
    many = len(reports) > 1
    return render_page(
        "report.html.j2",
        title=" and ".join(results.name for results in reports[:3]) if many else reports[0].name,
        style=style,
        digest=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii"),
        tool=tool,
        many=many,
        reports=list(zip(tables.letters(reports), reports, [word(results) for results in reports], strict=True)),
        tiles=() if many else tiles(reports[0]),
        comparison=comparison(reports, detail=False) if many else None,
        comparison_detail=comparison(reports, detail=True) if many else None,
        differences=differences(reports) if many else (),
        failed=tables.checks(reports, failed=True),
        figures=figures(reports),
        tables=[tables.workloads(reports), tables.stages(reports), tables.ranks(reports)],
        checks=tables.checks(reports),
        facts=tables.facts(reports),
        packages=tables.packages(reports),
    )


def word(results: Results) -> str:
    """The status in words."""
    return STATUS.get(results.status, results.status)


def tiles(results: Results) -> tuple[Tile, ...]:
    """The numbers of one report that are looked for first."""
    found = []
    checks = [check for workload in results.workloads for check in workload.checks]
    if checks:
        good = sum(check.ok for check in checks)
        found.append(Tile(name="checks passed", value=f"{good} of {len(checks)}"))
    best = [one for one in results.workloads if one.training.accuracy is not None]
    if best:
        least = min(best, key=lambda one: one.training.accuracy or 0.0)
        found.append(Tile(name="accuracy", value=figure(least.training.accuracy), note=least.title))
    seconds = import_seconds(results)
    if seconds is not None:
        found.append(Tile(name="import torch", value=duration(seconds)))
    for one in results.workloads[::-1]:
        transfer = key_transfer(one)
        if transfer is not None:
            value, note = f"{figure(transfer.busbw)} GB/s", f"{one.title}, {size(transfer.size)}"
            found.append(Tile(name="bus bandwidth", value=value, note=note))
            break
    if results.image_bytes is not None:
        found.append(Tile(name="image", value=megabytes(results.image_bytes)))
    if results.build_seconds is not None:
        found.append(Tile(name="build", value=duration(results.build_seconds)))
    return tuple(found)
