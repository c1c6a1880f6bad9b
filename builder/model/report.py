"""A report: what happened when a plan was executed. Written as report.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from builder.model.finding import Finding

Status = Literal["ok", "failed", "skipped", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """One step: how it ended, after how many seconds, where its log is."""

    name: str
    status: Status
    seconds: float
    exit_code: int | None = None
    log: str = ""
    finding: Finding | None = None


@dataclass(frozen=True, kw_only=True)
class SmokeCheck:
    """One judged number of the smoke test."""

    name: str
    ok: bool
    measured: str
    expected: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """The whole of a build; sizes in bytes, times in seconds."""

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
    verified: Mapping[str, Any] = field(default_factory=dict)  # what a second build gave, where one was asked for
    proof: Mapping[str, Any] = field(default_factory=dict)  # what the image answered when it was asked for its torch
    findings: tuple[Finding, ...] = ()
    base: str = ""  # base image, as the plan names it
    vendor: str = ""
    tool: str = ""
    plan: str = ""  # SHA-256 of the plan that the image was made from; "" where that is not known for sure
    sources: str = ""  # identity of the base image and the files of this machine that went into it
    identity: str = ""  # of the image when the report was written: it changes with whatever is done to the image
    started: str = ""  # UTC, ISO 8601
