"""What a job has left of itself: jobs/JOBID.json, written by its own script (record.sh)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from builder.model.text import to_dataclass
from builder.sif.bounded import parse_json
from builder.system.layout import JOBS
from builder.system.trust import read_below

SCHEMA = 1
LIMIT = 64 * 1024  # bytes
SKEW = 30.0  # seconds between two clocks; what Slurm begins again it puts off for two minutes


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


def name_record_file(folder: Path, job: str) -> Path:
    """The path of a job's record."""
    return folder / JOBS / f"{job}.json"


def read_record(folder: Path, job: str) -> JobRecord | None:
    """Read the record of a job, None when there is none or it is no record; raises ConfigError for a stranger's."""
    try:
        content = read_below(folder, f"{JOBS}/{job}.json", limit=LIMIT)
        record = to_dataclass(JobRecord, parse_json(content), schema=SCHEMA, what="record", more=True)
    except (OSError, ValueError):
        return None
    return record if record.job == job else None


def drop_old_record(record: JobRecord | None, *, started: float) -> JobRecord | None:
    """Give a record unless Slurm has begun the job again since: until its script works, the old one is there."""
    if record is not None and started > record.ended + SKEW:
        return None
    return record
