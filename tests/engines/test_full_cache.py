"""A disk that gets full while downloads, layers and base images enter the cache: all of one, or nothing, is kept."""

from __future__ import annotations

from collections.abc import Callable

import compiled_channel
import pytest
from recipe_program import LIMIT, Room, inside
from test_full_disk import Disk, disks
from test_killed import pushed
from victim import Victim, reached

pytestmark = pytest.mark.engines

__all__ = ["disks"]  # a fixture

STEP = r"subprocess.Popen \S*bash .*1-build-image\.sh"
WHEELS = "name: x\ndependencies: [pip: [six==1.17.0, numpy==2.3.5]]\n"
CONDA = "name: x\nchannels: [{channel}]\ndependencies: [python={minor}, greetpy, bulk]\n"
RUNS = {"wheels": ("python3", "-c", "import numpy, six"), "conda": ("python3", "-c", "import greetpy")}


@pytest.mark.parametrize(("what", "kilobytes"), [
    ("wheels", 2000), ("wheels", 20000), ("wheels", 50000), ("base", 2000), ("base", 60000),
    ("conda", 300), ("conda", 1500),
])  # fmt: skip
def test_fault_02_a_disk_that_gets_full_while_something_enters_the_cache(
    disks: Callable[[int], Disk],
    rooms: Callable[[str], Room],
    request: pytest.FixtureRequest,
    what: str,
    kilobytes: int,
) -> None:
    disk, room = disks(1500), rooms(f"beside-{what}-{kilobytes}")
    cache = disk.room.folder / "cache"
    cache.mkdir(0o700)
    text = WHEELS
    if what == "conda":
        channel = compiled_channel.write(room.folder / "channel")
        text = CONDA.format(channel=channel.as_uri(), minor=compiled_channel.MINOR)
    base = pushed(request) if what == "base" else request.getfixturevalue("base_sif")
    own, environment = Victim(room=room, base=base), {"RECIPE_CACHE_DIR": str(cache)}
    words = ("build", "local", room.write("x.yml", text), "--base", base, "--no-smoke", "-o", own.image)

    process = room.start(*words, **environment, **own.to_stand(STEP))
    reached(process, own.stands.exists)
    disk.fill(leave=kilobytes << 10)
    own.stands.unlink()
    said, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 5, said
    assert "no space was left" in said, said
    assert "RECIPE_CACHE_DIR" in said
    assert not own.image.exists()

    disk.free()
    verified = room.recipe("cache", "check", **environment)
    if verified.code:
        assert str(cache) in verified.out + verified.err
        room.recipe("cache", "prune", **environment).expect(0)
    assert "the cache is whole" in room.recipe("cache", "check", **environment).expect(0).err
    room.recipe(*words, **environment).expect(0)
    inside(own.image, *RUNS.get(what, RUNS["wheels"]))
    assert "the cache is whole" in room.recipe("cache", "check", **environment).expect(0).err
