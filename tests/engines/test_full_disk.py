"""A disk that is full while jobs work: the end of each still reaches whoever submitted it, and what was there stays."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import engine
from recipe_program import LIMIT, Built, Room, program, run
from test_jobs import SITE, numbers, queue
from testbed import Kit
from victim import Victim, reached

pytestmark = pytest.mark.engines


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A small file system in a file; its owner's jobs see it too."""

    room: Room

    def fill(self, *, leave: int = 0) -> None:
        """Leave so many bytes free, or none."""
        with (self.room.folder / "filler").open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 10, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    continue
            file.truncate(file.tell() - leave)

    def free(self) -> None:
        (self.room.folder / "filler").unlink()


@pytest.fixture
def disks(rooms: Callable[[str], Room], request: pytest.FixtureRequest) -> Iterator[Callable[[int], Disk]]:
    """Make disks of so many MiB, whose folder is a room; temporary files of ours lie elsewhere."""
    for name in ("fuse2fs", "fusermount3"):
        engine(name)
    around = rooms(request.node.name.partition("[")[0])
    mounted: list[Path] = []

    def make(mebibytes: int) -> Disk:
        name = f"{request.node.callspec.id if hasattr(request.node, 'callspec') else ''}{len(mounted)}"
        image, folder = around.folder / f"disk-{name}", around.folder / f"on-{name}"
        folder.mkdir()
        with image.open("wb") as file:
            file.truncate(mebibytes << 20)
        owner = f"root_owner={os.getuid()}:{os.getgid()}"
        run(["/usr/sbin/mkfs.ext4", "-q", "-m", "0", "-E", owner, image]).expect(0)
        run(["fuse2fs", "-o", "rw", image, folder]).expect(0)
        mounted.append(folder)
        room = Room(folder)
        room.tmp = around.tmp
        room.site("bed", SITE)
        return Disk(room=room)

    yield make
    for folder in mounted:
        end = time.monotonic() + 60
        while run(["fusermount3", "-u", folder]).code and time.monotonic() < end:
            time.sleep(0.5)


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
    disks: Callable[[int], Disk], tiny: Built, code: int, how: str
) -> None:
    disk = disks(8)
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


def test_a_build_job_on_a_full_disk_keeps_the_old_image(disks: Callable[[int], Disk], base_sif: Path) -> None:
    disk = disks(250)
    room, image = disk.room, disk.room.folder / "y.sif"
    recipe = room.write("y.yml", "name: y\ndependencies: [pip: [six==1.16.0]]\ncontainer: {smoke: {imports: [six]}}\n")
    words = ("build", "bed", recipe, "--base", base_sif, "-o", image, "--submit")
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


def test_a_suite_job_on_a_disk_that_gets_full(disks: Callable[[int], Disk], digits: Built) -> None:
    disk = disks(16)
    kit = Kit(disk.room, "cpu-test", digits.image)
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


def test_a_suite_whose_snapshot_fills_the_disk_fails(disks: Callable[[int], Disk], digits: Built) -> None:
    """Two of them do not fit, and the old one goes when the new one is whole."""
    room = disks(24).room
    done = room.recipe("smoke", "bed", digits.image, "--submit", "--nodes", "1", "-o", room.folder / "s.smoke").expect(
        6
    )
    assert "node/ddp: error: rank 0: the snapshot" in done.err
    verdict = json.loads((room.folder / "s.smoke" / "results" / "node" / "verdict.json").read_text())
    assert "No space left on device" in verdict["workloads"]["ddp"]["error"]
    assert {name: found["verdict"] for name, found in verdict["workloads"].items()} == {
        "probe": "pass", "ddp": "FAIL", "pi": "pass", "allreduce": "pass", "startup": "pass",
    }  # fmt: skip
    assert digits.image.exists()


def until_out_of_the_queue(number: int) -> None:
    end = time.monotonic() + LIMIT
    while str(number) in queue().split():
        assert time.monotonic() < end, "the job does not end"
        time.sleep(0.2)


