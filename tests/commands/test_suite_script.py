"""suite.sh: what becomes of a suite however its workloads end; bash alone, with a stand-in for the image."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from builder.compile.render import read_template

# The stand-in for the image ends a workload with the code in a file of its name; `conclude` writes a verdict.
SCRIPT = r"""set -eu
. ./engine.sh
. ./run/container.sh
. ./suite.sh
in_image_stand_in() {
    case "$4" in
        conclude) echo "$*" >>calls
           if [ -e no-python ]; then return 127; fi
           echo '{"verdict": "pass"}' >"$5/verdict.json" ;;
        *) echo "$*" >>words
           echo "$4 one=${RECIPE_ONE_PROCESS:-no} path=${PYTHONPATH-unset} tmp=${TMPDIR-unset}" >>calls
           if [ -e "code-$4" ]; then return "$(cat "code-$4")"; fi ;;
    esac
}
launch() { in_image_stand_in "$@"; }
in_image() { in_image_stand_in "$@"; }
begin_suite node probe ddp mnist
every_rank probe --timeout 5
every_rank ddp
one_process mnist
conclude_suite
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the scripts, as a plan folder has them."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "container.sh").write_text("digits=()\n")
    for name in ("engine.sh", "suite.sh"):
        (tmp_path / name).write_text(read_template(name))
    (tmp_path / "job.sh").write_text(SCRIPT)
    return tmp_path


