"""`--submit` and `recipe status` on the real two-node Slurm: chains, verdicts, exit codes, and what may go wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from recipe_program import LIMIT, TORCH, Built, Done, Room, processes, program, report_of, run, stop, until_text
from testbed import TRAINING, near_the_limit, saved

from builder.slurm.client import Slurm

pytestmark = pytest.mark.engines

SITE = """
    extends: local
    node: {cores: 2, usable_cores: 2, memory_gib: 8, source: [own]}
    scheduler:
      kind: slurm
      source: [own]
      jobs:
        gpu: {nodes: 1, tasks_per_node: 1, cpus_per_task: 1, minutes: 15, options: {partition: test}}
        node: {nodes: 1, tasks_per_node: 2, cpus_per_task: 1, minutes: 10, options: {partition: test}}
        nodes: {nodes: 2, tasks_per_node: 2, cpus_per_task: 1, minutes: 15, options: {partition: test}}
        build: {nodes: 1, tasks_per_node: 1, cpus_per_task: 2, minutes: 15, options: {partition: test}}
    launch: {launcher: srun, source: [own]}
"""
# The last rank fails when all have printed their line: srun ends the others as soon as one fails.
RANKS = (
    "echo rank $RANK of $WORLD_SIZE in $PWD; : >said.$RANK; if [ $RANK != 3 ]; then exit; fi; "
    "until [ -e said.0 ] && [ -e said.1 ] && [ -e said.2 ]; do sleep 0.1; done; exit 9"
)


@pytest.fixture
def bed(room: Room) -> Room:
    """A room that knows a site with the tests' Slurm."""
    room.site("bed", SITE)
    return room


def record_of(folder: Path) -> dict[str, Any]:
    """The one record of a folder."""
    (path,) = [path for path in (folder / "jobs").glob("*.json") if path.name != "submitted.json"]
    return dict(json.loads(path.read_text()))


def numbers(text: str) -> list[str]:
    """The jobs that were submitted, in their order."""
    return re.findall(r"^job (\d+): ", text, re.MULTILINE)


def queue() -> str:
    return run(["squeue", "--noheader", "--format=%i"]).expect(0).out


def until_running(job: str) -> None:
    until_state(job, "RUNNING")


def until_state(job: str, state: str) -> None:
    """Wait until the queue shows a job in a state."""
    end = time.monotonic() + LIMIT
    while run(["squeue", "--noheader", f"--jobs={job}", "--format=%T"]).out.strip() != state:
        assert time.monotonic() < end, f"the job does not become {state}"
        time.sleep(0.2)


# --- from a build to a verdict over two nodes ------------------------------------------------------------------------


