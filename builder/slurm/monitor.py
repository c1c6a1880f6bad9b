"""Follow jobs to their end: each log as it grows, Slurm's word for all of them, and the record that each leaves.

Steps that were submitted as jobs are run by waiting for them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from builder.execute.parallel import choose_parallelism
from builder.execute.progress import Progress
from builder.execute.step_runner import EventRelay, OutputStat
from builder.model.finding import Finding, Level, Location, StepError
from builder.model.plan import Step
from builder.model.text import format_clock
from builder.slurm.client import NODE_LOST, JobState, Slurm, explain_endless_wait
from builder.slurm.ledger import JobRecord, Ledger, SubmittedJob, drop_old_record, read_record
from builder.system.layout import EVENTS, JOBS
from builder.system.process import ProcessResult
from builder.system.step_output import TAIL_LINES, Event, Lines, open_events_below, shorten
from builder.system.trust import open_below

LOOK = 0.25, 2.0  # seconds between two looks at a log and a record: for each build that is followed, and at most
ASK = (1.0, 15.0)  # seconds between two questions to Slurm, at first and at most: its controllers are shared
LAG = 15.0  # seconds that a file of another node may take to be seen here
LOST = 60.0  # seconds until a job that Slurm does not know counts as lost
BLOCK = 1024 * 1024
STOPPED = 128 + 15  # what a shell says of a program that SIGTERM has ended
LAUNCHER = frozenset((0, 1, 168, 187, 229))  # codes of srun itself where the job is gone: own_code of record.sh
NOT_LAUNCHED = "JobLaunchFailure"  # the node could not begin it: no folder, no room for its log


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """How a job ended; `reason` is "" for its own end, `word` is Slurm's."""

    exit_code: int
    reason: str = ""
    word: str = ""
    recorded: bool = False  # it left a record
    seconds: float = 0.0
    tail: tuple[str, ...] = ()


@dataclass(kw_only=True)
class LogTail:
    """The lines of a growing file of a plan folder, each once; a file that is not there yet has none."""

    folder: Path
    name: str
    on_line: Callable[[str], None]
    mask: Callable[[str], str]
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    _offset: int = 0
    _lines: Lines = field(default_factory=Lines)

    def read(self) -> bool:
        """Take what is new; False when nothing is."""
        try:
            with os.fdopen(open_below(self.folder, self.name), "rb") as file:
                file.seek(self._offset)
                data = file.read(BLOCK)
        except OSError:
            return False
        self._offset += len(data)
        for line in self._lines.feed(data):
            self._take(line.text, passing=line.passing)
        return bool(data)

    def close(self) -> None:
        """Take the rest, also a last line without an end."""
        while self.read():
            pass
        for line in self._lines.close():
            self._take(line.text)

    def _take(self, text: str, *, passing: bool = False) -> None:
        text = shorten(self.mask(text))
        if not passing:
            self.recent.append(text)
        self.on_line(text)


class Monitor:
    """What all builds that are followed share: one question to Slurm for all jobs, since its controllers are shared.

    Each build is followed in a thread. So many at a time work on what jobs have left: these read whole images.
    """

    def __init__(self, slurm: Slurm, *, jobs: Iterable[str] = (), builds: int = 1) -> None:
        self.slurm = slurm
        self.look = min(LOOK[0] * max(builds, 1), LOOK[1])
        self._lock = threading.Lock()
        self._jobs = set(jobs)
        self._asked: frozenset[str] = frozenset()
        self._when = -inf
        self._states: Mapping[str, JobState] | None = None
        self._turns = threading.Semaphore(choose_parallelism(max(builds, 1)))
        self._mine = threading.local()

    def ask(self, job: str, *, since: float) -> tuple[float, JobState | None]:
        """Slurm's word for a job, None without an answer, and when it was asked: after `since`, both monotonic."""
        with self._lock:
            self._jobs.add(job)
            if self._when <= since or job not in self._asked:
                self._when, self._asked = time.monotonic(), frozenset(self._jobs)
                self._states = self.slurm.query_states(sorted(self._asked))
            return self._when, self._states.get(job) if self._states else None

    def drop(self, job: str) -> None:
        """Do not ask about a job any more: it has ended."""
        with self._lock:
            self._jobs.discard(job)

    @contextmanager
    def take_turn(self) -> Iterator[None]:
        """Work on what jobs have left, when it is this thread's turn."""
        self._turns.acquire()
        self._mine.turn = True
        try:
            yield
        finally:
            if self._mine.turn:
                self._turns.release()

    @contextmanager
    def yield_turn(self) -> Iterator[None]:
        """Wait for a job, while other threads have their turn."""
        self._mine.turn = False
        self._turns.release()
        yield  # what is raised in here ends this thread's work: it takes no turn again
        self._turns.acquire()
        self._mine.turn = True


