"""A report: the result of executing a plan, written as report.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from builder.model.finding import Finding

Status = Literal["ok", "failed", "skipped", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The result of one step; `seconds` is its duration, `log` the path of its log."""

    name: str
    status: Status
    seconds: float
    exit_code: int | None = None
    log: str = ""
    finding: Finding | None = None


@dataclass(frozen=True, kw_only=True)
class SmokeCheck:
    """One check of the smoke test: the measured value against the expected one."""

    name: str
    ok: bool
    measured: str
    expected: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of a build; sizes in bytes, times in seconds."""

    target: str
    status: Literal["passed", "failed", "smoke-failed", "interrupted"]
    image: str
    steps: tuple[StepResult, ...]
    checks: tuple[SmokeCheck, ...] = ()
    image_bytes: int | None = None
    image_sha256: str | None = None
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    smoke: Mapping[str, Any] = field(default_factory=dict)
    verified: Mapping[str, Any] = field(default_factory=dict)  # the comparison with a second build, if requested
    proof: Mapping[str, Any] = field(default_factory=dict)  # the answer of the image to the torch check
    findings: tuple[Finding, ...] = ()
    base: str = ""  # base image, as the plan names it
    vendor: str = ""
    tool: str = ""
    plan: str = ""  # SHA-256 of the image's plan; "" if not certain
    sources: str = ""  # identity of the base image and the local files that were used
    identity: str = ""  # of the image when the report was written; any change of the image changes it
    started: str = ""  # UTC, ISO 8601

    @property
    def verdict(self) -> str:
        """The status; `built` where the image is there and nothing in it was tested."""
        return "built" if self.status == "passed" and not self.checks else self.status
