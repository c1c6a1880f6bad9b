"""The suite with real torch on the CPU: a verdict over a job, faults told by the rank, trainings that are taken up."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from smoke_program import LIMIT, LONG, Smoke, all_gone, training, until_heard, write_easy_digits

pytestmark = pytest.mark.engines

SUITE = ("probe", "pi", "allreduce", "startup")


@pytest.fixture(scope="module")
def suite(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Smoke:
    """What a job of one node leaves: every workload over two ranks."""
    smoke = Smoke(torch_python, tmp_path_factory.mktemp("suite"))
    cores = hex(sum(1 << core for core in os.sched_getaffinity(0)))
    probe = ["--expect-masks", f"{cores},{cores}", "--expect-cores", "1", "--expect-variable", "NCCL_DEBUG=WARN"]
    expectations = {
        "probe": [*probe, "--cache-not-under", "/no/such/place", "--expect-ranks", "2"],
        "pi": ["--steps", "1000001"],
        "allreduce": ["--to", "128KiB", "--floor", "64KiB=0.000001", "--iterations", "3"],
        "startup": ["--started", str(time.time() - 2)],
    }
    for name in SUITE:
        words = ["--ranks", "2", "--result", f"{name}.json", "--timeout", "200", *expectations[name]]
        status, output = smoke.run(name, *words, NCCL_DEBUG="WARN", MIOPEN_USER_DB_PATH="/dev/shm")
        assert status == 0, output
    return smoke


@pytest.fixture
def job(suite: Smoke, tmp_path: Path) -> Smoke:
    """A copy of that, to be altered."""
    smoke = Smoke(suite.python, tmp_path)
    shutil.copytree(suite.folder, smoke.folder, dirs_exist_ok=True)
    return smoke


def test_a_job_that_went_well_is_concluded(job: Smoke) -> None:
    status, output = job.run("conclude", ".", "--expect", ",".join(SUITE))
    assert status == 0, output
    assert output.splitlines()[-1] == "verdict: pass"
    verdict = job.result("verdict.json")
    assert (verdict["schema"], verdict["verdict"], verdict["reason"]) == (1, "pass", None)
    assert list(verdict["workloads"]) == sorted(SUITE)
    for entry in verdict["workloads"].values():
        assert entry["verdict"] == "pass"
        assert entry["seconds"] > 0
        assert entry["checks"]


def test_what_was_measured_can_be_true(job: Smoke) -> None:
    probe, pi, allreduce, startup = (job.result(f"{name}.json") for name in SUITE)
    for rank in probe["ranks"]:
        assert set(rank["affinity"]) == os.sched_getaffinity(0)
        assert rank["variables"]["NCCL_DEBUG"] == "WARN"  # as the launcher set it, not as the probe does
        assert rank["caches"] == [{"name": "MIOPEN_USER_DB_PATH", "path": "/dev/shm", "filesystem": "tmpfs"}]
        assert rank["libraries"]["torch"] == probe["torch"]["version"]
    assert {rank["rank"]: sorted(rank["workers"]) for rank in probe["ranks"]} == {0: ["fork", "spawn"], 1: ["fork"]}
    assert abs(pi["pi"] - math.pi) == pi["deviation"] < 1e-11
    assert [rank["trapezoids"] for rank in pi["ranks"]] == [500001, 500000]
    assert [row["ranks"] for row in pi["scaling"]] == [1, 2]
    assert [row["bytes"] for row in allreduce["sweep"]] == [32768, 65536, 131072]
    assert all(row["busbw"] == pytest.approx(row["algbw"]) for row in allreduce["sweep"])  # 2 (n - 1) / n is 1
    assert startup["seconds"]["exec_to_python"] >= 2
    for rank in startup["ranks"]:  # the result has the slowest rank's of each
        took = rank["seconds"]
        parts = sum(took[name] for name in ("exec_to_python", "import_torch", "first_device", "first_step"))
        assert parts <= took["exec_to_first_step"] + 0.1


def change(smoke: Smoke, name: str, alter: Any) -> None:
    path = smoke.folder / name
    content = json.loads(path.read_text())
    alter(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("alter", "workload", "text"),
    [
        (lambda job: change(job, "pi.json", lambda pi: pi.update(pi=3.14)), "pi", "pi: 3.14"),
        (lambda job: (job.folder / "pi.json").write_text('{"half'), "pi", "is not JSON"),
        (lambda job: shutil.copy(job.folder / "pi.json", job.folder / "probe.json"), "probe", "is the result of pi"),
        (
            lambda job: [path.unlink() for path in job.folder.glob("startup.json*")],
            "startup",
            "it left no result",
        ),
        (
            lambda job: (job.folder / "allreduce.json").unlink(),
            "allreduce",
            "it left no result: rank 0 was reporting",
        ),
    ],
    ids=["wrong", "torn", "another", "none", "ranks-only"],
)
def test_a_result_that_is_not_whole_fails_the_job(job: Smoke, alter: Any, workload: str, text: str) -> None:
    alter(job)
    for path in job.folder.glob("allreduce.json.rank*") if workload == "allreduce" else ():
        change(job, path.name, lambda record: record.update(finished=False))
    status, output = job.run("conclude", ".", "--expect", ",".join(SUITE))
    assert status == 1
    assert output.splitlines()[-1] == f"verdict: FAIL ({workload})"
    assert text in output
    found = job.result("verdict.json")["workloads"]
    assert [name for name, entry in found.items() if entry["verdict"] != "pass"] == [workload]


def test_a_job_that_was_ended_fails_with_its_reason(job: Smoke) -> None:
    status, output = job.run("conclude", ".", "--reason", "time limit")
    assert status == 1
    assert output.splitlines()[-1] == "verdict: FAIL (time limit)"
    assert job.result("verdict.json")["reason"] == "time limit"


def test_a_probe_needs_no_launcher_and_fails_by_what_is_missing(smoke: Smoke, tmp_path: Path) -> None:
    """Also a data-loader's worker that hangs after the fork is told, and does not outlive the probe."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\nos.register_at_fork(after_in_child=lambda: time.sleep(600))\n"
    )
    status, output = smoke.run(
        "probe", "--result", "result.json", "--timeout", "200", "--expect-masks", hex(1 << 500),
        "--expect-variable", "SITE=lumi", "--expect-network", "NET/OFI", "--expect-devices", "1",
        "--cache-not-under", "/dev", PYTHONPATH=str(tmp_path), MIOPEN_USER_DB_PATH="/dev/shm/x",
    )  # fmt: skip
    assert status == 1
    failed = smoke.failed()
    assert failed.keys() == {
        "affinity", "devices", "network", "variable SITE", "caches", "workers by fork",
    }, output  # fmt: skip
    assert failed["workers by fork"].startswith("rank 0 hung for ")
    assert failed["affinity"].endswith("outside 500")
    assert failed["network"] == "rank 0 used lo"
    assert failed["variable SITE"] == "rank 0 has missing"