@pytest.mark.parametrize("kilobytes", [0, 50, 200, 700, 1500, 3000])
def test_fault_02_a_cache_on_a_full_disk_keeps_nothing_half_read(
    disks: Callable[[int], Disk], base_sif: Path, kilobytes: int
) -> None:
    disk = disks(300)
    cache, room = disk.room.folder / "cache", Room(disk.room.tmp.parent / f"beside-{kilobytes}")
    cache.mkdir()
    recipe = room.write("x.yml", "name: x\ndependencies: [pip: [six==1.17.0]]\n")
    words = ("local", recipe, "--base", base_sif)
    disk.fill(leave=kilobytes << 10)
    done = room.recipe("build", *words, "--no-smoke", "-o", "x.sif", RECIPE_CACHE_DIR=str(cache)).expect(4)
    assert f"the cache '{cache}' has 0.0 GiB free" in done.err
    assert "RECIPE_CACHE_DIR" in done.err
    # By hand nobody looks at the disk before.
    room.recipe("plan", *words, "-o", "y.plan").expect(0)
    environment = {"RECIPE_CACHE_DIR": str(cache)}
    script = ["bash", "1-build-image.sh"]
    first = run(script, cwd=room.folder / "y.plan", env=room.environment(**environment))
    assert first.code or kilobytes >= 1500
    assert "has no glibc" not in first.out + first.err
    assert not first.code or f"recipe: this was written to the cache '{cache}'" in first.err
    disk.free()
    run(script, cwd=room.folder / "y.plan", env=room.environment(**environment)).expect(0)
    room.recipe("build", *words, "--no-smoke", "-o", "x.sif", "--force", **environment).expect(0)
    assert "the cache is whole" in room.recipe("cache", "check", **environment).expect(0).err
    assert [path for kind in ("facts", "known") for path in (cache / "layers-1" / kind).glob(".*")] == []


def test_fault_05_a_disk_that_gets_full_while_apptainer_writes_the_image(
    disks: Callable[[int], Disk], base_sif: Path
) -> None:
    disk = disks(2000)
    room = disk.room
    own = Victim(room=room, base=base_sif)
    recipe = room.write("x.yml", "name: x\ndependencies: [pip: [six==1.17.0]]\n")
    words = ("build", "local", recipe, "--base", base_sif, "--backend", "apptainer", "-o", own.image, "--no-smoke")
    process = room.start(*words, **own.to_stand(r"subprocess.Popen \S*bash .*1-build-image\.sh"))
    reached(process, own.stands.exists)
    disk.fill(leave=20 << 20)
    own.stands.unlink()
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 5, said
    assert "no space was left on the disk" in said
    assert "-o" in said.partition("fix: ")[2].splitlines()[0]
    assert "--tmpdir" not in said
    assert not own.image.exists()


def test_fault_05_a_home_that_may_not_be_written(rooms: Callable[[str], Room], base_sif: Path) -> None:
    room = rooms("home-555")
    home = room.folder / "home"
    home.mkdir(0o555)
    recipe = room.write("x.yml", "name: x\ndependencies: [pip: [six==1.17.0]]\n")
    environment = room.environment(HOME=str(home))
    for name in ("RECIPE_CACHE_DIR", "XDG_CACHE_HOME"):
        environment.pop(name, None)
    words = (program(), "build", "local", recipe, "--base", base_sif, "--no-smoke", "-o", room.folder / "x.sif")
    done = run(words, env=environment, cwd=room.folder).expect(4)
    assert f"the cache folder '{home}/.cache" in done.err
    assert "set RECIPE_CACHE_DIR" in done.err
    assert "--tmpdir" not in done.err
    run(words, env={**environment, "RECIPE_CACHE_DIR": str(room.folder / "cache")}, cwd=room.folder).expect(0)
