"""A disk that gets full while downloads, layers and base images enter the cache: all of one, or nothing, is kept."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from compiled_channel import MINOR, compiled, pure, python, write_channel
from disks import Disk
from lock_room import served
from recipe_program import LIMIT, Room, inside, program, run
from stand_ins.images import pushed_debian
from stand_ins.wheels import write_wheel
from victim import Victim, reached

pytestmark = pytest.mark.engines

STEP = r"subprocess.Popen \S*bash .*1-build-image\.sh"
WHEELS = "name: x\ndependencies: [pip: [large-thing==1.0]]\n"
SIZE = 12_000_000  # bytes of its data, which nothing packs smaller
SMALL = "name: x\ndependencies: [pip: [six==1.17.0]]\n"
CONDA = "name: x\nchannels: [{channel}]\ndependencies: [python={minor}, greetpy]\n"


@pytest.fixture
def server() -> Iterator[Callable[[Path], str]]:
    """Serve folders on the loopback address until the test ends."""
    with ExitStack() as served_folders:
        yield lambda folder: served_folders.enter_context(served(folder))


@pytest.mark.parametrize(("what", "kilobytes"), [
    ("wheels", 500), ("wheels", 8000), ("wheels", 16000), ("base", 2000), ("base", 30000),
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
    environment, text, module = {"RECIPE_CACHE_DIR": str(cache)}, SMALL, "six"
    if what == "wheels":
        data = random.Random(1).randbytes(SIZE)
        wheel = write_wheel(room.folder / "wheels" / "large-thing", name="large-thing", version="1.0", data=data)
        wheel.with_name("index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
        address = request.getfixturevalue("server")(wheel.parents[1])
        environment |= {"UV_DEFAULT_INDEX": address, "NO_PROXY": "127.0.0.1"}
        text, module = WHEELS, "large_thing"
    if what == "conda":
        packages = (python(), *compiled(room.folder / "c"), pure())
        channel, module = write_channel(room.folder / "channel", packages), "greetpy"
        text = CONDA.format(channel=channel.as_uri(), minor=MINOR)
    if what == "base":
        request.getfixturevalue("docker_daemon")
        base = pushed_debian(request.getfixturevalue("base_tar"), registry=request.getfixturevalue("registry"))
    else:
        base = request.getfixturevalue("base_sif")
    own = Victim(room=room, base=base)
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
    inside(own.image, "python3", "-c", f"import {module}")
    assert "the cache is whole" in room.recipe("cache", "check", **environment).expect(0).err


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
    short = rf"the cache '{re.escape(str(cache))}' has [0-9.]+ [KMG]iB free, and the build needs 0\.5 GiB"
    assert re.search(short, done.err)
    assert "RECIPE_CACHE_DIR" in done.err
    # By hand nobody looks at the disk before.
    room.recipe("plan", *words, "-o", "y.plan").expect(0)
    environment = {"RECIPE_CACHE_DIR": str(cache)}
    script = ["bash", "1-build-image.sh"]
    first = run(script, cwd=room.folder / "y.plan", env=room.environment(**environment))
    assert first.code or kilobytes >= 700
    assert "has no glibc" not in first.out + first.err
    assert not first.code or f"recipe: this was written to the cache '{cache}'" in first.err
    disk.free()
    run(script, cwd=room.folder / "y.plan", env=room.environment(**environment)).expect(0)
    room.recipe("build", *words, "--no-smoke", "-o", "x.sif", "--force", **environment).expect(0)
    assert "the cache is whole" in room.recipe("cache", "check", **environment).expect(0).err
    hidden = {path.name for kind in ("facts", "known") for path in (cache / "layers-1" / kind).glob(".*")}
    # FUSE renames a removed file so until its last reader has closed it, and learns of that a moment later.
    assert [name for name in hidden if not name.startswith(".fuse_hidden")] == []


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
