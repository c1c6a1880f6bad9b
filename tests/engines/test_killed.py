"""Builds that are killed in each of their phases: the image that was there stays, the next build is whole."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from recipe_program import Room, inside, processes
from stand_ins.images import pushed_debian
from victim import RUN, Victim, ended, reached

from builder.sif.bounded import hash_file

pytestmark = pytest.mark.engines

LARGE = 20_000_000  # bytes that no other layer of the test has
RECIPE = """
    name: x
    dependencies: [{pip: [six==VERSION]}]
    container: {files: {notes.txt: /opt/notes.txt}, smoke: {imports: [six]}}
"""
LAYERS = {
    "resolve": RUN + r"uv\b.* pip compile",
    "stage": RUN + r"uv\b.* pip install",
    "compile": RUN + r"bytecode_worker\.py",
    "pack": RUN + r"mksquashfs .*-noappend",
    "proof": RUN + r"unsquashfs .*version\.py",
    "assemble": r"open layers-1/layers/[^ ]*\.sqfs",
    "smoke": RUN + r"bash 2-smoke\.sh",
    "publish": r"os.rename x-local\.sif [^ ]*/x\.sif ",
    "papers": r"os.rename x\.sif\.provenance\.json",
}
PULLED = {
    "fetch": RUN + r"apptainer build .*--sandbox",
    "pack the base": RUN + r"mksquashfs .*base\.tree",
    "wrap": r"open [^ ]*base\.part\.sif",
}
FLAT = {
    "engine": RUN + r"bash 1-build-image\.sh",
    "settle": r"open x-local\.sif\.part rb?\+",
    "smoke": LAYERS["smoke"],
    "publish": LAYERS["publish"],
    "papers": LAYERS["papers"],
}


@dataclass(kw_only=True)
class Built(Victim):
    """By one of the backends."""

    backend: str

    def words(self, version: str) -> list[str | Path]:
        self.room.write("notes.txt", "notes\n")
        recipe = self.room.write("x.yml", RECIPE.replace("VERSION", version))
        return ["build", "local", recipe, "--base", self.base, "--backend", self.backend, "-o", self.image, "--force"]

    def build(self, version: str) -> str:
        self.room.recipe(*self.words(version), RECIPE_CACHE_DIR=str(self.cache)).expect(0)
        return hash_file(self.image)

    def stopped(self, at: str, number: signal.Signals, *, when: str = "/") -> int:
        """Start a build, wait until it stands at a place, and send a signal to its process group; the exit code."""
        # Nothing is in the cache.
        while self.backend == "layers" and self.cache.exists():
            self.caches += 1
        settings = self.to_stand(at, when=when)
        process = self.room.start(*self.words("1.17.0"), RECIPE_CACHE_DIR=str(self.cache), **settings)
        reached(process, self.stands.exists)
        os.killpg(process.pid, number)
        if number == signal.SIGTERM and at == LAYERS["publish"]:
            self.stands.unlink()  # a moment that nothing interrupts
        return ended(process)


@pytest.fixture(scope="module")
def victims() -> dict[str, Built]:
    """Those that were made: pytest asks for one more than once."""
    return {}


@pytest.fixture
def victim(
    request: pytest.FixtureRequest, rooms: Callable[[str], Room], small_sif: Path, victims: dict[str, Built]
) -> Built:
    if request.param not in victims:
        pulled = request.param == "pulled"
        base: Path | str = small_sif
        if pulled:
            request.getfixturevalue("docker_daemon")
            tar, registry = request.getfixturevalue("base_tar"), request.getfixturevalue("registry")
            base = pushed_debian(tar, registry=registry)
        backend = "layers" if pulled else request.param
        made = Built(room=rooms(f"killed-{request.param}"), base=base, backend=backend)
        made.after = made.build("1.17.0")
        made.before = made.build("1.16.0")
        shutil.copy(made.image, made.room.folder / "before")
        victims[request.param] = made
    return victims[request.param]


# SIGTERM in the midst of a flat build is in test_faults.py.
CASES = [("layers", phase, signal.SIGKILL) for phase in LAYERS]
CASES += [("layers", phase, signal.SIGTERM) for phase in ("stage", "assemble", "publish", "papers")]
CASES += [("apptainer", phase, signal.SIGKILL) for phase in FLAT]
CASES += [("pulled", phase, signal.SIGKILL) for phase in PULLED]


@pytest.mark.parametrize(("victim", "phase", "number"), CASES, indirect=["victim"])
def test_a_build_killed_in_any_phase(victim: Built, phase: str, number: signal.Signals) -> None:
    places = {**PULLED, **LAYERS} if victim.backend == "layers" else FLAT
    shutil.copy(victim.room.folder / "before", victim.image)
    half = str(victim.room.folder / "x.plan" / "*.part") if phase == "assemble" else "/"
    code = victim.stopped(places[phase], number, when=half)
    whole = number == signal.SIGTERM and phase == "publish"
    assert code == (-9 if number == signal.SIGKILL else 0 if whole else 143)
    # What is written beside the image comes after it.
    assert hash_file(victim.image) == (victim.after if whole or phase == "papers" else victim.before)
    if number == signal.SIGTERM:
        assert victim.room.left_behind() == []
    # The next build ends and removes what is left of this one.
    assert victim.build("1.17.0") == victim.after
    assert victim.room.left_behind() == []
    assert inside(victim.image, "python3", "-c", "import six; print(six.__version__)") == "1.17.0\n"


def is_packed_in_part(cache: Path) -> bool:
    return any(part.stat().st_size > LARGE for part in cache.glob("layers-1/work/*/*.sqfs"))


def signal_packers(cache: Path, number: signal.Signals) -> bool:
    """Send a signal to the processes of mksquashfs in a cache; False where there is none."""
    found = [int(line.split()[0]) for line in processes(str(cache)) if "mksquashfs" in line]
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return bool(found)


def test_a_build_killed_while_mksquashfs_writes(rooms: Callable[[str], Room], small_sif: Path) -> None:
    room = rooms("killed-packing")
    (room.folder / "large").write_bytes(os.urandom(300_000_000))
    recipe = room.write("x.yml", "name: x\ndependencies: []\ncontainer: {files: {large: /opt/large}}\n")
    words = ("build", "local", recipe, "--base", small_sif, "-o", room.folder / "x.sif", "--no-smoke")
    for number in range(5):
        cache = room.folder / f"cache-{number}"
        process = room.start(*words, RECIPE_CACHE_DIR=str(cache))
        reached(process, partial(is_packed_in_part, cache))
        caught = signal_packers(cache, signal.SIGSTOP) and signal_packers(cache, signal.SIGSTOP)
        os.killpg(process.pid, signal.SIGKILL)
        signal_packers(cache, signal.SIGCONT)
        assert ended(process) == -9
        if caught:
            break
        (room.folder / "x.sif").unlink(missing_ok=True)  # it was too fast for us: another one begins
    assert caught
    assert not (room.folder / "x.sif").exists()
    assert not [path for path in cache.glob("layers-1/layers/*.sqfs") if path.stat().st_size > LARGE]
    room.recipe(*words, RECIPE_CACHE_DIR=str(cache)).expect(0)
    assert room.left_behind() == []
    assert inside(room.folder / "x.sif", "sha256sum", "/opt/large").split()[0] == hash_file(room.folder / "large")
