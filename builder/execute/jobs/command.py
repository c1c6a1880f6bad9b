"""A user's command as a job: its output as it comes, its exit code in the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.execute.hold import hold
from builder.execute.jobs.finish import ledger_of
from builder.execute.jobs.follow import Follower, LogTail
from builder.execute.jobs.ledger import forget_command, note_finished
from builder.execute.jobs.slurm import Slurm
from builder.execute.jobs.steps import job_fault
from builder.execute.jobs.stopped import stopped
from builder.execute.mask import Mask
from builder.execute.options import Interrupted, Signals
from builder.model.finding import Finding


@dataclass(frozen=True, kw_only=True)
class CommandEnd:
    """How a command ended; `finding` says what Slurm did to its job."""

    exit_code: int
    seconds: float
    finding: Finding | None = None


def follow_command(
    folder: Path,
    *,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    note: Callable[[str], None],
    cancel_on_interrupt: bool = False,
) -> CommandEnd:
    """Follow the one job of a folder to its end; raises Interrupted, and StepError where it would wait for ever."""
    folder = folder.resolve()
    slurm, signals = Slurm(environment), Signals()
    with signals.caught(), hold(folder):
        ledger = ledger_of(folder)
        job = ledger.only
        log = LogTail(folder=folder, name=job.log, on_line=on_line, mask=Mask(environment))
        follower = Follower(job=job, folder=folder, slurm=slurm, log=log, on_tick=lambda: None, note=note)
        try:
            end = follower.follow()
        except Interrupted as stop:
            signals.hold()
            stop.message = stopped(ledger, folder=folder, slurm=slurm, cancel=cancel_on_interrupt)
            raise
        forget_command(ledger.command, folder)
        note_finished(ledger, folder, note=note)
        return CommandEnd(exit_code=end.exit_code, seconds=end.seconds, finding=job_fault(job, end, folder=folder))