@dataclass(kw_only=True)
class Follower:
    """One job under watch; raises StepError for a job that would never start, and cancels it."""

    job: SubmittedJob
    folder: Path
    monitor: Monitor
    log: LogTail
    on_tick: Callable[[], None]
    note: Callable[[str], None]
    _said: str = ""
    _pause: float = ASK[0]
    _seen: JobRecord | None = None
    _cleared: float | None = None  # when its last record was seen first
    _ended: float | None = None  # when it ended, or when Slurm did not know it first

    def follow(self) -> JobResult:
        """Wait for the end."""
        asked = -inf
        while True:
            self.log.read()
            self.on_tick()
            now = time.monotonic()
            record = read_record(self.folder, self.job.job)
            last = record is not None and not record.ending and record != self._seen
            if last or now - asked >= self._pause:
                self._seen = record
                asked, state = self.monitor.ask(self.job.job, since=now if last else asked + self._pause)
                self._note(state)
                end = self._find_end(record, state)
                if end is not None:
                    self.monitor.drop(self.job.job)
                    return end
                self._pause = min(self._pause * 1.5, ASK[1])
            time.sleep(self.monitor.look)

    def _note(self, state: JobState | None) -> None:
        """Print what has changed; raises StepError where it waits for what will never be."""
        if state is None:
            return
        if state.stage == "waiting":
            never = explain_endless_wait(state.reason, step=self.job.step, job=self.job.job)
            if never is not None:
                self.monitor.slurm.cancel([self.job.job])
                raise StepError(never)
        text = _describe_state(self.job.job, state)
        if text and text != self._said:
            self._said, self._pause = text, ASK[0]
            self.note(text)

    def _find_end(self, record: JobRecord | None, state: JobState | None) -> JobResult | None:
        """The end, when it has come, by the job's own record or by what Slurm says."""
        if state is not None:
            record = drop_old_record(record, started=state.started)
        if record is not None and not record.ending and (state is None or state.stage != "waiting"):
            return self._end_by_record(record, state)
        self._cleared = None
        return self._end_by_state(record, state)

    def _end_by_record(self, record: JobRecord, state: JobState | None) -> JobResult | None:
        """A record counts unless Slurm puts the job back into the queue: known when Slurm has cleared up after it."""
        self._cleared = self._cleared or time.monotonic()
        if state is None or state.stage != "running" or time.monotonic() - self._cleared >= LAG:
            return self._make_result(record, state)
        self._pause = ASK[0]
        return None

    def _end_by_state(self, record: JobRecord | None, state: JobState | None) -> JobResult | None:
        """Without a record, or with that of a job that was told to end: when nothing more can come."""
        if (state is None and record is None) or (state and state.stage not in ("ended", "lost")):
            self._ended = None
            return None
        self._ended = self._ended or time.monotonic() - _age(state)
        # A job that never had a node has nothing to write a record on.
        patience = LAG if state and state.nodes else 0.0 if state and state.stage == "ended" else LOST
        if time.monotonic() - self._ended < patience:
            self._pause = ASK[0]
            return None
        if record is not None:
            return self._make_result(record, state)
        self.log.close()
        done = state is not None and state.word == "COMPLETED"
        code = 0 if done else self.monitor.slurm.exit_code(self.job.job) or 1
        return JobResult(exit_code=code, word=_describe_end(state), tail=tuple(self.log.recent))

    def _make_result(self, record: JobRecord, state: JobState | None) -> JobResult:
        self.log.close()
        word, reason, code = state.word if state else "", record.reason, record.exit_code
        bad = bool(reason) or word in NODE_LOST
        # Slurm ends the steps of a job before its script: srun may find the job gone before the script hears of it, and
        # the script's own question to Slurm may be left without an answer.
        if code and not reason and word == "CANCELLED":
            reason = "cancelled"
        if reason == "cancelled" and code in LAUNCHER:
            code = STOPPED
        return JobResult(
            exit_code=code or int(bad),
            reason=reason,
            word=word,
            recorded=True,
            seconds=record.seconds,
            tail=tuple(self.log.recent),
        )


