"""`recipe build --submit` on the real Slurm with --reproduce, a second build as a job, and with --offline."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lock_room import LockRoom, served
from recipe_program import Room, inside, report_of, run
from test_jobs import SITE, numbers, until_gone
from tiny_index import write_index

from builder.sif.bounded import hash_file
from builder.slurm.client import Slurm
from builder.system.process import capture

pytestmark = pytest.mark.engines

SAME = "name: x\ndependencies: [{pip: [six==1.16.0]}]\ncontainer: {smoke: {imports: [six]}}\n"
DIFFERS = """
    name: x
    dependencies: [{pip: [six==1.16.0]}]
    container:
      run: ['head -c 8 /dev/urandom >/opt/random.bin']
    """


@pytest.fixture
def bed(room: Room) -> Room:
    """A room that knows a site with the tests' Slurm."""
    room.site("bed", SITE)
    return room


def words(room: Room, text: str, base: Path, *more: str) -> tuple[str | Path, ...]:
    recipe = room.write("x.yml", text)
    return ("build", "bed", recipe, "--base", base, "-o", room.folder / "x.sif", "--submit", "--reproduce", *more)


def test_a_second_build_is_a_job_and_gives_the_same(bed: Room, base_sif: Path) -> None:
    command = words(bed, SAME, base_sif)
    done = bed.recipe(*command).expect(0)
    build, smoke, again = numbers(done.err)
    assert re.search(rf"^job {smoke}: smoke, after {build}$", done.err, re.MULTILINE)
    assert re.search(rf"^job {again}: again-build-image, after {build}$", done.err, re.MULTILINE)
    image, plan = bed.folder / "x.sif", bed.folder / "x.plan"
    digest = hash_file(image)
    assert f"the same bytes: a second build gave the same image, sha256 {digest}" in done.err
    report = report_of(plan)
    assert (report["status"], report["verified"]["same"], report["verified"]["sha256"]) == ("passed", True, digest)
    # It was built: its job has a log, a record and a cache of its own, which is gone with its folder.
    (log,) = plan.glob(f"*-again-{again}.log")
    assert "made in" in log.read_text()
    assert "from the cache" not in log.read_text()
    assert json.loads((plan / "jobs" / f"{again}.json").read_text())["exit_code"] == 0
    assert not (plan / "again").exists()
    assert "again-build-image" in bed.recipe("status", image).expect(0).err
    # Of an image that is there only the second build is a job; what was known of the image stays.
    done = bed.recipe(*command).expect(0)
    assert re.findall(r"^job \d+: (\S+)", done.err, re.MULTILINE) == ["again-build-image"]
    assert "the same bytes" in done.err
    found = report_of(plan)
    assert {**found, "verified": {}} == {**report, "verified": {}}
    assert found["verified"]["sha256"] == digest
    until_gone(bed)
    assert bed.left_behind() == []


def test_a_second_build_that_differs_is_told_by_status(bed: Room, base_sif: Path) -> None:
    first = run(["sbatch", "--parsable", "--hold", "--partition=test", "--output=/dev/null", "--wrap=true"]).expect(0)
    after = f"--dependency=afterany:{first.out.strip()}"
    bed.recipe(*words(bed, DIFFERS, base_sif, "--no-smoke", "--no-wait", after)).expect(0)
    image, plan = bed.folder / "x.sif", bed.folder / "x.plan"
    bed.recipe("status", image).expect(7)
    refused = bed.recipe("build", "local", "x.yml", "--base", base_sif, "-o", image).expect(2)
    assert "of this folder are still waiting or running" in refused.err
    run(["scontrol", "release", first.out.strip()]).expect(0)
    done = bed.recipe("status", image, "--follow").expect(8)
    assert "NOT the same bytes: " in done.err
    assert "/opt/random.bin: content of 8 bytes" in done.err
    found = report_of(plan)
    assert (found["status"], found["verified"]["same"]) == ("passed", False)
    assert "/opt/random.bin: content of 8 bytes" in (plan / found["verified"]["list"]).read_text()
    assert inside(image, "stat", "-c", "%s", "/opt/random.bin") == "8\n"
    assert not (plan / "again").exists()
    bed.recipe("status", image).expect(8)
    until_gone(bed)
    assert bed.left_behind() == []


