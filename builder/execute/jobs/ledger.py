"""What was submitted from a plan folder: jobs/submitted.json, so that a lost connection loses nothing."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from builder.execute.image.origin import Origin
from builder.execute.image.product import Seen
from builder.execute.names import JOBS, SUBMITTED_FILE
from builder.execute.run import Lead
from builder.execute.tree import write_whole
from builder.model.finding import ConfigError, Finding, Place
from builder.model.report import StepResult

SCHEMA = 1

_NUMBER = re.compile(r"\d+(?:_\d+)?")  # of a job, or of an array's task

Kind = Literal["build", "smoke", "convert", "run"]


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """One job; `before` is what was there of its products when it was submitted."""

    job: str
    step: str
    script: str
    log: str
    after: tuple[str, ...] = ()
    submitted: float = 0.0  # seconds since 1970
    argv: tuple[str, ...] = ()
    before: Mapping[str, Seen | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """All jobs of one submission, in the order of their steps; `finished` is when they were judged, 0 before.

    `lead` is what ran on the submitting machine before them, `origin` what the image is made from.
    """

    site: str
    kind: Kind
    output: str
    jobs: tuple[Submitted, ...] = ()
    finished: float = 0.0
    lead: Lead = field(default_factory=Lead)
    origin: Origin = field(default_factory=Origin)

    @property
    def began(self) -> float:
        """When its work began, in seconds since 1970."""
        return self.lead.began or min((job.submitted for job in self.jobs), default=time.time())

    def of(self, step: str) -> Submitted | None:
        """The job of a step."""
        return next((job for job in self.jobs if job.step == step), None)

    def with_job(self, job: Submitted) -> Ledger:
        """With one job more."""
        return replace(self, jobs=(*self.jobs, job))


def ledger_path(folder: Path) -> Path:
    """Where the file lies."""
    return folder / JOBS / SUBMITTED_FILE


def write_ledger(ledger: Ledger, folder: Path) -> None:
    """Write it whole; raises OSError."""
    path = ledger_path(folder)
    path.parent.mkdir(exist_ok=True)
    write_whole(path, json.dumps({"schema": SCHEMA, **asdict(ledger)}, indent=1, sort_keys=True) + "\n")


def note_finished(ledger: Ledger, folder: Path, *, note: Callable[[str], None]) -> None:
    """Note that its jobs have been judged; where the disk does not take it, they are judged again the next time."""
    try:
        write_ledger(replace(ledger, finished=time.time()), folder)
    except OSError as error:
        note(f"{ledger_path(folder)} could not be written: {(error.strerror or str(error)).lower()}")


def read_ledger(folder: Path) -> Ledger | None:
    """Read what was submitted, None when nothing was; raises ConfigError when the file is damaged."""
    path = ledger_path(folder)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _faulty(path, str(error)) from None
    try:
        if found["schema"] != SCHEMA:
            raise _faulty(path, f"its schema is {found['schema']!r}, this version reads {SCHEMA}")
        return Ledger(
            site=str(found["site"]),
            kind=found.get("kind", "build"),
            output=str(found.get("output", "")),
            jobs=tuple(_job(item) for item in found["jobs"]),
            finished=float(found.get("finished") or 0.0),
            lead=_lead(found.get("lead") or {}),
            origin=Origin(**{name: str(value) for name, value in (found.get("origin") or {}).items()}),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _faulty(path, f"{type(error).__name__}: {error}") from None


def forget_ledger(folder: Path) -> None:
    """Remove it: what was submitted before has ended, and belongs to another build."""
    ledger_path(folder).unlink(missing_ok=True)


def _lead(item: dict[str, Any]) -> Lead:
    names = ("name", "status", "seconds", "exit_code", "log")
    return Lead(
        results=tuple(StepResult(**{name: step[name] for name in names}) for step in item.get("results", ())),
        proof=dict(item.get("proof", {})),
        versions={str(name): str(text) for name, text in item.get("versions", {}).items()},
        began=float(item.get("began", 0.0)),
    )


def _job(item: dict[str, Any]) -> Submitted:
    job = str(item["job"])
    if not _NUMBER.fullmatch(job):
        raise ValueError(f"{job!r} is no job")
    return Submitted(
        job=job,
        step=str(item["step"]),
        script=str(item["script"]),
        log=str(item.get("log", "")),
        after=tuple(map(str, item.get("after", ()))),
        submitted=float(item.get("submitted", 0.0)),
        argv=tuple(map(str, item.get("argv", ()))),
        before={name: Seen(**seen) if seen else None for name, seen in item.get("before", {}).items()},
    )


def _faulty(path: Path, what: str) -> ConfigError:
    message = f"what was submitted from this folder cannot be read: {what}"
    fix = "look for the jobs with `squeue --me`; remove the file to start anew"
    return ConfigError(Finding(code="jobs-file", message=message, at=Place(file=str(path)), fix=fix))
