"""What is said, and done, when someone stops following jobs."""

from __future__ import annotations

from pathlib import Path

from builder.execute.jobs.ledger import Ledger
from builder.execute.jobs.record import read_record
from builder.execute.jobs.slurm import Slurm


def stopped(ledger: Ledger, *, folder: Path, slurm: Slurm, cancel: bool) -> str:
    """Cancel the jobs that have not ended where that was asked for; the words for the user."""
    jobs = [job.job for job in ledger.jobs if read_record(folder, job.job) is None]
    if not jobs:
        return f"interrupted: all jobs have ended; `recipe status {folder}` judges them"
    named = ("job " if len(jobs) == 1 else "jobs ") + ", ".join(jobs)
    if cancel:
        slurm.cancel(jobs)
        return f"interrupted: {named} cancelled"
    return f"interrupted: {named} in the queue or running; `recipe status {folder}` comes back, --cancel ends them"