def test_a_second_build_that_was_cancelled_leaves_the_first(bed: Room, base_sif: Path) -> None:
    _, again = numbers(bed.recipe(*words(bed, SAME, base_sif, "--no-smoke", "--no-wait")).expect(0).err)
    run(["scancel", again]).expect(0)
    image, plan = bed.folder / "x.sif", bed.folder / "x.plan"
    done = bed.recipe("status", image, "--follow").expect(8)
    assert "the image could not be built again: job " in done.err
    assert "was cancelled" in done.err
    found = report_of(plan)
    assert (found["status"], found["verified"]["same"]) == ("passed", False)
    assert found["image_sha256"] == hash_file(image)
    assert not (plan / "again").exists()


def test_what_cannot_be_built_again_as_jobs_is_refused(bed: Room, base_sif: Path) -> None:
    command = words(bed, SAME, base_sif)
    other = bed.write("y.yml", SAME.replace("name: x", "name: y"))
    several = ("build", "bed", "x.yml", other, "--base", base_sif, "-o", "images", "--submit", "--reproduce")
    done = bed.recipe(*several).expect(2)
    assert "arrays have no second build" in done.err
    assert not (bed.folder / "images").exists()
    bed.site("jobless", SITE.replace("build: {nodes", "convert: {nodes"))
    done = bed.recipe("build", "jobless", *command[2:]).expect(2)
    assert "step 'build-image' has no job on 'jobless', and a second build needs one" in done.err
    assert not (bed.folder / "x.plan").exists()


def test_a_job_without_a_network_takes_what_was_fetched(rooms: Callable[[str], Room], base_sif: Path) -> None:
    bed = LockRoom(rooms("jobs-offline").folder)
    bed.site("bed", SITE)
    env = bed.write("x.yml", "name: x\ndependencies: [{pip: [tool-stub]}]\n")
    write_index(bed.folder / "index", (("tool-stub", "1.0", ()),))
    gate = threading.Event()
    gate.set()
    with served(bed.folder / "index", gate=gate) as address:
        index = {"UV_DEFAULT_INDEX": address, "NO_PROXY": "127.0.0.1"}
        bed.recipe("fetch", "bed", env, "--base", base_sif, **index).expect(0)
    command = ("build", "bed", env, "--base", base_sif, "-o", bed.folder / "x.sif", "--submit", "--no-smoke")
    done = bed.recipe(*command, **index).expect(5)
    assert "could not reach a server it needs" in done.err
    bed.recipe(*command, "--offline", **index).expect(0)
    assert inside(bed.folder / "x.sif", "python3", "-c", "import tool_stub; print(tool_stub.__version__)") == "1.0\n"


def test_a_job_that_starts_before_sbatch_is_cleaned_up_goes_on(tmp_path: Path) -> None:
    submit = "job=$(sbatch --parsable --output=job.out --wrap='touch started; sleep 2; touch ended')"
    wait = "for i in $(seq 300); do test -e started && break; sleep 0.1; done; echo $job"
    submitted = capture(["bash", "-c", f"{submit}; {wait}"], env=dict(os.environ), cwd=tmp_path, timeout=60)
    assert (tmp_path / "started").exists(), submitted.text
    job = submitted.text.strip()
    while find_state(job) in ("waiting", "running"):
        time.sleep(0.2)
    assert (tmp_path / "ended").exists(), find_state(job)


def find_state(job: str) -> str:
    states = Slurm(os.environ).query_states([job])
    return states[job].stage if states else "no answer"