def test_an_interrupted_training_gives_the_same_numbers(smoke: Smoke) -> None:
    """By SIGTERM to one rank of a launcher's, by SIGTERM and by SIGKILL to the parent of ranks, after an epoch each."""
    digits = ["--data", str(write_easy_digits(smoke.folder.parent / "digits", train=512))]
    course = [*digits, "--epochs", "5"]
    status, output = smoke.run("ddp", "--ranks", "2", *course, "--result", "whole.json", OMP_NUM_THREADS="1")
    whole = smoke.result("whole.json")
    assert (status, whole["training"]["steps"]) == (0, 40), output
    resumed = [*course, "--snapshot", "snapshot.pt"]

    ranks = smoke.launch([0, 1], 2, *resumed, **smoke.to_stand())
    smoke.wait_for_ranks(2, training)
    ranks[1].terminate()
    until_heard(ranks[1].pid, signal.SIGTERM)
    smoke.let_go(ranks[0], pause=0.5)
    said = [process.communicate(timeout=LIMIT)[0] for process in ranks]
    assert [process.returncode for process in ranks] == [143, 143], said
    broken = smoke.result()
    assert broken["resumed_from_epoch"] == 0
    assert (
        broken["error"]
        == f'ended by SIGTERM after step {broken["training"]["steps"]} of 40, saved in the snapshot "snapshot.pt"'
    )
    assert 8 <= broken["training"]["steps"] < 40
    assert not [path for path in smoke.folder.iterdir() if path.name.endswith(".tmp")]

    stands = {"OMP_NUM_THREADS": "1", **smoke.to_stand()}
    ended = smoke.start("ddp", "--ranks", "2", *resumed, "--result", "ended.json", **stands)
    pids = smoke.wait_for_ranks(2, training, name="ended.json")
    ended.terminate()
    smoke.let_go(ended, pause=2)  # in which the parent tells its ranks
    printed = ended.communicate(timeout=LIMIT)[0]
    assert ended.returncode == 143
    assert "Traceback" not in printed
    assert all_gone(pids)
    assert smoke.result("ended.json")["error"].startswith("ended by SIGTERM after step ")
    assert smoke.result("ended.json")["training"]["steps"] > broken["training"]["steps"]

    killed = smoke.start("ddp", "--ranks", "2", *resumed, "--result", "again.json", **stands)
    pids = smoke.wait_for_ranks(2, training, name="again.json")
    killed.kill()  # the ranks end with their parent, also one that stands
    assert all_gone(pids)
    assert smoke.result("again.json")["error"] == "the run ended before its verdict"

    status, output = smoke.run("ddp", "--ranks", "2", *resumed, "--result", "end.json", OMP_NUM_THREADS="1")
    end = smoke.result("end.json")
    assert (status, end["error"]) == (0, None), output
    assert end["training"]["resumed_step"] + 8 * end["resumed_from_epoch"] >= broken["training"]["steps"]
    for field in ("losses", "losses_digest", "accuracies"):
        assert end["training"][field] == whole["training"][field]
    checksums = {rank["checksum"] for rank in whole["ranks"]}
    assert {rank["checksum"] for rank in end["ranks"]} == checksums

    status, output = smoke.run(
        "ddp", "--ranks", "2", *resumed, "--result", "result.json", OMP_NUM_THREADS="1"
    )  # nothing is left to train
    assert status == 0, output
    assert smoke.result()["training"]["epochs_run"] == 0
    assert {rank["checksum"] for rank in smoke.result()["ranks"]} == checksums

    longer = [*digits, "--epochs", "6", "--snapshot", "snapshot.pt", "--result", "longer.json"]
    status, output = smoke.run("ddp", "--ranks", "2", *longer, OMP_NUM_THREADS="1")
    assert status == 0, output
    more = smoke.result("longer.json")
    assert (more["resumed_from_epoch"], more["training"]["epochs_run"]) == (5, 1)
    assert more["training"]["losses"][:40] == whole["training"]["losses"]
    assert [rank["samples"] for rank in more["ranks"]] == [256, 256]


