"""Slurm's own programs, asked in few words: sbatch, squeue, sacct, scancel, sinfo."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from builder.execute.asking import Captured, capture, which
from builder.execute.jobs.refusal import refusal
from builder.execute.preflight import HOW_TO_GET
from builder.model.finding import Finding, StepError, ToolError

ANSWER = 60.0  # seconds in which a controller under load still answers
# What belongs to the job that we may run in ourselves is no setting of another one ("SLURM_MEM_PER_CPU,
# SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive"), and these would change what a submission is.
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")
DROPPED = re.compile(r"SLURM_\w*|SLURMD_\w*|SQUEUE_\w*|SACCT_\w*|SBATCH_WAIT|SBATCH_ARRAY_INX|SBATCH_TEST_ONLY")
ENDED = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
)
NODE_LOST = frozenset(("BOOT_FAIL", "NODE_FAIL"))  # a script that ends with its node may well leave with 0
WAITING = frozenset(("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"))

SIGNALS = 31  # what is more, 0:53 for one, is a word of Slurm's own
_EXIT = re.compile(r"^(?:.*\bExitCode=)?(\d+):(\d+)\s*$", re.MULTILINE)
_ID = re.compile(r"(\d+)(?:;\S*)?")


@dataclass(frozen=True, kw_only=True)
class JobState:
    """What Slurm says of a job; `stage` is `lost` when it does not know the job any more."""

    stage: Literal["waiting", "running", "ended", "lost"]
    word: str = ""  # Slurm's own: PENDING, RUNNING, TIMEOUT ...
    reason: str = ""  # why it waits
    nodes: str = ""
    started: float = 0.0  # seconds since 1970, 0 where that is not known


class Slurm:
    """The scheduler as a user sees it; `environment` is the user's."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {
            name: value for name, value in environment.items() if name in KEPT or not DROPPED.fullmatch(name)
        }

    def check(self) -> None:
        """Raise ToolError where there is no sbatch."""
        if which("sbatch", env=self._environment) is None:
            message = "there is no 'sbatch' on PATH: no job can be submitted from this machine"
            raise ToolError(Finding(code="no-program", message=message, fix=HOW_TO_GET["sbatch"]))

    def test(self, arguments: Sequence[str], *, folder: Path, step: str, more: Mapping[str, str]) -> Finding | None:
        """Ask sbatch whether it would take a job; says why not."""
        answer = self._sbatch(["--test-only", *arguments], folder=folder, more=more)
        return None if answer.exit_code == 0 else refusal(answer.text, step=step)

    def submit(self, arguments: Sequence[str], *, folder: Path, step: str, more: Mapping[str, str]) -> str:
        """Submit a job from a folder and return its number; raises StepError."""
        answer = self._sbatch(["--parsable", *arguments], folder=folder, more=more)
        # Plug-ins of a site write lines of their own, before and after.
        found = [match[1] for line in answer.text.splitlines() if (match := _ID.fullmatch(line.strip()))]
        if answer.exit_code == 0 and found:
            return found[-1]
        raise StepError(refusal(answer.text, step=step, timed_out=answer.exit_code == 124))

    def states(self, jobs: Sequence[str]) -> dict[str, JobState] | None:
        """Say what becomes of jobs and tasks of arrays (12_3), by their numbers; None when nobody answers."""
        form = ["--noheader", "--array", "--states=all", "--format=%i|%T|%N|%S|%r"]
        answer = self._ask(["squeue", f"--jobs={','.join(jobs)}", *form])
        if answer.exit_code and "Invalid job id" not in answer.text:  # of a job that ended long ago
            return None
        found = {}
        for line in answer.text.splitlines():
            job, word, nodes, started, reason = (*line.strip().split("|", 4), "", "", "", "")[:5]
            if job in jobs and word:
                found[job] = JobState(
                    stage=_stage(word), word=word, nodes=nodes, reason=reason, started=_seconds(started)
                )
        gone = [job for job in jobs if job not in found]
        if not gone:
            return found
        past = self._past(gone)
        return found | past | self._never_begun([job for job in gone if past[job].stage == "lost"])

    def exit_code(self, job: str) -> int | None:
        """How a job's script ended, 128 + N by signal N; None where Slurm does not know it any more."""
        for words in (["scontrol", "show", "job", job], ["sacct", "-X", "-n", "-P", "-o", "ExitCode", "-j", job]):
            answer = self._ask(words)
            if answer.exit_code == 0 and (match := _EXIT.search(answer.text)):
                code, number = int(match[1]), int(match[2])
                return code if not number else 128 + number if number <= SIGNALS else None
        return None

    def cancel(self, jobs: Sequence[str]) -> None:
        """Cancel jobs; those that have ended stay as they are."""
        if jobs:
            self._ask(["scancel", "--quiet", *jobs])  # it ends badly where one has ended before

    def longest(self, partition: str) -> str:
        """The time limit of a partition, or of the default one, as Slurm writes it; "" where nobody says."""
        answer = self._ask(["sinfo", "--noheader", "--format=%P|%l"])
        for line in answer.text.splitlines() if answer.exit_code == 0 else ():
            name, bar, limit = line.strip().partition("|")
            if bar and (name.removesuffix("*") == partition if partition else name.endswith("*")):
                return limit
        return ""

    def _never_begun(self, tasks: Sequence[str]) -> dict[str, JobState]:
        """Tasks of arrays that were cancelled while they waited, where no accounting says so.

        A task that has begun has an entry of its own in the queue; those that wait share that of the array, which is
        there until the last of them is gone.
        """
        arrays = sorted({task.partition("_")[0] for task in tasks if "_" in task})
        if not arrays:
            return {}
        answer = self._ask(["squeue", f"--jobs={','.join(arrays)}", "--noheader", "--states=all", "--format=%F"])
        known = {line.strip() for line in answer.text.splitlines()} if answer.exit_code == 0 else set()
        cancelled = JobState(stage="ended", word="CANCELLED")
        return {task: cancelled for task in tasks if task.partition("_")[0] in known}

    def _past(self, jobs: Sequence[str]) -> dict[str, JobState]:
        """What the accounting says, where there is one."""
        found = {job: JobState(stage="lost") for job in jobs}
        words = ["sacct", "-X", "-n", "-P", "-o", "JobID,State,NodeList", "-j", ",".join(jobs)]
        answer = self._ask(words)
        for line in answer.text.splitlines() if answer.exit_code == 0 else ():
            job, _, rest = line.strip().partition("|")
            word, _, nodes = rest.partition("|")
            word = word.split(" ")[0]  # CANCELLED by 1000
            if job in found and word:
                found[job] = JobState(stage=_stage(word), word=word, nodes=nodes)
        return found

    def _sbatch(self, arguments: Sequence[str], *, folder: Path, more: Mapping[str, str]) -> Captured:
        environment = {**self._environment, **more}
        return capture(["sbatch", *arguments], env=environment, timeout=ANSWER, cwd=folder)

    def _ask(self, argv: Sequence[str]) -> Captured:
        return capture(argv, env=self._environment, timeout=ANSWER)


def _seconds(text: str) -> float:
    """Slurm's time, in the zone of who asks, as seconds since 1970."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0  # N/A


def _stage(word: str) -> Literal["waiting", "running", "ended"]:
    if word in ENDED:
        return "ended"
    return "waiting" if word in WAITING else "running"
