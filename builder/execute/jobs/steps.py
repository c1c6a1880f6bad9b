"""Steps that were submitted as jobs, carried out by waiting for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from builder.execute.image.product import Seen
from builder.execute.jobs.follow import Follower, JobEnd, LogTail
from builder.execute.jobs.ledger import Ledger, Submitted
from builder.execute.jobs.slurm import NODE_LOST, Slurm
from builder.execute.process import Ended
from builder.execute.progress import Progress, duration
from builder.model.finding import Finding, Level, Place
from builder.model.plan import Step


@dataclass(frozen=True, kw_only=True)
class JobSteps:
    """The carrier of steps whose jobs a ledger names."""

    ledger: Ledger
    folder: Path
    slurm: Slurm
    progress: Progress
    mask: Callable[[str], str]
    ends: dict[str, JobEnd] = field(default_factory=dict)

    def log(self, step: Step) -> Path:
        """The job's own log."""
        return self.folder / self._job(step).log

    def before(self, step: Step) -> Mapping[str, Seen | None]:
        """What was there when the job was submitted."""
        return self._job(step).before

    def carry_out(self, step: Step, *, hear: Callable[[str], None]) -> Ended:
        """Follow the job to its end; what it says comes late, and from another machine."""
        del hear
        job = self._job(step)
        log = LogTail(folder=self.folder, name=job.log, on_line=self.progress.line, mask=self.mask)
        end = Follower(
            job=job,
            folder=self.folder,
            slurm=self.slurm,
            log=log,
            on_tick=self.progress.tick,
            note=self.progress.note,
        ).follow()
        self.ends[step.name] = end
        return Ended(exit_code=end.exit_code, seconds=end.seconds, tail=end.tail)

    def fault(self, step: Step, ended: Ended) -> Finding | None:
        """What Slurm did to the job."""
        del ended
        return job_fault(self._job(step), self.ends[step.name], folder=self.folder)

    def _job(self, step: Step) -> Submitted:
        job = self.ledger.of(step.name)
        assert job is not None, "only steps that were submitted are carried out"
        return job


AGAIN = "submit it again"
SMALL = 16 * 1024  # bytes

# Slurm's word or the record's reason -> code, what happened, what to do.
FATES: Mapping[str, tuple[str, str, str]] = {
    "time limit": ("job-time-limit", "ran out of time", "give it more with --time"),
    "TIMEOUT": ("job-time-limit", "ran out of time", "give it more with --time"),
    "DEADLINE": ("job-time-limit", "came to its deadline", "give it another one"),
    "cancelled": ("job-cancelled", "was cancelled", AGAIN),
    "CANCELLED": ("job-cancelled", "was cancelled", AGAIN),
    "preempted": ("job-preempted", "had to make room for another job", AGAIN),
    "PREEMPTED": ("job-preempted", "had to make room for another job", AGAIN),
    "ended by a signal": ("job-signal", "was ended by a signal", AGAIN),
    "OUT_OF_MEMORY": ("no-memory", "used up its memory", "ask for more with --mem"),
    "NODE_FAIL": ("job-node", "lost its node", AGAIN),
    "BOOT_FAIL": ("job-node", "got no node that starts", AGAIN),
    "JobLaunchFailure": (
        "job-launch",
        "could not be started by its node",
        "see that it has its folder, and room there",
    ),
    "FAILED": ("job-no-record", "failed", "see its log, and the space, the quota and the rights in its folder"),
    "COMPLETED": ("job-no-record", "came to its end", "see the space, the quota and the rights in its folder"),
    "LOST": ("job-lost", "is not known to Slurm any more and left no record", "see its log, and submit it again"),
}


def job_fault(job: Submitted, end: JobEnd, *, folder: Path) -> Finding | None:
    """Say what Slurm did to a job, None where the job failed by itself and its log says why."""
    key = end.reason or end.word
    if key not in FATES or (end.recorded and not end.reason and key not in {"OUT_OF_MEMORY", *NODE_LOST}):
        return None
    code, what, fix = FATES[key]
    message = f"job {job.job} of step '{job.step}' {what}"
    if end.seconds:
        message += f" after {duration(end.seconds)}"
    if code == "job-no-record":
        message += f" with exit code {end.exit_code}, says Slurm, and left no record"
        if is_full(folder):
            message, fix = f"{message}: the disk of '{folder}' is full", f"make room there, then {AGAIN}"
    level: Level = "warning" if key == "COMPLETED" else "error"
    return Finding(code=code, message=message, fix=fix, at=Place(file=str(folder / job.log)), level=level)


def is_full(folder: Path) -> bool:
    """Whether a disk has no block or no file left for a record; a quota does not show here."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < SMALL or bool(found.f_files and not found.f_favail)