def test_a_killed_rank_is_named_and_not_the_bystanders(smoke: Smoke) -> None:
    processes = smoke.launch([0, 1, 2], 3, *LONG, "--timeout", "250")
    smoke.wait_for_ranks(3, training)
    processes[1].kill()
    processes[0].communicate(timeout=LIMIT)
    assert processes[0].returncode == 1
    error = smoke.failed()["error"]
    assert error.startswith("rank 1 on ")
    assert " died" in error.split(" while training")[0]
    assert "the communication failed while training: " in error


def test_the_leader_that_was_killed_is_named_in_the_end(smoke: Smoke) -> None:
    """No result is written then: the records of the ranks say whom they lost."""
    processes = smoke.launch([0, 1], 2, *LONG, "--timeout", "250", result="ddp.json")
    smoke.wait_for_ranks(2, training, name="ddp.json")
    processes[0].kill()
    processes[1].communicate(timeout=LIMIT)
    status, output = smoke.run("conclude", ".", "--expect", "ddp")
    assert status == 1
    error = smoke.result("verdict.json")["workloads"]["ddp"]["error"]
    assert error.startswith("the run ended before its verdict: rank 0 on "), output
    assert " died while training" in error


def test_a_rank_that_hangs_is_named_within_the_limit(smoke: Smoke) -> None:
    processes = smoke.launch([0, 1], 2, *LONG, "--timeout", "50")
    smoke.wait_for_ranks(2, training)
    os.kill(processes[1].pid, signal.SIGSTOP)
    processes[0].communicate(timeout=LIMIT)
    assert processes[0].returncode == 1
    error = smoke.failed()["error"]
    assert error.startswith("ended at its limit of 50 s: rank 1 on ")
    assert "rank 0" not in error


def test_a_disk_that_is_full_leaves_a_failed_result(smoke: Smoke) -> None:
    """The limit of a file's size stands in for the disk's end: the first result fits, the whole one does not."""
    shell = ("bash", "-c", 'ulimit -f 1; exec "$@"', "bash")
    status, output = smoke.run("startup", "--result", "startup.json", before=shell)
    assert status == 1
    assert "the result cannot be written: File too large" in output
    assert smoke.result("startup.json")["error"] == "the result cannot be written: File too large"
    assert smoke.run("conclude", ".")[0] == 1
    assert smoke.result("verdict.json")["workloads"]["startup"]["error"].startswith("the result cannot be written")


@pytest.mark.parametrize("workload", [["mnist"], ["probe", "--ranks", "2"], ["startup"]], ids=lambda words: words[0])
def test_an_image_without_torch_says_so_in_a_line(smoke: Smoke, workload: list[str]) -> None:
    smoke.python = sys.executable
    missing = smoke.folder.parent / "torch.py"
    missing.write_text('raise ImportError("libtorch.so: cannot open shared object file")\n')
    status, output = smoke.run(*workload, "--result", "result.json", PYTHONPATH=str(missing.parent))
    assert status == 1
    assert "Traceback" not in output
    error = re.split(r"rank \d: ", smoke.failed()["error"])[-1]  # either may be the first to say so
    assert error == "torch cannot be imported: libtorch.so: cannot open shared object file"
