"""What the record of a job says where its launcher has found the job gone before its script was told to end.

srun and squeue are stand-ins: Slurm itself does not lose this race at will. They say and do what Slurm 22.05 does.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from builder.compile.render import read_template

JOB = """. ./record.sh
record_job "$(readlink -f "$0")" run '' x 120 ranks
srun true
"""
REVOKED = """echo "srun: error: Task launch for StepId=91.0 failed on node n1: Job credential revoked" >&2
echo "srun: error: Application launch failed: Job credential revoked" >&2
exit 168
"""
NO_STEP = 'echo "srun: error: Unable to create step for job 7: Job/step already completing or completed" >&2\nexit 1\n'
DONE = "exit 229\n"  # ESLURM_ALREADY_DONE 2021
SAVED = "exit 5\n"  # of a program that knows SIGTERM
GONE, LIMIT, RUNS = "COMPLETING 14:01 None", "COMPLETING 0:00 TimeLimit", "RUNNING 14:01 None"
NODE = "COMPLETING 14:01 NodeDown"


def stand_in(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n# a stand-in for Slurm's {name}\n{text}")
    (folder / name).chmod(0o755)


def record_after(folder: Path, *, srun: str, squeue: str) -> tuple[int, dict[str, Any], str]:
    """Run a job script as Slurm does; its exit code, its record, and the record as it was while Slurm was asked."""
    programs = folder / "bin"
    programs.mkdir()
    stand_in(programs, "srun", srun)
    stand_in(programs, "squeue", f'cp jobs/7.json asked.json 2>/dev/null\necho "{squeue}"\n')
    (folder / "record.sh").write_text(read_template("record.sh"))
    (folder / "job.sh").write_text(JOB)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    call = ["bash", "job.sh"]
    ended = subprocess.run(call, cwd=folder, env=environment, capture_output=True, check=False, timeout=60)
    asked = folder / "asked.json"
    record = dict(json.loads((folder / "jobs" / "7.json").read_text()))
    return ended.returncode, record, asked.read_text() if asked.exists() else ""


@pytest.mark.parametrize(
    ("srun", "squeue", "code", "reason"),
    [
        pytest.param(REVOKED, GONE, 143, "cancelled", id="credential revoked"),
        pytest.param(NO_STEP, GONE, 143, "cancelled", id="no step any more"),
        pytest.param(DONE, GONE, 143, "cancelled", id="already done"),
        pytest.param("exit 143\n", GONE, 143, "cancelled", id="tasks told first"),
        pytest.param(SAVED, GONE, 5, "cancelled", id="a program that knows SIGTERM"),
        pytest.param(REVOKED, LIMIT, 168, "time limit", id="time limit"),
        pytest.param(NO_STEP, NODE, 1, "", id="lost node"),
        pytest.param(NO_STEP, RUNS, 1, "", id="fails by itself"),
        pytest.param("exit 1\n", "RUNNING 0:30 None", 1, "", id="fails by itself near the limit"),
        pytest.param("exit 143\n", "RUNNING 0:30 None", 143, "time limit", id="told near the limit"),
        pytest.param(NO_STEP, "", 1, "", id="nobody answers"),
        pytest.param("exit 0\n", GONE, 0, "", id="had ended before"),
    ],
)
def test_the_record_of_a_job_that_its_launcher_found_gone(
    tmp_path: Path, srun: str, squeue: str, code: int, reason: str
) -> None:
    ended, record, asked = record_after(tmp_path, srun=srun, squeue=squeue)
    assert (ended, record["exit_code"], record["reason"], record["ending"]) == (code, code, reason, False)
    if code:  # Slurm may end the job while it is asked
        assert json.loads(asked)["ending"] is True
    else:
        assert asked == ""


@pytest.mark.parametrize(
    ("squeue", "reason"),
    [
        ("RUNNING 1:35 None", "time limit"),
        ("SIGNALING 1:35 None", "time limit"),  # the signal itself is on its way
        ("STOPPED 1:35 None", "time limit"),
        ("SIGNALING 14:01 None", "ended by a signal"),
        ("COMPLETING 14:01 None", "cancelled"),
        ("CANCELLED 14:01 None", "cancelled"),
        ("COMPLETING 0:00 TimeLimit", "time limit"),
        ("PREEMPTED 14:01 None", "preempted"),
    ],
)
def test_why_a_job_was_told_to_end(tmp_path: Path, squeue: str, reason: str) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    stand_in(programs, "srun", "touch begun; exec sleep 60\n")
    stand_in(programs, "squeue", f'echo "{squeue}"\n')
    (tmp_path / "record.sh").write_text(read_template("record.sh"))
    (tmp_path / "job.sh").write_text(JOB.replace(" ranks\n", " ''\n"))
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    child = subprocess.Popen(["bash", "job.sh"], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < end, "it does not begin"
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=60) == 143
    record = json.loads((tmp_path / "jobs" / "7.json").read_text())
    assert (record["reason"], record["state"], record["ending"]) == (reason, squeue, False)
