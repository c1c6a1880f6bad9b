"""A disk that is full while jobs work: the end of each still reaches whoever submitted it, and what was there stays."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from disks import Disk
from recipe_program import LIMIT, Built, run
from test_jobs import SITE, numbers, queue
from testbed import Kit

pytestmark = pytest.mark.engines


@pytest.fixture
def bed_disks(disks: Callable[[int], Disk]) -> Callable[[int], Disk]:
    """Disks whose rooms know a site with the tests' Slurm."""

    def make(mebibytes: int) -> Disk:
        disk = disks(mebibytes)
        disk.room.site("bed", SITE)
        return disk

    return make


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


FILL = """
    import os, sys

    print("begun", flush=True)
    file = os.open("filler", os.O_WRONLY | os.O_CREAT)
    for size in (1 << 20, 1 << 10, 1):
        try:
            while True:
                os.write(file, bytes(size))
        except OSError:
            pass
    sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("code", "how"), [(9, "failed with exit code 9"), (0, "came to its end with exit code 0")], ids=["9", "0"]
)
def test_slurm_is_the_witness_where_no_record_could_be_written(
    bed_disks: Callable[[int], Disk], tiny: Built, code: int, how: str
) -> None:
    disk = bed_disks(8)
    room, folder = disk.room, disk.room.folder / "x.run"
    kept = room.write("kept.txt", "what was there before\n")
    room.write("fill.py", FILL)
    done = room.recipe("run", "bed", tiny.image, "--submit", "--", "python3", "fill.py", str(code)).expect(code)
    said = f"{how}, says Slurm, and left no record: the disk of '{folder}' is full"
    (job,) = numbers(done.err)
    assert said in done.err
    assert not (folder / "jobs" / f"{job}.json").exists()
    again = room.recipe("status", "x.run").expect(code)
    assert said in again.err
    assert f"{'failed' if code else 'completed'}, no record" in again.err
    assert kept.read_text() == "what was there before\n"
    disk.free()
    done = room.recipe("status", "x.run").expect(code)
    assert "and left no record\n" in done.err


def test_a_build_job_on_a_full_disk_keeps_the_old_image(bed_disks: Callable[[int], Disk], small_sif: Path) -> None:
    disk = bed_disks(250)
    room, image = disk.room, disk.room.folder / "y.sif"
    recipe = room.write("y.yml", "name: y\ndependencies: [pip: [six==1.16.0]]\ncontainer: {smoke: {imports: [six]}}\n")
    words = ("build", "bed", recipe, "--base", small_sif, "-o", image, "--submit")
    room.recipe(*words).expect(0)
    was = digest(image)
    disk.fill(leave=20 << 20)
    done = room.recipe(*words, "--force").expect(5)
    assert "no space was left on the disk" in done.err
    assert digest(image) == was
    assert [left for left in room.left_behind() if "fuse2fs" not in left] == []
    room.recipe("status", image).expect(5)
    disk.free()
    room.recipe(*words, "--force").expect(0)


def test_a_suite_job_on_a_disk_that_gets_full(bed_disks: Callable[[int], Disk], digits: Built) -> None:
    disk = bed_disks(16)
    kit = Kit(disk.room, "cpu-test", digits.image, workloads=("ddp",))
    earlier = disk.room.write("kit-cpu-test/results/gpu/verdict.json", '{"verdict": "pass"}\n')
    number = kit.submit("run/node.sbatch")
    kit.until_said(number, "== ddp")
    disk.fill()
    until_out_of_the_queue(number)
    found = run(["scontrol", "show", "job", str(number)]).out
    assert "JobState=FAILED Reason=NonZeroExitCode" in found
    assert "ExitCode=1:0" in found
    assert earlier.read_text() == '{"verdict": "pass"}\n'
    probe = json.loads((kit.folder / "results" / "node" / "probe.json").read_text())
    assert (probe["verdict"], probe["world"]) == ("pass", 2)
    verdict = kit.folder / "results" / "node" / "verdict.json"
    assert not verdict.exists() or json.loads(verdict.read_text())["verdict"] == "FAIL"


def test_a_suite_whose_snapshot_fills_the_disk_fails(bed_disks: Callable[[int], Disk], digits: Built) -> None:
    """Two of them do not fit, and the old one goes when the new one is whole."""
    room = bed_disks(24).room
    first = run(["sbatch", "--parsable", "--hold", "--partition=test", "--output=/dev/null", "--wrap=true"]).expect(0)
    held = first.out.strip()
    words = ("--workload", "ddp", "--workload", "pi", "--nodes", "1", "-o", room.folder / "s.smoke")
    jobs = ("--submit", "--no-wait", f"--dependency=afterany:{held}")
    room.recipe("smoke", "bed", digits.image, *words, *jobs).expect(0)
    # Two epochs, as otherwise, and short ones.
    suite = room.folder / "s.smoke" / "run" / "suite.sh"
    told = 'launch python3 -B smoke "$name"'
    assert told in suite.read_text()
    short = f'{told} $([ "$name" != ddp ] || echo --samples 512 --epochs 2)'
    suite.write_text(suite.read_text().replace(told, short))
    run(["scontrol", "release", held]).expect(0)
    done = room.recipe("status", "s.smoke", "--follow").expect(6)
    assert "node/ddp: error: rank 0: the snapshot" in done.err
    verdict = json.loads((room.folder / "s.smoke" / "results" / "node" / "verdict.json").read_text())
    assert "No space left on device" in verdict["workloads"]["ddp"]["error"]
    assert {name: found["verdict"] for name, found in verdict["workloads"].items()} == {
        "probe": "pass",
        "ddp": "FAIL",
        "pi": "pass",
    }
    assert digits.image.exists()


def until_out_of_the_queue(number: int) -> None:
    end = time.monotonic() + LIMIT
    while str(number) in queue().split():
        assert time.monotonic() < end, "the job does not end"
        time.sleep(0.2)
