"""What was submitted from a plan folder, and what its jobs have left of themselves.

jobs/submitted.json is written with each job, so that a lost connection loses nothing; a job's own script writes
jobs/JOBID.json (record.sh).
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from builder.execute.execution import LocalPrefix
from builder.execute.step_runner import OutputStat
from builder.inspect.origin import Origin
from builder.model.finding import ConfigError, Finding, Location
from builder.model.plan import STEP_NAME
from builder.model.text import is_plain_path, sanitize, to_dataclass
from builder.sif.bounded import parse_json
from builder.system.files import write_atomic
from builder.system.layout import JOBS, SUBMITTED_FILE
from builder.system.trust import read_below

SCHEMA = 1  # of both files
LIMIT, RECORD_LIMIT = 16 * 1024 * 1024, 64 * 1024  # bytes
SKEW = 30.0  # seconds between two clocks; what Slurm begins again it puts off for two minutes
_COMMAND = re.compile(JOBS + r"/\.command-[0-9a-f]{16}")
LONGEST = 4096  # characters of a path
_NUMBER = re.compile(r"[0-9]{1,12}(?:_[0-9]{1,9})?")  # of a job, or of an array's task

Kind = Literal["build", "smoke", "convert", "run"]


@dataclass(frozen=True, kw_only=True)
class SubmittedJob:
    """One job; `before` is what was there of its products when it was submitted."""

    job: str
    step: str
    script: str
    log: str
    after: tuple[str, ...] = ()
    submitted: float = 0.0  # seconds since 1970
    argv: tuple[str, ...] = ()
    before: Mapping[str, OutputStat | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """All jobs of one submission, in the order of their steps; `finished` is when they were judged, 0 before.

    `lead` is what ran on the submitting machine before them, `origin` what the image is made from.
    """

    site: str
    kind: Kind
    output: str
    jobs: tuple[SubmittedJob, ...] = ()
    finished: float = 0.0
    lead: LocalPrefix = field(default_factory=LocalPrefix)
    command: str = ""  # the file of the command that runs, which only its user may read
    origin: Origin = field(default_factory=Origin)

    @property
    def began(self) -> float:
        """When its work began, in seconds since 1970."""
        return self.lead.began or min((job.submitted for job in self.jobs), default=time.time())

    @property
    def only(self) -> SubmittedJob:
        return self.jobs[0]

    def find_job(self, step: str) -> SubmittedJob | None:
        return next((job for job in self.jobs if job.step == step), None)

    def add_job(self, job: SubmittedJob) -> Ledger:
        return replace(self, jobs=(*self.jobs, job))


def name_ledger_file(folder: Path) -> Path:
    return folder / JOBS / SUBMITTED_FILE


def write_ledger(ledger: Ledger, folder: Path) -> None:
    """Write it whole; raises OSError."""
    path = name_ledger_file(folder)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, json.dumps({"schema": SCHEMA, **asdict(ledger)}, indent=1, sort_keys=True) + "\n")


def note_finished(ledger: Ledger, folder: Path, *, note: Callable[[str], None]) -> None:
    """Note that its jobs have been judged; where the disk does not take it, they are judged again the next time."""
    try:
        write_ledger(replace(ledger, finished=time.time()), folder)
    except OSError as error:
        note(f"{name_ledger_file(folder)} could not be written: {(error.strerror or str(error)).lower()}")


def read_ledger(folder: Path) -> Ledger | None:
    """Read what was submitted, None when nothing was; raises ConfigError when the file is damaged."""
    path = name_ledger_file(folder)
    try:
        content = read_below(folder, f"{JOBS}/{SUBMITTED_FILE}", limit=LIMIT)
        ledger = to_dataclass(Ledger, parse_json(content), schema=SCHEMA, what="list of jobs")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _make_error(path, sanitize(str(error), limit=200)) from None
    for fault in _find_faults(ledger):
        raise _make_error(path, fault)
    return ledger


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """How a job ended; times in seconds since 1970 by the node's clock."""

    job: str
    exit_code: int
    reason: str  # "" for its own end, else time limit, cancelled, preempted ...
    started: float
    ended: float
    nodes: str = ""
    log: str = ""
    # Written when the job was told to end, in case nothing more can be: its work may still say and save something.
    ending: bool = False

    @property
    def seconds(self) -> float:
        """How long it ran."""
        return max(0.0, self.ended - self.started)


