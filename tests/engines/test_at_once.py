"""Two builds of one output at the same moment: what ends with 0 has built its own image, and the other says why not."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from recipe_program import LIMIT, Room, inside
from victim import STOPPER, Victim, reached

from builder.inspect.origin import read_image_plan, read_plan_digest

pytestmark = pytest.mark.engines

VERSIONS = ("1.16.0", "1.17.0")
NAMED = ("python3", "-c", "import six; print(six.__version__)")
ROUNDS = 5


@dataclass(kw_only=True)
class Two(Victim):
    """One output that two recipes are built for."""

    @property
    def plan(self) -> Path:
        return self.room.folder / "x.plan"

    def words(self, version: str, *more: str) -> list[str | Path]:
        text = f"name: x\ndependencies: [pip: [six=={version}]]\n"
        recipe = self.room.write(f"{version}.yml", text)
        return ["build", "local", recipe, "--base", self.base, "-o", self.image, "--no-smoke", *more]

    def at_once(self, place: str, *more: str) -> dict[str, tuple[int, str]]:
        """Start both, let them go on together from a place, and say how each has ended, and with what words."""
        gate = self.room.write("gate", "")
        stands = [self.room.folder / f"stands-{version}" for version in VERSIONS]
        own = {"STOP_AT": place, "STOP_WHEN": str(gate), "PYTHONPATH": str(STOPPER)}
        processes = [
            self.room.start(*self.words(version, *more), STOP_FILE=str(stand), **own)
            for version, stand in zip(VERSIONS, stands, strict=True)
        ]
        for process, stand in zip(processes, stands, strict=True):
            reached(process, stand.exists)
        gate.unlink()
        for stand in stands:
            stand.unlink()
        said = [process.communicate(timeout=LIMIT)[0] for process in processes]
        return {
            version: (process.returncode, text)
            for version, process, text in zip(VERSIONS, processes, said, strict=True)
        }

    def is_whole(self) -> str:
        """The version in an image whose plan folder is of the same plan."""
        assert read_image_plan(self.image) == read_plan_digest(self.plan)
        assert [path.name for path in self.room.folder.iterdir() if ".recipe-" in path.name] == []
        return inside(self.image, *NAMED).strip()


@pytest.fixture(scope="module")
def two(rooms: Callable[[str], Room], base_sif: Path) -> Two:
    return Two(room=rooms("at-once"), base=base_sif)


def remove(two: Two) -> None:
    shutil.rmtree(two.plan, ignore_errors=True)
    for path in two.room.folder.glob("x.sif*"):
        path.unlink()


@pytest.mark.parametrize("number", range(ROUNDS))
def test_fault_06_two_builds_of_a_new_output(two: Two, number: int) -> None:
    del number
    remove(two)
    ended = two.at_once(r"os.mkdir \S*\.x\.plan\.recipe-")
    assert sorted(code for code, _ in ended.values()) == [0, 2], ended
    for version, (code, said) in ended.items():
        if code == 0:
            assert two.is_whole() == version
        else:
            assert "another build" in said or "x.sif' exists" in said
            assert "choose another folder with -o, or give it the rights" not in said


@pytest.mark.parametrize("number", range(ROUNDS))
def test_fault_06_two_builds_of_an_output_that_is_there(two: Two, number: int) -> None:
    if not two.image.exists():
        two.room.recipe(*two.words("1.16.0")).expect(0)
    del number
    ended = two.at_once("fcntl.flock ", "--force")
    passed = [version for version, (code, _) in ended.items() if code == 0]
    assert passed
    assert two.is_whole() in passed
    for code, said in ended.values():
        assert code == 0 or (code == 2 and "another build" in said), said


def test_fault_06_a_plan_is_not_replaced_between_its_writing_and_its_build(two: Two) -> None:
    remove(two)
    stands = two.to_stand("fcntl.flock ", when=str(two.plan / "plan.json"))
    process = two.room.start(*two.words("1.16.0"), **stands)
    reached(process, two.stands.exists)
    other = ("plan", "local", two.room.write("other.yml", "name: x\ndependencies: [pip: [six==1.17.0]]\n"))
    done = two.room.recipe(*other, "--base", two.base, "-o", two.plan)
    let_go(process, two.stands)
    assert process.returncode == 0
    assert two.is_whole() == "1.16.0"
    assert "another build" in done.expect(2).err


def let_go(process: subprocess.Popen[str], stands: Path) -> None:
    """Let a build go on at every place that it comes to."""
    end = time.monotonic() + LIMIT
    while process.poll() is None:
        assert time.monotonic() < end
        stands.unlink(missing_ok=True)
        time.sleep(0.01)
    if process.stdout is not None:
        process.stdout.close()
