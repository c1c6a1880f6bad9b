"""Slurm's own programs (sbatch, squeue, sacct, scancel, sinfo), and why Slurm does not take a job or start it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal

from builder.execute.machine import BY_HAND
from builder.model.finding import Finding, StepError, ToolError
from builder.system.process import CapturedOutput, capture, find_program

_SPEAKER = re.compile(r"^(?:sbatch: )?(?:error: |fatal: )?(?:allocation failure: )?(?:Batch job submission failed: )?")

# What sbatch says (slurm_errno of 22.05 to 24.05), what it means, what to do.
REFUSALS: tuple[tuple[str, str, str, str], ...] = (
    (
        r"invalid partition(?: specified: (?P<what>\S+)| name)",
        "job-partition",
        "there is no partition '{what}' here",
        "choose one that `sinfo -s` lists, with --partition",
    ),
    (
        r"Invalid account or account/partition|Job's account not permitted|[Uu]ser's group not permitted"
        r"|account .*not (?:permitted|allowed|valid)|AssocGrp|must specify .*account|[Nn]o account",
        "job-account",
        "Slurm does not let this account use that partition, or none is given",
        "give your project's account with --account, or SBATCH_ACCOUNT (`sacctmgr show assoc user=$USER`)",
    ),
    (
        r"Invalid qos|qos .*not (?:permitted|allowed)|Job's QOS not permitted|Invalid QOS",
        "job-qos",
        "that quality of service is not yours",
        "choose another with --qos (`sacctmgr show qos`)",
    ),
    (
        r"Invalid --time specification|Invalid time limit",
        "job-time",
        "that is no time limit",
        "write minutes, or HH:MM:SS, or D-HH:MM:SS with --time",
    ),
    (
        r"time limit (?:is invalid|exceed)|Requested time limit is invalid|TimeLimit",
        "job-time",
        "the time limit is longer than the partition allows",
        "ask for less with --time, or choose another partition",
    ),
    (
        r"[Mm]emory specification can ?not be satisfied|Requested node configuration is not available"
        r"|More processors requested|Node count specification invalid|not enough nodes|Unable to satisfy",
        "job-size",
        "no node of that partition has the cores, the memory or the GPUs that the job asks for",
        "choose another partition with --partition, or fewer --nodes and --gpus",
    ),
    (
        r"[Ii]nvalid job array specification",
        "job-array",
        "an array of so many tasks is not taken",
        "build fewer at a time (`scontrol show config | grep MaxArraySize`)",
    ),
    (
        r"Job dependency problem|Invalid dependency",
        "job-dependency",
        "the job that --dependency names is not known",
        "check its number with squeue",
    ),
    (
        r"Unable to contact slurm controller|Unable to establish|fetch_config|configuration source",
        "no-slurm",
        "Slurm does not answer",
        "try again in a while; on a login node of the site it should",
    ),
    (
        r"limit|QOSMax|MaxSubmit|AssocMax",
        "job-limit",
        "a limit of your account or of the partition is reached",
        "ask for less, or wait until other jobs of yours have ended",
    ),
)

# Why a job waits, when waiting does not help: Slurm takes such jobs and never starts them.
HOPELESS: tuple[tuple[str, str], ...] = (
    (r"PartitionTimeLimit|Requested time limit exceeds", "job-time"),
    (r"PartitionNodeLimit|BadConstraints|PartitionConfig|ReqNodeNotAvail, .*DOWN", "job-size"),
    (r"AccountNotAllowed|[Jj]ob's account not|InvalidAccount|AssocAccountNotAllowed", "job-account"),
    (r"InvalidQOS|QOSNotAllowed|[Jj]ob's QOS not", "job-qos"),
    (r"DependencyNeverSatisfied", "job-dependency"),
)


def explain_rejection(text: str, *, step: str, timed_out: bool = False) -> Finding:
    """Explain what sbatch has said of the job of a step."""
    if timed_out:
        message = f"sbatch did not answer when the job of step '{step}' was submitted"
        fix = "look with `squeue --me` whether it is there, and cancel it with scancel"
        return Finding(code="no-slurm", message=message, fix=fix)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern, code, message, fix in REFUSALS:
        found = next((match for line in lines if (match := re.search(pattern, line))), None)
        if found is not None:
            what = (found.groupdict().get("what") or "").strip()
            said = _SPEAKER.sub("", found.string)
            told = message.format(what=what) if what else message.replace(" '{what}'", " of that name")
            return Finding(code=code, message=f"the job of step '{step}' is refused: {told} ({said})", fix=fix)
    said = _SPEAKER.sub("", lines[-1]) if lines else "sbatch said nothing"
    return Finding(
        code="job-refused",
        message=f"the job of step '{step}' is refused: {said[:200]}",
        fix="see what `sbatch --test-only` says of the script in the plan folder",
    )


def explain_endless_wait(reason: str, *, step: str, job: str) -> Finding | None:
    """Say that a waiting job will never start, None when it may."""
    for pattern, code in HOPELESS:
        if re.search(pattern, reason):
            message, fix = next((message, fix) for _, known, message, fix in REFUSALS if known == code)
            if "time" in pattern.lower():
                message, fix = next((m, f) for p, known, m, f in REFUSALS if known == code and "TimeLimit" in p)
            message = f"job {job} of step '{step}' would never start: {message} ({reason.strip('()')})"
            return Finding(code=code, message=message.replace(" '{what}'", ""), fix=fix)
    return None


ANSWER = 60.0  # seconds in which a controller under load still answers
# What belongs to the job that we may run in ourselves is no setting of another one ("SLURM_MEM_PER_CPU,
# SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive"), and these would change what a submission is.
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")
DROPPED = re.compile(r"SLURM_\w*|SLURMD_\w*|SQUEUE_\w*|SACCT_\w*|SBATCH_WAIT|SBATCH_ARRAY_INX|SBATCH_TEST_ONLY")
ENDED = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
)
NODE_LOST = frozenset(("BOOT_FAIL", "NODE_FAIL"))  # a script that ends with its node may well exit with 0
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
    ended: float = 0.0  # the same; of a job that runs, when its time limit comes
    expected: str = ""  # when Slurm expects to start a job that waits, as it writes it


class Slurm:
    """The scheduler as a user sees it; `environment` is the user's."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {
            name: value for name, value in environment.items() if name in KEPT or not DROPPED.fullmatch(name)
        }

    def check(self) -> None:
        """Raise ToolError where there is no sbatch."""
        if find_program("sbatch", env=self._environment) is None:
            message = "there is no 'sbatch' on PATH: no job can be submitted from this machine"
            raise ToolError(Finding(code="no-program", message=message, fix=BY_HAND["sbatch"]))

    def test(self, arguments: Sequence[str], *, folder: Path, step: str, more: Mapping[str, str]) -> Finding | None:
        """Ask sbatch whether it would take a job; says why not."""
        answer = self._run_sbatch(["--test-only", *arguments], folder=folder, more=more)
        return None if answer.exit_code == 0 else self._explain_rejection(answer.text, step=step)

    def submit(self, arguments: Sequence[str], *, folder: Path, step: str, more: Mapping[str, str]) -> str:
        """Submit a job from a folder and return its number; raises StepError."""
        answer = self._run_sbatch(["--parsable", *arguments], folder=folder, more=more)
        # Plug-ins of a site write lines of their own, before and after.
        found = [match[1] for line in answer.text.splitlines() if (match := _ID.fullmatch(line.strip()))]
        if answer.exit_code == 0 and found:
            return found[-1]
        raise StepError(self._explain_rejection(answer.text, step=step, timed_out=answer.exit_code == 124))

    def _explain_rejection(self, text: str, *, step: str, timed_out: bool = False) -> Finding:
        """Name the variables of this shell, too, whose values a submission takes."""
        finding = explain_rejection(text, step=step, timed_out=timed_out)
        names = ", ".join(sorted(name for name in self._environment if name.startswith("SBATCH_")))
        return replace(finding, fix=f"{finding.fix}; this shell sets {names}") if names else finding

    def query_states(self, jobs: Sequence[str]) -> dict[str, JobState] | None:
        """Say what becomes of jobs and tasks of arrays (12_3), by their numbers; None when Slurm does not answer."""
        form = ["--noheader", "--array", "--states=all", "--format=%i|%T|%N|%S|%e|%r"]
        answer = self._ask(["squeue", f"--jobs={','.join(jobs)}", *form])
        if answer.exit_code and "Invalid job id" not in answer.text:  # of a job that ended long ago
            return None
        found = {}
        for line in answer.text.splitlines():
            job, word, nodes, started, ended, reason = (*line.strip().split("|", 5), "", "", "", "", "")[:6]
            if job in jobs and word:
                found[job] = JobState(
                    stage=_find_stage(word),
                    word=word,
                    nodes=nodes,
                    reason=reason,
                    started=_parse_time(started),
                    ended=_parse_time(ended),
                )
        gone = [job for job in jobs if job not in found]
        if not gone:
            return found
        past = self._query_accounting(gone)
        return found | past | self._find_never_begun([job for job in gone if past[job].stage == "lost"])

    def query_expected_starts(self, jobs: Sequence[str]) -> dict[str, str]:
        """When Slurm expects to start jobs that wait, as it writes times; without those of which it does not say."""
        answer = self._ask(["squeue", "--start", "--noheader", "--array", f"--jobs={','.join(jobs)}", "--format=%i|%S"])
        found = {}
        for line in answer.text.splitlines() if answer.exit_code == 0 else ():
            job, _, time = line.strip().partition("|")
            if job in jobs and _parse_time(time):
                found[job] = time
        return found

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

    def query_time_limit(self, partition: str) -> str:
        """The time limit of a partition, or of the default one, as Slurm writes it; "" where it does not say."""
        answer = self._ask(["sinfo", "--noheader", "--format=%P|%l"])
        for line in answer.text.splitlines() if answer.exit_code == 0 else ():
            name, bar, limit = line.strip().partition("|")
            if bar and (name.removesuffix("*") == partition if partition else name.endswith("*")):
                return limit
        return ""

    def _find_never_begun(self, tasks: Sequence[str]) -> dict[str, JobState]:
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

    def _query_accounting(self, jobs: Sequence[str]) -> dict[str, JobState]:
        """What the accounting says, where there is one."""
        found = {job: JobState(stage="lost") for job in jobs}
        words = ["sacct", "-X", "-n", "-P", "-o", "JobID,State,NodeList,End", "-j", ",".join(jobs)]
        answer = self._ask(words)
        for line in answer.text.splitlines() if answer.exit_code == 0 else ():
            job, _, rest = line.strip().partition("|")
            word, nodes, ended = (*rest.split("|"), "", "", "")[:3]
            word = word.split(" ")[0]  # CANCELLED by 1000
            if job in found and word:
                found[job] = JobState(stage=_find_stage(word), word=word, nodes=nodes, ended=_parse_time(ended))
        return found

    def _run_sbatch(self, arguments: Sequence[str], *, folder: Path, more: Mapping[str, str]) -> CapturedOutput:
        environment = {**self._environment, **more}
        return capture(["sbatch", *arguments], env=environment, timeout=ANSWER, cwd=folder)

    def _ask(self, argv: Sequence[str]) -> CapturedOutput:
        return capture(argv, env=self._environment, timeout=ANSWER)


def _parse_time(text: str) -> float:
    """Slurm's time, in the zone of who asks, as seconds since 1970."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0  # N/A


def _find_stage(word: str) -> Literal["waiting", "running", "ended"]:
    if word in ENDED:
        return "ended"
    return "waiting" if word in WAITING else "running"