def _age(state: JobState | None) -> float:
    """Return the seconds since a job ended, by Slurm's clock; 0 where Slurm does not say when."""
    return max(0.0, time.time() - state.ended) if state and state.stage == "ended" and state.ended else 0.0


def _describe_end(state: JobState | None) -> str:
    """How Slurm says that a job has ended; its reason where that alone tells a job that never began."""
    if state is None or not state.word:
        return "LOST"
    return state.reason if state.reason == NOT_LAUNCHED else state.word


def _describe_state(job: str, state: JobState) -> str:
    if state.stage == "waiting":
        reason = state.reason.strip("()")
        return f"job {job} waits" + (f" ({reason})" if reason not in ("None", "") else "")
    return f"job {job} runs on {state.nodes}" if state.stage == "running" and state.word == "RUNNING" else ""


@dataclass(frozen=True, kw_only=True)
class SlurmRunner:
    """Runs steps whose jobs a ledger names, by waiting for them."""

    ledger: Ledger
    folder: Path
    monitor: Monitor
    progress: Progress
    mask: Callable[[str], str]
    ends: dict[str, JobResult] = field(default_factory=dict)

    def log(self, step: Step) -> Path:
        """The job's own log."""
        return self.folder / self._find_job(step).log

    def prepare_step(self, step: Step) -> Mapping[str, OutputStat | None]:
        """What was there when the job was submitted."""
        return self._find_job(step).before

    def run_step(self, step: Step, *, on_event: Callable[[Event], None]) -> ProcessResult:
        """Follow the job to its end; what it reports comes late, and from another machine."""
        job = self._find_job(step)
        events = open_events_below(self.folder, f"{JOBS}/{job.job}{EVENTS}", mask=self.mask)
        relay = EventRelay(events, on_event, self.progress)
        log = LogTail(folder=self.folder, name=job.log, on_line=self.progress.show_line, mask=self.mask)
        with self.monitor.yield_turn():
            end = Follower(
                job=job,
                folder=self.folder,
                monitor=self.monitor,
                log=log,
                on_tick=relay.refresh,
                note=self.progress.note,
            ).follow()
        relay.report_events()
        self.ends[step.name] = end
        return ProcessResult(exit_code=end.exit_code, seconds=end.seconds, tail=end.tail)

    def find_fault(self, step: Step, ended: ProcessResult) -> Finding | None:
        """What Slurm did to the job."""
        del ended
        return find_job_fault(self._find_job(step), self.ends[step.name], folder=self.folder)

    def _find_job(self, step: Step) -> SubmittedJob:
        job = self.ledger.find_job(step.name)
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


def find_job_fault(job: SubmittedJob, end: JobResult, *, folder: Path) -> Finding | None:
    """Say what Slurm did to a job, None where the job failed by itself and its log says why."""
    key = end.reason or end.word
    if key not in FATES or (end.recorded and not end.reason and key not in {"OUT_OF_MEMORY", *NODE_LOST}):
        return None
    code, what, fix = FATES[key]
    message = f"job {job.job} of step '{job.step}' {what}"
    if end.seconds:
        message += f" after {format_clock(end.seconds)}"
    if code == "job-no-record":
        message += f" with exit code {end.exit_code}, says Slurm, and left no record"
        if is_full(folder):
            message, fix = f"{message}: the disk of '{folder}' is full", f"make room there, then {AGAIN}"
    level: Level = "warning" if key == "COMPLETED" else "error"
    return Finding(code=code, message=message, fix=fix, at=Location(file=str(folder / job.log)), level=level)


def is_full(folder: Path) -> bool:
    """Whether a disk has no block or no file left for a record; a quota does not show here."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < SMALL or bool(found.f_files and not found.f_favail)
