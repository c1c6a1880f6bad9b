"""Many kits as Slurm arrays on the real two-node Slurm: verdicts one by one, by our program and by plain sbatch."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_program import Room, inside, report_of, run, stop, until_text
from stand_ins.images import docker, small_debian
from testbed import MN5_BED, MODULES, near_the_limit
from victim import RUN, STOPPER, reached

pytestmark = pytest.mark.engines

BED = """
    extends: local
    node: {{cores: 2, usable_cores: 2, memory_gib: 8, source: [own]}}
    scheduler:
      kind: slurm
      source: [own]
      jobs:
        gpu: {{nodes: 1, tasks_per_node: 1, cpus_per_task: 1, minutes: 10, options: {{partition: test}}}}
        build: {{nodes: 1, tasks_per_node: 1, cpus_per_task: 1, minutes: 15, options: {{partition: test}}}}
    launch: {{launcher: srun, source: [own]}}
    base_images: [{{reference: {base}, python: "3.11", glibc: "2.36", source: [own]}}]
"""
SIX = "name: {name}\ndependencies: [pip: [six=={version}]]\ncontainer: {{smoke: {{imports: [{module}]}}}}\n"


@pytest.fixture
def bed(room: Room, base_sif: Path) -> Room:
    """A room that knows a site with the tests' Slurm, and recipes."""
    room.site("bed", BED.format(base=base_sif))
    for name, version, module in (("good", "1.16.0", "six"), ("also", "1.17.0", "six"), ("lame", "1.16.0", "no_such")):
        room.write(f"{name}.yml", SIX.format(name=name, version=version, module=module))
    room.write("gone.yml", SIX.format(name="gone", version="0.0.99", module="six"))
    return room


def records(folder: Path) -> dict[str, int]:
    """The exit codes of the jobs of a kit."""
    found = {}
    for path in sorted((folder / "jobs").glob("*_*.json")):
        record = json.loads(path.read_text())
        assert path.stem == record["job"]
        assert (folder / record["log"]).is_file()
        found[record["purpose"]] = record["exit_code"]
    return found


def verdicts(text: str) -> dict[str, str]:
    """The last table: what is said of each build."""
    table = text[text.rindex("build  ") :].splitlines()
    return {line.split("  ")[0].strip(): re.split(r"  +", line)[1] for line in table[1:] if "  " in line}


def test_a_failed_build_of_many_touches_no_other(bed: Room) -> None:
    words = ("good.yml", "gone.yml", "lame.yml", "also.yml")
    done = bed.recipe("build", "bed", *words, "-o", "out", "--submit", "--jobs", "3").expect(6)
    wanted = {"good-bed": "passed", "gone-bed": "failed", "lame-bed": "smoke test failed", "also-bed": "passed"}
    assert verdicts(done.err) == wanted
    out = bed.folder / "out"
    assert done.out.split() == [str(out / "good-bed.sif"), str(out / "also-bed.sif")]
    script = (out / "array-bed-1-build-image.sbatch").read_text()
    assert "#SBATCH --array=0-3%3" in script
    # Each smoke test waits for the build of its own kit alone.
    array, after = re.search(r"good-bed  job (\d+)_0: smoke, after (\d+)_0\n", done.err).groups()
    assert f"also-bed  job {array}_3: smoke, after {after}_3\n" in done.err
    assert records(out / "good-bed.plan") == records(out / "also-bed.plan") == {"build": 0, "smoke": 0}
    assert set(records(out / "gone-bed.plan")) == {"build"}
    assert [step["status"] for step in report_of(out / "gone-bed.plan")["steps"]] == ["failed", "skipped"]
    assert inside(out / "also-bed.sif", "python", "-c", "import six; print(six.__version__)") == "1.17.0\n"
    assert not (out / "lame-bed.sif").exists()
    for _ in range(2):
        again = bed.recipe("status", "out").expect(6)
        assert (verdicts(again.err), again.out) == (wanted, done.out)
    bed.recipe("status", "out/good-bed.plan").expect(0)
    bed.recipe("status", "out/gone-bed.plan").expect(5)
    # What stands is not built again, and what failed is.
    more = bed.recipe("build", "bed", "good.yml", "also.yml", "-o", "out", "--submit").expect(0)
    assert set(verdicts(more.err).values()) == {"nothing to do"}
    assert bed.left_behind() == []


def test_the_verdict_later_and_the_jobs_go_on(bed: Room) -> None:
    done = bed.recipe("build", "bed", "good.yml", "also.yml", "-o", "out", "--submit", "--no-wait").expect(0)
    assert set(verdicts(done.err).values()) == {"submitted"}
    assert bed.recipe("status", "out").code in (0, 7)
    busy = bed.recipe("build", "bed", "good.yml", "also.yml", "-o", "out", "--submit")
    assert busy.code in (0, 2)  # at work, or at its end already
    assert verdicts(bed.recipe("status", "out", "--follow").expect(0).err) == {
        "good-bed": "passed",
        "also-bed": "passed",
    }
    assert (bed.folder / "out" / "good-bed.sif").exists()