def read_record(folder: Path, job: str) -> JobRecord | None:
    """Read the record of a job, None when there is none or it is no record; raises ConfigError for a stranger's."""
    try:
        content = read_below(folder, f"{JOBS}/{job}.json", limit=RECORD_LIMIT)
        record = to_dataclass(JobRecord, parse_json(content), schema=SCHEMA, what="record", more=True)
    except (OSError, ValueError):
        return None
    return record if record.job == job else None


def drop_old_record(record: JobRecord | None, *, started: float) -> JobRecord | None:
    """Give a record unless Slurm has begun the job again since: until its script works, the old one is there."""
    if record is not None and started > record.ended + SKEW:
        return None
    return record


def list_open_jobs(ledger: Ledger | None, folder: Path) -> list[str]:
    """The jobs that have left no record yet."""
    return [job.job for job in ledger.jobs if read_record(folder, job.job) is None] if ledger else []


def keep_command(words: Sequence[str], folder: Path) -> str:
    """Keep the words of a command in a file that only its user may read: no job's own words are private.

    Returns its path below the folder; raises OSError.
    """
    name = f"{JOBS}/.command-{secrets.token_hex(8)}"
    (folder / JOBS).mkdir(exist_ok=True)
    handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(b"".join(os.fsencode(word) + b"\0" for word in words))
    return name


def forget_command(command: str, folder: Path) -> None:
    """Remove the words of a command that has ended, or was refused."""
    if command:
        with suppress(OSError):
            (folder / command).unlink()
            (folder / JOBS).rmdir()  # where no job was submitted


def forget_ledger(folder: Path) -> None:
    """Remove it: what was submitted before has ended, and belongs to another build."""
    name_ledger_file(folder).unlink(missing_ok=True)


def _find_faults(ledger: Ledger) -> Iterator[str]:
    """What no submission of ours has written: jobs that are none, paths that leave the folder, twins."""
    yield from _find_word_faults(ledger)
    for job in ledger.jobs:
        for number in (job.job, *job.after):
            if not _NUMBER.fullmatch(number):
                yield f"'{sanitize(number)}' is no job"
        if not STEP_NAME.fullmatch(job.step):
            yield f"'{sanitize(job.step)}' cannot be the name of a step"
        for path in (job.script, job.log, *job.before):
            if not is_plain_path(path):
                yield f"'{sanitize(path)}' is not a plain path inside the plan folder"
    if len({job.step for job in ledger.jobs}) < len(ledger.jobs):
        yield "two jobs of one step"
    if ledger.kind == "run" and len(ledger.jobs) != 1:
        yield "a command has one job"


def _find_word_faults(ledger: Ledger) -> Iterator[str]:
    if not (ledger.output.isprintable() and ledger.output.startswith("/") and len(ledger.output) < LONGEST):
        yield f"'{sanitize(ledger.output)}' is no absolute path of an image"
    if ledger.command and not _COMMAND.fullmatch(ledger.command):
        yield f"'{sanitize(ledger.command)}' is no file of a command"
    for result in ledger.lead.results:
        if result.log and not is_plain_path(result.log):
            yield f"'{sanitize(result.log)}' is not a plain path inside the plan folder"


def _make_error(path: Path, what: str) -> ConfigError:
    message = f"what was submitted from this folder cannot be read: {what}"
    fix = "look for the jobs with `squeue --me`; remove the file to start again"
    return ConfigError(Finding(code="jobs-file", message=message, at=Location(file=str(path)), fix=fix))
