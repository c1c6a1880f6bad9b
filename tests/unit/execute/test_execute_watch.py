"""Several builds as jobs, without Slurm: one question for all of them, and each is judged by its own jobs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from builder.execute.plan_folder import write_plan
from builder.execute.progress import QuietProgress, SingleProgress
from builder.model.plan import Plan
from builder.pipeline import batch
from builder.pipeline.batch import follow
from builder.pipeline.request import Outcomes
from builder.slurm.client import JobState, Slurm
from builder.slurm.ledger import Ledger, SubmittedJob, write_ledger
from builder.slurm.monitor import Monitor
from builder.slurm.submitted_jobs import describe_interrupt

PlanOf = Callable[..., Plan]
RECORD = {"schema": 1, "exit_code": 3, "reason": "", "started": 1.0, "ended": 2.0, "nodes": "n1", "log": "x.log"}


class StandInSlurm(Slurm):
    """Answers with what it is given, one answer a question; the last one stays."""

    def __init__(self, *answers: Mapping[str, JobState] | None) -> None:
        super().__init__({})
        self.answers, self.asked, self.cancelled = list(answers), list[list[str]](), list[str]()

    def query_states(self, jobs: Sequence[str]) -> dict[str, JobState] | None:
        self.asked.append(list(jobs))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return None if answer is None else {job: state for job, state in answer.items() if job in jobs}

    def cancel(self, jobs: Sequence[str]) -> None:
        self.cancelled += jobs


def state(stage: str, word: str, *, reason: str = "", nodes: str = "") -> JobState:
    return JobState(stage=stage, word=word, reason=reason, nodes=nodes)  # type: ignore[arg-type]


WAITS, RUNS = state("waiting", "PENDING", reason="Priority"), state("running", "RUNNING", nodes="n1")
FAILED = state("ended", "FAILED", nodes="n1")


class Screen:
    """Keeps what a user would see."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, str]] = []

    def report(self, name: str, report: Any) -> None:
        self.reports.append((name, report.status))


@pytest.fixture
def folders(plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Two plan folders whose build and smoke test are tasks of arrays, followed without patience."""
    monkeypatch.setattr("builder.slurm.monitor.LOOK", (0.001, 0.001))
    monkeypatch.setattr("builder.slurm.monitor.ASK", (0.05, 0.1))
    steps = {"build": {"text": "", "produces": ("image.sif",)}, "smoke": {"text": "", "kind": "smoke"}}
    found = {}
    for number, name in enumerate(("a", "b")):
        folder = tmp_path / f"{name}.plan"
        write_plan(plan_of(steps), folder, recipe_folder=tmp_path)
        jobs = tuple(
            SubmittedJob(job=f"{array}_{number}", step=step, script="x.sbatch", log="x.log", submitted=1.0)
            for array, step in ((7, "build"), (8, "smoke"))
        )
        write_ledger(Ledger(site="s", kind="build", output=str(folder.with_suffix(".sif")), jobs=jobs), folder)
        found[name] = folder
    return found


def leave_record(folder: Path, job: str) -> None:
    (folder / f"jobs/{job}.json").write_text(json.dumps({**RECORD, "job": job}))


def followed(
    folders: Mapping[str, Path], slurm: StandInSlurm, monkeypatch: pytest.MonkeyPatch
) -> tuple[Outcomes, Screen]:
    monkeypatch.setattr(batch, "Slurm", lambda _: slurm)
    screen: Any = Screen()
    environment = {"PATH": "/nonexistent"}
    ended = follow(
        folders, environment=environment, place=Path("out"), ui=screen, display=SingleProgress(QuietProgress())
    )
    return ended, screen


def test_each_build_is_judged_by_its_own_jobs(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_record(folders["a"], "7_0")
    leave_record(folders["b"], "7_1")
    all_of = {"8_0": WAITS, "8_1": WAITS}
    slurm = StandInSlurm({**all_of, "7_0": FAILED, "7_1": RUNS}, None, {**all_of, "7_0": FAILED, "7_1": FAILED})
    ended, screen = followed(folders, slurm, monkeypatch)
    assert {name: one.code for name, one in ended.outcomes.items()} == {"a": 5, "b": 5}
    assert sorted(screen.reports) == [("a", "failed"), ("b", "failed")]
    assert set(slurm.cancelled) == {"8_0", "8_1"}  # for what never comes nothing waits


def test_one_question_is_for_the_jobs_of_all(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = StandInSlurm({"7_0": FAILED, "7_1": FAILED})
    leave_record(folders["a"], "7_0")
    leave_record(folders["b"], "7_1")
    followed(folders, slurm, monkeypatch)
    assert slurm.asked[0] == ["7_0", "7_1", "8_0", "8_1"]


def test_what_never_starts_is_not_waited_for(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    never = state("waiting", "PENDING", reason="AccountNotAllowed")
    slurm = StandInSlurm({"7_0": never, "7_1": never, "8_0": WAITS, "8_1": WAITS})
    ended, _ = followed(folders, slurm, monkeypatch)
    assert {one.word for one in ended.outcomes.values()} == {"failed"}
    assert {"7_0", "7_1"} <= set(slurm.cancelled)


def test_an_answer_serves_all_who_asked_for_no_newer_one() -> None:
    slurm = StandInSlurm({"1": RUNS, "2": WAITS})
    monitor = Monitor(slurm, jobs=["1", "2"], builds=2)
    when, first = monitor.ask("1", since=0.0)
    assert (first, monitor.ask("2", since=when - 1)) == (RUNS, (when, WAITS))
    assert len(slurm.asked) == 1
    assert monitor.ask("2", since=when)[0] > when
    monitor.drop("2")
    monitor.ask("1", since=monitor.ask("3", since=0.0)[0])
    assert slurm.asked[2:] == [["1", "3"], ["1", "3"]]


def test_so_many_at_a_time_work_on_what_jobs_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builder.slurm.monitor.choose_parallelism", lambda _: 1)
    monitor, waits, others = Monitor(StandInSlurm({}), builds=2), threading.Event(), threading.Event()
    order = []

    def second() -> None:
        with monitor.take_turn():
            order.append("second")
            waits.set()
            others.wait(10)
            order.append("second ends")

    thread = threading.Thread(target=second)
    with monitor.take_turn():
        order.append("first")
        thread.start()
        with monitor.yield_turn():
            assert waits.wait(10)
            others.set()
        order.append("first again")
    thread.join()
    assert order == ["first", "second", "second ends", "first again"]


def test_who_is_stopped_while_a_job_runs_takes_no_turn_again() -> None:
    monitor = Monitor(StandInSlurm({}))
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt), monitor.take_turn(), monitor.yield_turn():
            raise KeyboardInterrupt
    with monitor.take_turn():
        pass


def test_the_words_when_someone_stops_following() -> None:
    some = describe_interrupt(["1", "2"], place=Path("x.plan"), cancelled=False)
    assert some.startswith("interrupted: jobs 1, 2 in the queue or running; `recipe status x.plan`")
    assert describe_interrupt(["1"], place=Path("x"), cancelled=True) == "interrupted: job 1 cancelled"
    assert "9 jobs" in describe_interrupt([str(job) for job in range(9)], place=Path("x"), cancelled=False)
    assert "all jobs have ended" in describe_interrupt([], place=Path("x"), cancelled=False)