def test_ctrl_c_leaves_the_tasks_and_they_can_be_cancelled(bed: Room) -> None:
    first = run(["sbatch", "--parsable", "--partition=test", "--wrap=sleep 600", "--output=/dev/null"]).expect(0)
    holder = first.out.strip().partition(";")[0]
    words = ("build", "bed", "good.yml", "also.yml", "-o", "out", "--submit", "--dependency", f"afterok:{holder}")
    submitted = bed.folder / "out" / "also-bed.plan" / "jobs" / "submitted.json"
    stands = bed.folder / "stands"  # when it follows: it asks for the jobs that it has submitted
    here = {"STOP_AT": RUN + r"squeue .*--jobs=[\d,_]*_1\b", "STOP_FILE": str(stands)}
    process = bed.start(*words, PYTHONPATH=str(STOPPER), **here)
    until_text(submitted, '"smoke"', process=process)
    reached(process, stands.exists)
    process.send_signal(signal.SIGINT)
    stands.unlink()
    done = stop(process, signal.SIGINT, whole_group=True).expect(130)
    assert re.search(r"interrupted: jobs \d+_0, \d+_0, \d+_1, \d+_1 in the queue or running", done.out)
    opened = bed.recipe("status", "out").expect(7)
    assert set(verdicts(opened.err).values()) == {"open"}
    one = bed.recipe("status", "out/good-bed.plan", "--cancel", "--follow").expect(5)
    assert "was cancelled" in one.err
    assert verdicts(bed.recipe("status", "out").expect(7).err) == {"good-bed": "failed", "also-bed": "open"}
    closed = bed.recipe("status", "out", "--cancel", "--follow").expect(5)
    assert set(verdicts(closed.err).values()) == {"failed"}
    assert closed.err.count("was cancelled") == 4  # each among the findings and in the table
    run(["scancel", holder])
    assert str(bed.folder) not in run(["squeue", "--noheader", "--array", "--format=%i %Z"]).expect(0).out


def test_a_task_that_runs_out_of_time_is_told_and_says_so(bed: Room) -> None:
    bed.write("slow.yml", "name: slow\ncontainer: {run: [echo begun; sleep 600]}\n")
    words = ("slow.yml", "good.yml", "-o", "out", "--backend", "apptainer", "--submit", "--no-wait")
    text = bed.recipe("build", "bed", *words).expect(0).err
    job = re.search(r"slow-bed  job (\d+_0): build-image", text)[1]
    log = bed.folder / "out" / "slow-bed.plan" / f"bed-build-image-{job}.log"
    end = time.monotonic() + 300
    while not (log.exists() and "begun" in log.read_text().splitlines()):
        assert time.monotonic() < end, "the task does not begin"
        time.sleep(0.2)
    near_the_limit(job, by_hand=True)
    done = bed.recipe("status", "out", "--follow").expect(5)
    assert verdicts(done.err) == {"slow-bed": "failed", "good-bed": "passed"}
    assert f"job {job} of step 'build-image' ran out of time" in done.err
    record = json.loads((bed.folder / "out" / "slow-bed.plan" / "jobs" / f"{job}.json").read_text())
    assert (record["reason"], record["exit_code"], record["log"]) == ("time limit", 143, log.name)


def test_by_plain_sbatch_and_bash(bed: Room) -> None:
    done = bed.recipe("plan", "bed", "good.yml", "gone.yml", "also.yml", "-o", "kits").expect(0)
    (script,) = [line for line in done.out.split() if line.endswith("array-bed.sh")]
    kits = bed.folder / "moved"
    (bed.folder / "kits").rename(kits)
    # Of the environment that holds our program, uv alone: the layers of a kit are put together by Python's own library.
    tools = bed.folder / "bin"
    tools.mkdir()
    (tools / "uv").symlink_to(str(shutil.which("uv")))
    environment = bed.environment(PATH=f"{tools}:/usr/local/bin:/usr/bin:/bin")
    said = run(["bash", kits / Path(script).name], env=environment, cwd=bed.folder).expect(0).out
    assert re.fullmatch(r"array \d+: build-image\narray \d+: smoke\n", said)
    wanted = [("good", {"build", "smoke"}), ("gone", {"build"}), ("also", {"build", "smoke"})]
    end = time.monotonic() + 300
    while any(set(records(kits / f"{name}-bed.plan")) != purposes for name, purposes in wanted):
        assert time.monotonic() < end, [path.read_text() for path in kits.glob("*/*.log")]
        time.sleep(0.5)
    assert records(kits / "good-bed.plan") == records(kits / "also-bed.plan") == {"build": 0, "smoke": 0}
    assert records(kits / "gone-bed.plan")["build"] != 0
    assert (kits / "also-bed.plan" / "also-bed.sif").is_file()


def test_docker_here_then_arrays(rooms: Callable[[str], Room], docker_daemon: str, base_tar: Path) -> None:
    del docker_daemon
    room = rooms("docker-arrays")
    text = MN5_BED.format(base=small_debian(base_tar), torch="0").replace('provides: {torch: "0"}', "")
    room.site("docker-bed", text)  # its images have names that no other test removes
    for name, more in (("one", ""), ("two", ""), ("ill", "run: [cp /no/such/file /opt], ")):
        text = SIX.format(name=name, version="1.16.0", module="six").replace("smoke:", f"{more}smoke:")
        room.write(f"{name}.yml", text)
    words = ("build", "docker-bed", "one.yml", "ill.yml", "two.yml", "-o", "out", "--submit", "--account", "bsc99")
    try:
        done = room.recipe(*words, TMPDIR="/tmp", MODULEPATH=str(MODULES)).expect(5)
    finally:
        for name in docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "recipe/*-docker-bed").split():
            docker("image", "rm", name)
    assert verdicts(done.err) == {"one-docker-bed": "passed", "ill-docker-bed": "failed", "two-docker-bed": "passed"}
    assert "cp: cannot stat '/no/such/file'" in done.err
    assert not (room.folder / "out" / "ill-docker-bed.plan" / "jobs").exists()
    for name in ("one", "two"):
        report = report_of(room.folder / "out" / f"{name}-docker-bed.plan")
        assert [step["status"] for step in report["steps"]] == ["ok"] * 3
    assert room.left_behind() == []
