"""Tasks of arrays without Slurm: what its answers mean, and when a kit is at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from builder.execute.plan_folder import write_plan
from builder.model.plan import Plan
from builder.slurm import status as module
from builder.slurm.client import JobState, Slurm
from builder.slurm.state import Ledger, Submitted
from builder.slurm.status import Watched, watch

PlanOf = Callable[..., Plan]


class StandInSlurm(Slurm):
    """Answers with what it is given, one answer a question; the last one stays."""

    def __init__(self, *answers: Mapping[str, JobState] | None) -> None:
        super().__init__({})
        self.answers, self.asked = list(answers), 0

    def states(self, jobs: Sequence[str]) -> dict[str, JobState] | None:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return None if answer is None else {job: state for job, state in answer.items() if job in jobs}


def state(stage: str, word: str, *, reason: str = "", nodes: str = "") -> JobState:
    return JobState(stage=stage, word=word, reason=reason, nodes=nodes)  # type: ignore[arg-type]


WAITS, RUNS = state("waiting", "PENDING", reason="Priority"), state("running", "RUNNING", nodes="n1")
ENDED, FAILED = state("ended", "COMPLETED", nodes="n1"), state("ended", "FAILED", nodes="n1")


@pytest.fixture
def kits(plan_of: PlanOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Watched]:
    """Two kits of a build and a smoke test each, watched without patience."""
    monkeypatch.setattr(module, "LOOK", 0.001)
    monkeypatch.setattr(module, "ASK", (0.001, 0.002))
    steps = {"build": {"text": ""}, "smoke": {"text": "", "kind": "smoke"}}
    found = {}
    for number, name in enumerate(("a", "b")):
        folder = tmp_path / f"{name}.plan"
        write_plan(plan_of(steps), folder, recipe_folder=tmp_path)
        jobs = tuple(
            Submitted(job=f"{array}_{number}", step=step, script="x.sbatch", log="x.log")
            for array, step in ((7, "build"), (8, "smoke"))
        )
        found[name] = Watched.of(
            Ledger(site="s", kind="build", output=str(folder.with_suffix(".sif")), jobs=jobs), folder
        )
    return found


def test_each_is_given_when_its_own_jobs_have_ended(kits: dict[str, Watched]) -> None:
    slurm = StandInSlurm(
        {"7_0": RUNS, "7_1": WAITS, "8_0": WAITS, "8_1": WAITS},
        None,  # nobody answers
        {"7_0": ENDED, "7_1": RUNS, "8_0": ENDED, "8_1": WAITS},
        {"7_1": ENDED, "8_1": ENDED},
    )
    said: list[tuple[str, str]] = []
    ended = []
    for name in watch(kits, slurm=slurm, say=lambda name, text: said.append((name, text))):
        ended.append((name, slurm.asked))
    assert ended == [("a", 3), ("b", 4)]
    assert ("a", "job 7_0, build: runs on n1") in said
    assert not any("does not answer" in text for _, text in said)  # it is asked again
    assert len(said) == len(set(said))


def test_a_failed_build_ends_its_own_plan_alone(kits: dict[str, Watched]) -> None:
    slurm = StandInSlurm({"7_0": FAILED, "7_1": RUNS, "8_0": WAITS, "8_1": WAITS}, {"7_1": ENDED, "8_1": ENDED})
    assert list(watch(kits, slurm=slurm, say=lambda *_: None)) == ["a", "b"]


def test_what_never_starts_is_not_waited_for(kits: dict[str, Watched]) -> None:
    never = state("waiting", "PENDING", reason="AccountNotAllowed")
    slurm = StandInSlurm({"7_0": never, "7_1": never, "8_0": WAITS, "8_1": WAITS})
    assert list(watch(kits, slurm=slurm, say=lambda *_: None)) == ["a", "b"]