def test_a_build_and_its_smoke_tests_are_a_chain_of_jobs(bed: Room, base_sif: Path) -> None:
    text = f"name: chain\ndependencies: [pip: ['torch=={TORCH}']]\ncontainer: {{smoke: {{workloads: [pi]}}}}\n"
    image = bed.folder / "chain.sif"
    words = ("build", "bed", bed.write("chain.yml", text), "--base", base_sif, "-o", image, "--submit", "--nodes", "2")
    # The sockets of torch's data-loader workers lie in TMPDIR, and their paths have at most 107 characters.
    done = bed.recipe(*words, TMPDIR="/tmp").expect(0)
    build, smoke, nodes = numbers(done.err)
    assert re.search(rf"^job {smoke}: smoke, after {build}$", done.err, re.MULTILINE)
    assert re.search(rf"^job {nodes}: smoke-nodes, after {build}$", done.err, re.MULTILINE)
    assert done.out == f"{image}\n"
    report = report_of(bed.folder / "chain.plan")
    assert (report["status"], [step["status"] for step in report["steps"]]) == ("passed", ["ok"] * 3)
    assert all(check["ok"] for check in report["checks"])
    ranks = report["smoke"]["nodes/probe"]["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1, 2, 3]
    assert report["smoke"]["nodes/pi"]["world"] == 4
    assert "nothing to do" in bed.recipe(*words).expect(0).err
    again = bed.recipe("status", image).expect(0)
    assert (again.out, report_of(bed.folder / "chain.plan")) == (f"{image}\n", report)
    until_gone(bed)
    assert bed.left_behind() == []


def test_an_image_without_torch_fails_in_its_job(bed: Room, base_sif: Path) -> None:
    assert "not tested" in bed.recipe("smoke", "bed", base_sif, "--submit").expect(0).out
    done = bed.recipe("smoke", "bed", base_sif, "--submit", "--workload", "mnist").expect(6)
    assert "torch" in done.err
    assert base_sif.exists()
    bed.recipe("status", f"{base_sif.stem}.smoke").expect(6)


# --- a command of the user's -----------------------------------------------------------------------------------------


def test_a_command_gets_its_words_and_gives_its_exit_code(bed: Room, tiny: Built) -> None:
    words = ("--submit", "--", "sh", "-c", 'printf "%s|" "$PWD" "$@"; exit 9', "x", "$(id)", "a b", "--submit")
    done = bed.recipe("run", "bed", tiny.image, *words).expect(9)
    assert f"{bed.folder}|$(id)|a b|--submit|" in done.out
    assert record_of(bed.folder / "x.run")["exit_code"] == 9


def test_a_command_runs_on_every_rank_of_two_nodes(bed: Room, tiny: Built) -> None:
    words = ("--submit", "--nodes", "2", "--no-wait", "--", "sh", "-c", RANKS)
    (job,) = numbers(bed.recipe("run", "bed", tiny.image, *words).expect(0).err)
    done = bed.recipe("status", "x.run", "--follow")
    assert done.code in (9, 1)  # 1 where srun has ended a rank that had not quite left its container
    assert sorted(line for line in done.out.splitlines() if line.startswith("rank")) == [
        f"rank {rank} of 4 in {bed.folder}" for rank in range(4)
    ]
    found = record_of(bed.folder / "x.run")
    assert (found["job"], found["nodes"], found["shape"], found["reason"]) == (job, "n[1-2]", "nodes", "")
    assert bed.recipe("status", "x.run").expect(done.code).err.count(job) >= 1


def test_a_command_here_and_in_an_allocation(bed: Room, tiny: Built) -> None:
    bed.recipe("run", "local", tiny.image, "--", "sh", "-c", 'test "$PWD" = "$1" && exit 7', "x", bed.folder).expect(7)
    inside = (program(), "run", "bed", tiny.image, "--", "sh", "-c", "echo $RANK/$WORLD_SIZE")
    words = ["salloc", "--quiet", "--nodes=2", "--ntasks-per-node=2", *inside]
    done = run(words, env=bed.environment(), cwd=bed.folder).expect(0)
    assert sorted(done.out.split()) == ["0/4", "1/4", "2/4", "3/4"]


# --- what Slurm does not take ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--partition", "nope"), "there is no partition 'nope'"),
        (("--time", "99:00:00"), "longer than the 1:00:00"),
        (("--mem", "900G"), "no node of that partition"),
    ],
)
def test_a_job_that_is_refused_is_not_submitted(bed: Room, tiny: Built, option: tuple[str, str], said: str) -> None:
    done = bed.recipe("run", "bed", tiny.image, "--submit", *option, "--", "true").expect(2)
    assert said in done.err
    assert not list(bed.folder.glob("*.run*"))


@pytest.fixture
def closed() -> Iterator[str]:
    """A partition for another account than ours."""
    name = f"closed{os.getpid()}"
    run(["scontrol", "create", f"PartitionName={name}", "Nodes=n1", "AllowAccounts=other", "State=UP"]).expect(0)
    yield name
    end = time.monotonic() + LIMIT
    while run(["scontrol", "delete", f"PartitionName={name}"]).code and time.monotonic() < end:
        time.sleep(0.5)


