"""Findings for other programs: JSON of our own, and SARIF 2.1.0 for code hosts and editors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from builder import __version__
from builder.cli.outcome import Outcome
from builder.model.finding import Finding, errors

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def plain(outcome: Outcome) -> dict[str, Any]:
    """One site as JSON data."""
    return {
        "site": outcome.site,
        "ok": not errors(outcome.findings),
        "torch": outcome.torch,
        "base": outcome.base,
        "packages": [asdict(package) for package in outcome.packages],
        "findings": [asdict(finding) for finding in outcome.findings],
    }


def sarif(found: Mapping[str, Sequence[Finding]]) -> dict[str, Any]:
    """Findings by site as one SARIF run (OASIS, SARIF 2.1.0)."""
    codes = sorted({finding.code for findings in found.values() for finding in findings})
    rules = [{"id": code, "helpUri": f"docs/checks/{code}.md"} for code in codes]
    results = [_result(site, finding) for site, findings in found.items() for finding in findings]
    driver = {"name": "recipe", "version": __version__, "rules": rules}
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(site: str, finding: Finding) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "level": finding.level,
        "message": {"text": f"{site}: {finding.message} (fix: {finding.fix})"},
    }
    if finding.at is not None and finding.at.file:
        region = {"region": {"startLine": finding.at.line}} if finding.at.line else {}
        result["locations"] = [{"physicalLocation": {"artifactLocation": {"uri": finding.at.file}, **region}}]
    return result