def play(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "calls").unlink(missing_ok=True)
    return subprocess.run(
        ["bash", "job.sh"], cwd=folder, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_workloads_run_in_order_without_the_users_python(folder: Path) -> None:
    old = folder / "results" / "node" / "old.json"
    old.parent.mkdir(parents=True)
    old.touch()
    assert play(folder, PYTHONPATH="/home/me/lib", TMPDIR="/tmp/../tmp").returncode == 0
    assert calls(folder) == [
        "probe one=no path=unset tmp=unset",
        "ddp one=no path=unset tmp=unset",
        "mnist one=yes path=unset tmp=unset",
        f"python3 -B smoke conclude {folder}/results/node --expect probe,ddp,mnist",
    ]
    assert not old.exists()


def test_real_digits_reach_each_workload_that_trains(folder: Path) -> None:
    (folder / "run" / "container.sh").write_text("digits=(--data /media)\n")
    assert play(folder).returncode == 0
    words = [line.split() for line in (folder / "words").read_text().splitlines()]
    assert {line[3]: line[-2:] == ["--data", "/media"] for line in words} == {
        "probe": False,
        "ddp": True,
        "mnist": True,
    }


def test_a_workload_that_fails_does_not_stop_the_others(folder: Path) -> None:
    (folder / "code-probe").write_text("1")
    assert play(folder).returncode == 0  # the verdict is what is read from the results
    assert [line.split()[0] for line in calls(folder)] == ["probe", "ddp", "mnist", "python3"]


def test_after_sigterm_nothing_more_is_begun(folder: Path) -> None:
    (folder / "code-ddp").write_text("143")
    assert play(folder).returncode == 143  # so that the job's record can say what it meant
    assert [line.split()[0] for line in calls(folder)] == ["probe", "ddp", "python3"]
    assert calls(folder)[-1].endswith("--reason ended by SIGTERM in ddp")
    (folder / "job.sh").write_text(SCRIPT.replace("begin_suite", "near_limit() { true; }\nbegin_suite", 1))
    assert play(folder).returncode == 143
    assert calls(folder)[-1].endswith("--reason time limit, in ddp")


def test_a_snapshot_is_kept_only_of_an_interrupted_training(folder: Path) -> None:
    snapshot = folder / "results" / "node" / "ddp-4.snapshot"
    snapshot.parent.mkdir(parents=True)
    (folder / "run" / "container.sh").write_text("image=image.sif\n")
    (folder / "job.sh").write_text(SCRIPT.replace("begin_suite", "image=image.sif\nbegin_suite", 1))
    (folder / "image.sif").touch()
    snapshot.touch()
    (folder / "code-ddp").write_text("143")
    assert play(folder).returncode == 143
    assert snapshot.exists()
    os.utime(snapshot, (1, 1))  # older than the image
    play(folder)
    assert not snapshot.exists()
    for code in ("0", "1"):
        snapshot.touch()
        (folder / "code-ddp").write_text(code)
        play(folder)
        assert not snapshot.exists()


def test_an_image_without_python_gets_its_verdict_from_bash(folder: Path) -> None:
    (folder / "no-python").touch()
    done = play(folder)
    assert done.returncode == 1
    verdict = json.loads((folder / "results" / "node" / "verdict.json").read_text())
    assert verdict == {
        "schema": 1,
        "verdict": "FAIL",
        "reason": "the image did not start a Python that could judge (exit code 127)",
        "host": os.uname().nodename,
        "workloads": {},
    }
    assert "verdict: FAIL" in done.stdout
    assert not list((folder / "results" / "node").glob(".*"))


def test_results_elsewhere(folder: Path) -> None:
    assert play(folder, RECIPE_RESULTS="else where").returncode == 0
    assert calls(folder)[-1].startswith(f"python3 -B smoke conclude {folder}/else where/node ")
    assert not (folder / "results").exists()


def test_an_unwritable_folder_is_reported_before_the_start(folder: Path) -> None:
    (folder / "file").touch()
    done = play(folder, RECIPE_RESULTS=str(folder / "file"))
    assert done.returncode == 1
    what = f"results cannot be written to '{folder}/file/node': name another folder by RECIPE_RESULTS=/path"
    assert done.stderr == f"recipe: error: {what}\n"
    assert not (folder / "calls").exists()


@pytest.mark.parametrize(("codes", "code"), [("0 0 0", 0), ("0 7 0", 7), ("9 0 0", 9)])
def test_plain_ranks_end_with_the_first_that_fails(folder: Path, codes: str, code: int) -> None:
    (folder / "job.sh").write_text(
        f"set -eu\n. ./engine.sh\n. ./suite.sh\nCODES=({codes})\n"
        'exec_image() { if [ "${CODES[$RANK]}" = 0 ]; then exec sleep "$1"; fi; exit "${CODES[$RANK]}"; }\n'
        "plain_ranks 3 " + ("0" if code == 0 else "60")
    )
    assert play(folder).returncode == code


SEVEN = "srun: error: n2: task 2: Exited with exit code 7"
FAULT = "srun: error: n2: task 2: Segmentation fault (core dumped)"
ENDED = "srun: error: n1: tasks 0-1,3: Terminated"
LOGGED = "train.py: srun: error: n1: task 1: exited"  # by a program


@pytest.mark.parametrize(
    ("code", "said", "answer", "stop", "expected"),
    [
        (143, "", "RUNNING 10:00 None", "", 1),  # srun has ended the other ranks of one that failed
        (143, f"{SEVEN}\n{ENDED}", "RUNNING 10:00 None", "", 7),
        (143, f"{FAULT}\n{ENDED}", "RUNNING 10:00 None", "", 139),
        (143, f"{ENDED}\n{SEVEN}", "RUNNING 10:00 None", "", 1),  # one was ended from outside, its code says no more
        (9, f"12%\r13%{SEVEN}\n{SEVEN[:-1]}9", "RUNNING 10:00 None", "", 7),
        (5, LOGGED, "RUNNING 10:00 None", "", 5),
        (143, f"{SEVEN}\n{ENDED}", "COMPLETING 10:00 None", "", 143),  # a cancelled job
        (143, f"{SEVEN}\n{ENDED}", "RUNNING 0:30 None", "", 143),  # the time limit is near
        (143, f"{SEVEN}\n{ENDED}", "RUNNING 10:00 None", ".term", 143),  # the ranks were told to end
        (0, "progress", "RUNNING 10:00 None", "", 0),
    ],
)
def test_a_launch_has_the_code_of_the_first_failed_rank(
    folder: Path, code: int, said: str, answer: str, stop: str, expected: int
) -> None:
    """The words are those of srun 22.05; tests/engines/test_programs.py has a real one."""
    for name, script in (("squeue", f"echo '{answer}'"), ("srun", f"cat said >&2; echo out; exit {code}")):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")  # a stand-in
        (folder / name).chmod(0o755)
    (folder / "said").write_bytes(said.encode())
    (folder / "record.sh").write_text(read_template("record.sh"))
    (folder / "tmp").mkdir()
    if stop:
        (folder / f"stop{stop}").touch()
    script = ". ./record.sh; . ./suite.sh; job_notice=120; launch() { run_ranks srun; }"
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail; {script}; launch; exit"], cwd=folder, capture_output=True, check=False,
        env={
            "PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "RECIPE_STOP": str(folder / "stop"),
            "TMPDIR": str(folder / "tmp"),
        },
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (expected, b"out\n", said.encode())
    assert not list((folder / "tmp").iterdir())


@pytest.mark.parametrize("code", [1, 137, 143])
def test_a_training_that_was_told_to_end_keeps_its_snapshot(folder: Path, code: int) -> None:
    """Its launcher's code is that of any rank: when the first exits, others may fail without the image's mount."""
    results = folder / "results" / "node"
    results.mkdir(parents=True)
    (results / "ddp-2.snapshot").touch()
    (folder / "code-ddp").write_text(str(code))
    (folder / "stop").touch()
    assert play(folder, RECIPE_STOP=str(folder / "stop")).returncode == 143
    assert (results / "ddp-2.snapshot").exists()
    assert calls(folder)[-1].endswith("--reason ended by SIGTERM in ddp")
    (folder / "stop").unlink()  # a failure of its own begins anew
    assert play(folder, RECIPE_STOP=str(folder / "stop")).returncode == (143 if code == 143 else 0)
    assert (results / "ddp-2.snapshot").exists() == (code == 143)