def test_status_says_when_a_waiting_job_is_to_start(bed: Room, tiny: Built) -> None:
    bed.site("later", SITE.replace("{partition: test}", "{partition: test, begin: now+2hours}"))
    bed.recipe("run", "later", tiny.image, "--submit", "--no-wait", "--", "true").expect(0)
    shown = bed.recipe("status", "x.run").expect(7).err
    assert re.search(r"waits \(BeginTime\), expected to start at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown), shown
    bed.recipe("status", "x.run", "--cancel")


def test_a_wrong_account_does_not_wait_for_ever(bed: Room, tiny: Built, closed: str) -> None:
    words = ("--submit", "--partition", closed, "--account", "mine", "--", "true")
    done = bed.recipe("run", "bed", tiny.image, *words).expect(5)
    assert "would never start" in done.err
    assert "--account" in done.err
    assert numbers(done.err)[0] not in queue()


def until_said(folder: Path, job: str, text: str) -> None:
    """Wait for a text in the log of a job."""
    end = time.monotonic() + LIMIT
    while not any(text in path.read_text(errors="replace") for path in folder.glob(f"*-{job}.log")):
        assert time.monotonic() < end, f"'{text}' did not come in time"
        time.sleep(0.1)


# --- what happens to jobs --------------------------------------------------------------------------------------------


def test_nothing_waits_for_a_build_that_failed(bed: Room) -> None:
    recipe = bed.write("bad.yml", "name: bad\ncontainer: {run: [exit 3], smoke: {imports: [json]}}\n")
    done = bed.recipe("build", "bed", recipe, "--submit", "-o", "bad.sif").expect(5)
    build, smoke = numbers(done.err)
    assert f"bad-bed-build-{build}.log" in done.err
    left = queue()
    assert build not in left
    assert smoke not in left
    statuses = [step["status"] for step in report_of(bed.folder / "bad.plan")["steps"]]
    assert statuses == ["failed", "skipped"]
    bed.recipe("status", "bad.sif").expect(5)


def test_ctrl_c_leaves_the_job_and_status_comes_back_and_cancels(bed: Room, tiny: Built) -> None:
    process = bed.start("run", "bed", tiny.image, "--submit", "--", "sh", "-c", "echo begun; exec sleep 300")
    until_text(bed.folder / "x.run" / "jobs" / "submitted.json", '"job"', process=process)
    job = json.loads((bed.folder / "x.run" / "jobs" / "submitted.json").read_text())["jobs"][0]["job"]
    until_running(job)
    until_said(bed.folder / "x.run", job, "begun")  # cancelled before, its script may leave no record
    done = stop(process, signal.SIGINT, whole_group=True).expect(130)
    assert f"job {job} in the queue or running" in done.out
    assert "runs on n" in bed.recipe("status", "x.run").expect(7).err
    bed.recipe("status", "x.run", "--cancel", "--follow").expect(143)
    assert record_of(bed.folder / "x.run")["reason"] == "cancelled"
    until_out_of_queue(job)


# --- the time limit --------------------------------------------------------------------------------------------------

CROWD = SITE.replace("partition: test", "partition: crowd")
HEEDS = ': >"$RECIPE_STOP.heeded"; echo begun 0; until [ -e "$RECIPE_STOP" ]; do sleep 0.2; done; echo saved; exit 143'
# srun ends the other ranks when the first one fails: each waits for the others, and is not ended then.
WRAPPER = """
    python3 training.py
    code=$?
    trap '' TERM
    echo "rank $RANK left with $code"
    : >"left.$RANK"
    until [ -e left.0 ] && [ -e left.1 ] && [ -e left.2 ] && [ -e left.3 ]; do sleep 0.1; done
    exit 7
"""
LIMITED = {
    "heeds": ("--", "sh", "-c", HEEDS),
    "saves": ("--nodes", "2", "--", "python3", "training.py"),
    "wrapped": ("--nodes", "2", "--", "sh", "train.sh"),
    "ignores": ("--nodes", "2", "--", "python3", "training.py", "--ignore"),
}


@dataclass(frozen=True, kw_only=True)
class Limited:
    """A job near its time limit, and its room."""

    bed: Room
    job: str

    def follow(self, code: int) -> Done:
        done = self.bed.recipe("status", "x.run", "--follow").expect(code)
        assert "ran out of time" in done.err
        return done

    def begun(self, ranks: int) -> None:
        for rank in range(ranks):  # a signal before that would find no work to tell
            until_said(self.bed.folder / "x.run", self.job, f"begun {rank}")


@pytest.fixture(scope="module")
def limited(rooms: Callable[[str], Room], tiny: Built) -> dict[str, Limited]:
    """All of them at one time: Slurm looks for jobs at their limit twice a minute."""
    found = {}
    for name, words in LIMITED.items():
        bed = Room(rooms("limited").folder / name)
        bed.site("bed", CROWD)
        shutil.copy(TRAINING, bed.folder)
        bed.write("train.sh", WRAPPER)
        done = bed.recipe("run", "bed", tiny.image, "--submit", "--no-wait", *words).expect(0)
        (job,) = numbers(done.err)
        found[name] = Limited(bed=bed, job=job)
    for name, one in found.items():
        one.begun(4 if "--nodes" in LIMITED[name] else 1)
    for name, one in found.items():
        near_the_limit(one.job, soon=name == "ignores")
    return found


def test_the_time_limit_reaches_work_that_looks_for_the_file(limited: dict[str, Limited]) -> None:
    one = limited["heeds"]
    assert "saved" in one.follow(143).out
    assert record_of(one.bed.folder / "x.run")["reason"] == "time limit"


@pytest.mark.parametrize(("name", "code"), [("saves", 5), ("wrapped", 7)])
def test_a_program_that_knows_sigterm_saves_near_the_time_limit(
    limited: dict[str, Limited], name: str, code: int
) -> None:
    bed = limited[name].bed
    done = limited[name].follow(code)
    assert saved(bed.folder) == [[signal.SIGTERM, True]] * 4
    record = record_of(bed.folder / "x.run")
    assert (record["reason"], record["exit_code"], record["ending"]) == ("time limit", code, False)
    assert "Bus error" not in done.out
    assert done.out.count("left with 5") == (4 if name == "wrapped" else 0)  # the wrapper goes on after its program
    until_gone(bed)


def test_a_program_that_ignores_sigterm_is_killed_at_the_limit(limited: dict[str, Limited]) -> None:
    one = limited["ignores"]
    one.follow(143)
    assert saved(one.bed.folder) == [[signal.SIGTERM, True]] * 4
    assert record_of(one.bed.folder / "x.run")["reason"] == "time limit"
    until_out_of_queue(one.job)
    until_gone(one.bed)


# --- other ends ------------------------------------------------------------------------------------------------------


def until_out_of_queue(job: str) -> None:
    """Wait until Slurm has cleared up after a job: its record is there before."""
    end = time.monotonic() + LIMIT
    while job in queue().split():
        assert time.monotonic() < end, f"job {job} is still in the queue"
        time.sleep(0.2)


def until_gone(bed: Room) -> None:
    """Wait until no process of a room is left: what watches over a rank ends within half a second."""
    end = time.monotonic() + LIMIT
    while left := processes(str(bed.folder)):
        assert time.monotonic() < end, left
        time.sleep(0.2)


def test_a_full_disk_ends_the_command_and_its_record_is_whole(bed: Room, tiny: Built) -> None:
    # Slurm gives the limits of the shell that submits to the job: no file of it grows over 256 KiB.
    words = ("run", "bed", tiny.image, "--submit", "--", "sh", "-c", "echo begun; head -c 1000000 /dev/zero >big")
    shell = ["bash", "-c", 'ulimit -f 256 && exec "$@"', "shell", program(), *words]
    done = run(shell, env=bed.environment(), cwd=bed.folder)
    assert "begun" in done.out
    assert (bed.folder / "big").stat().st_size == 256 * 1024
    assert done.code == record_of(bed.folder / "x.run")["exit_code"] != 0
    bed.recipe("status", "x.run").expect(done.code)


def start_job(bed: Room, image: Path, *words: str) -> tuple[subprocess.Popen[str], str]:
    """Submit a command from a process that follows it; the process and the job, once that runs."""
    process = bed.start("run", "bed", image, "--submit", "-o", "j.run", "--", *words)
    submitted = bed.folder / "j.run" / "jobs" / "submitted.json"
    until_text(submitted, '"job"', process=process)
    job = json.loads(submitted.read_text())["jobs"][0]["job"]
    until_running(job)
    return process, job


def test_a_job_that_somebody_cancels_says_so(bed: Room, base_sif: Path) -> None:
    process, job = start_job(bed, base_sif, "sleep", "600")
    run(["scancel", job]).expect(0)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 143, out
    assert f"job {job} of step 'run' was cancelled" in out
    bed.recipe("status", "j.run").expect(143)


def test_a_requeued_job_is_followed_to_its_second_end(bed: Room, base_sif: Path) -> None:
    """What the first run left as its record is none of the second; here it begins at once, not two minutes later.

    Not in the same second: a node refuses a credential that is no newer than the end of the first run.
    """
    work = 'echo "run ${SLURM_RESTART_COUNT:-0}"; if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then exit 9; fi; sleep 600'
    process, job = start_job(bed, base_sif, "sh", "-c", work)
    until_said(bed.folder / "j.run", job, "run 0")
    run(["scontrol", "requeue", job]).expect(0)
    until_state(job, "PENDING")
    run(["scontrol", "update", f"JobId={job}", "StartTime=now+3"]).expect(0)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 9, out
    assert "run 1" in out
    record = record_of(bed.folder / "j.run")
    assert (record["exit_code"], record["reason"], record["ending"]) == (9, "", False)


def test_two_ask_for_the_verdict_at_once(bed: Room, tiny: Built) -> None:
    words = ("run", "bed", tiny.image, "--submit", "--no-wait", "--", "sh", "-c", "sleep 3; exit 9")
    bed.recipe(*words).expect(0)
    both = [bed.start("status", "x.run", "--follow") for _ in range(2)]
    for process in both:
        process.communicate(timeout=LIMIT)
    codes = sorted(process.returncode for process in both)
    assert codes[-1] == 9
    assert codes[0] in (2, 9)  # the other one is told that somebody follows already
    bed.recipe("status", "x.run").expect(9)


def test_a_refused_job_names_the_variables_of_the_shell(bed: Room) -> None:
    script = bed.folder / "job.sh"
    script.write_text("#!/bin/sh\ntrue\n")
    variables = {"SBATCH_TIMELIMIT": "soon", "SBATCH_PARTITION": "test"}
    finding = Slurm(bed.environment(**variables)).test([str(script)], folder=bed.folder, step="smoke", more={})
    assert finding is not None
    assert finding.code == "job-time"
    assert finding.fix.endswith("with --time; this shell sets SBATCH_PARTITION, SBATCH_TIMELIMIT")
