"""Builds that are stopped: nothing of a step outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_plans import MAKES_IMAGE, Place, alive, driven, own_word, plan_of, until

from builder.execute.folder_lock import lock_folder
from builder.system import process
from builder.system.process import run

LONG = 120.0  # seconds between SIGTERM and SIGKILL, which a busy machine does not need for what SIGTERM ends


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def word() -> Iterator[str]:
    """A word for command lines that no other process has."""
    with own_word() as made:
        yield made


STUBBORN = """\
trap '' TERM INT HUP
bash -c 'trap "" TERM INT HUP; touch started-1; while :; do sleep 0.2; done; : {word}' &
setsid bash -c 'trap "" TERM INT HUP; touch started-2; while :; do sleep 0.2; done; : {word}' &
(setsid nohup bash -c 'trap "" TERM INT HUP; touch started-3; while :; do sleep 0.2; done; : {word}' >/dev/null 2>&1 &)
mkdir -p "$RECIPE_TMPDIR/rootfs"; chmod 0 "$RECIPE_TMPDIR/rootfs"
while :; do sleep 0.2; done
"""


def test_a_signal_meets_a_step_that_is_just_starting_programs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "TICK", 0.001)
    script = "trap 'sleep 0.1; echo cleaned; exit 1' TERM; touch started; sleep 600 & wait"
    place.write(plan_of(build=script))
    command = ["bash", str(place.kit / "build.sh")]

    def stop_at_once() -> None:
        if (place.kit / "started").exists():
            raise KeyboardInterrupt

    for number in range(12):
        log = place.root / f"{number}.log"
        (place.kit / "started").unlink(missing_ok=True)
        before = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            run(command, cwd=place.kit, env=dict(os.environ), log=log, on_line=str, on_tick=stop_at_once, grace=LONG)
        assert log.read_text().endswith("cleaned\n")  # bash may say which of its programs was terminated
        assert time.monotonic() - before < LONG  # none was left until SIGKILL


# Deaf to SIGTERM until it has ended its parent, like the child of a shell between fork and exec.
DEAF_AT_FIRST = """\
bash -c 'trap "" TERM; touch started; while kill -0 $PPID; do sleep 0.05; done; trap - TERM; exec sleep 600' &
trap 'sleep 0.2; exit 1' TERM
wait
"""


def test_a_process_that_lost_the_signal_gets_it_after_its_parent(place: Place) -> None:
    place.write(plan_of(build=DEAF_AT_FIRST))

    def stop_when_started() -> None:
        if (place.kit / "started").exists():
            raise KeyboardInterrupt

    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(
            ["bash", str(place.kit / "build.sh")],
            cwd=place.kit,
            env=dict(os.environ),
            log=place.root / "log",
            on_line=str,
            on_tick=stop_when_started,
            grace=LONG,
        )
    assert time.monotonic() - before < LONG


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_stopped_build_ends_everything_and_the_next_one_works(
    place: Place, word: str, number: signal.Signals
) -> None:
    place.write(plan_of(build=STUBBORN.replace("{word}", word), after="true"))
    started = [place.kit / f"started-{number}" for number in (1, 2, 3)]
    with driven(place.kit) as driver:
        until(lambda: all(path.exists() for path in started))
        assert len(alive(word)) >= 3  # and what they are forking right now
        driver.send_signal(number)
        time.sleep(0.3)
        driver.send_signal(number)  # no patience: SIGKILL now
        assert driver.wait(timeout=120) == 128 + number
    assert alive(word) == {}
    report = json.loads((place.kit / "report.json").read_text())
    assert report["status"] == "interrupted"
    assert [(step["status"], step["exit_code"]) for step in report["steps"]] == [
        ("interrupted", 128 + number),
        ("skipped", None),
    ]
    assert report["findings"][0]["message"] == f"the build was stopped by {number.name}"
    assert not place.output.exists()
    assert place.clean()
    assert place.execute(plan_of(build=MAKES_IMAGE)).status == "passed"


def test_a_step_may_clean_up_after_sigterm(place: Place, word: str) -> None:
    script = f"trap 'sleep 0.3; echo cleaned; exit 1' TERM; touch started; sleep 60 & wait; : {word}"
    place.write(plan_of(build=script))
    with driven(place.kit) as driver:
        until((place.kit / "started").exists)
        driver.terminate()
        assert driver.wait(timeout=120) == 143
    assert place.log() == "cleaned\n"


def test_what_a_killed_build_left_is_removed_by_the_next(place: Place, word: str) -> None:
    script = f"touch $RECIPE_TMPDIR/big; bash -c 'touch started; while :; do sleep 0.2; done; : {word}'"
    place.write(plan_of(build=script))
    with driven(place.kit) as driver:
        until((place.kit / "started").exists)
        driver.kill()
        driver.wait()
    assert alive(word)  # SIGKILL leaves the step itself running: it would write under the next build
    assert len(list(place.tmp.iterdir())) == 1
    report = place.execute(plan_of(build=MAKES_IMAGE))
    assert report.status == "passed"
    assert alive(word) == {}
    assert place.clean()


def test_what_a_step_leaves_running_is_ended(place: Place, word: str) -> None:
    script = f"(setsid bash -c 'while :; do sleep 0.1; done; : {word}' &)\n{MAKES_IMAGE}"
    before = time.monotonic()
    assert place.execute(plan_of(build=script)).status == "passed"
    assert time.monotonic() - before < 300  # the pipe that it holds does not hold us
    assert alive(word) == {}


def test_output_that_comes_after_the_end_of_a_script_is_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "DRAIN", 120.0)  # a second may be too short for `cat` where others have the cores
    place.execute(plan_of(build=f"exec > >(sleep 0.3; cat)\n{MAKES_IMAGE}echo late"))
    assert place.log() == "late\n"


def test_a_step_that_takes_too_long(place: Place, word: str) -> None:
    report = place.execute(plan_of(build=f"bash -c 'sleep 60; : {word}'"), step_seconds=0.3)
    assert report.findings[0].code == "step-timeout"
    assert report.steps[0].exit_code == 124
    assert place.clean()


def test_a_job_that_a_step_submitted_outlives_it(place: Place, word: str) -> None:
    start = "setsid {} bash -c 'while :; do sleep 0.1; done; : {} {}' &"
    job, own = start.format("env SLURM_JOB_ID=77", word, "job"), start.format("", word, "own")
    assert place.execute(plan_of(build=f"({job})\n({own})\n{MAKES_IMAGE}")).status == "passed"
    left = alive(word)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(word))
    assert [line.split()[-1] for line in left.values()] == ["job"]


def test_a_step_does_not_inherit_the_lock(place: Place, word: str) -> None:
    place.write(plan_of(build="true"))
    with lock_folder(place.kit):
        child = subprocess.Popen(["bash", "-c", f"while :; do sleep 0.2; done; : {word}"])
    try:
        with lock_folder(place.kit):  # raises when somebody still has it
            assert child.poll() is None
    finally:
        child.kill()
        child.wait()
