"""`recipe fetch`, and then a build in a network of its own, in which there is nobody: real engines."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import compiled_channel
import pytest
from compiled_channel import MINOR
from lock_room import LockRoom, served
from recipe_program import LIMIT, Done, Room, inside, processes, program, run
from stand_ins.images import tagged_debian
from tiny_index import write_index, write_source, write_wheel

from builder.layers.cache import Store, hash_file

pytestmark = pytest.mark.engines

PACKAGES = (("tool-stub", "1.0", ("other-stub",)), ("other-stub", "1.0", ()))
WHEELS = "name: demo\ndependencies:\n  - pip: [tool-stub]\n"
CONDA = "name: demo\nchannels: [{channel}]\ndependencies: [python={minor}, greetpy, {{pip: [tool-stub]}}]\n"
NOBODY = ("unshare", "--user", "--map-current-user", "--net")  # not even the loopback address answers
NOT_FETCHED = "not fetched before, and no server is asked"


class Served(LockRoom):
    """A room whose index is a server."""

    index = ""

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of `recipe`."""
        return super().environment(**{"UV_DEFAULT_INDEX": self.index, "NO_PROXY": "127.0.0.1", **more})

    def alone(self, *words: str | Path, **more: str) -> Done:
        """Run `recipe` without a network."""
        return run([*NOBODY, program(), *words], env=self.environment(**more), cwd=self.folder)

    def kinds(self) -> set[str]:
        """What the cache holds."""
        return {entry.kind for entry in Store(self.folder / "cache").list_entries()}


@pytest.fixture
def room(rooms: Callable[[str], Room], request: pytest.FixtureRequest) -> Iterator[Served]:
    room = Served(rooms(f"fetch/{request.node.name}").folder)
    write_index(room.folder / "index", PACKAGES)
    with served(room.folder / "index") as room.index:
        yield room


def words(room: Room, base: Path | str, *, image: str = "x.sif") -> tuple[str | Path, ...]:
    return ("local", room.folder / "demo.yml", "--base", str(base), "-o", room.folder / image, "--no-smoke")


def fetched(room: Served, base: Path | str, *more: str, **environment: str) -> Done:
    return room.recipe("fetch", *words(room, base)[:4], *more, **environment)


def test_wheels_are_fetched_and_compiled_and_no_layer_is_made(room: Served, base_sif: Path) -> None:
    room.write("demo.yml", WHEELS)
    fetched(room, base_sif).expect(0)
    assert room.kinds() == {"compiled"}
    assert sorted(path.name for path in room.folder.glob("local*")) == []
    assert room.left_behind() == []
    room.alone("build", *words(room, base_sif), "--offline").expect(0)
    assert inside(room.folder / "x.sif", "python", "-c", "import tool_stub; print(tool_stub.__version__)") == "1.0\n"
    room.recipe("build", *words(room, base_sif, image="online.sif"), "--force").expect(0)
    assert hash_file(room.folder / "online.sif") == hash_file(room.folder / "x.sif")


def test_without_it_an_offline_build_fails_without_a_request(room: Served, base_sif: Path) -> None:
    room.write("demo.yml", WHEELS)
    done = room.recipe("build", *words(room, base_sif), "--offline").expect(5)
    assert f"failed: what the indexes have was {NOT_FETCHED}" in done.err
    assert "  fix: fetch it where there is a network: `recipe fetch`" in done.err
    room.recipe("lock", *words(room, base_sif)[:4]).expect(0)
    empty = {"UV_CACHE_DIR": str(room.folder / "empty")}
    done = room.recipe("build", *words(room, base_sif), "--offline", "--locked", **empty).expect(5)
    assert f"failed: wheels of 'packages' were {NOT_FETCHED}" in done.err
    assert not (room.folder / "x.sif").exists()


def test_what_a_lock_names_is_fetched(room: Served, base_sif: Path) -> None:
    room.write("demo.yml", WHEELS)
    room.recipe("lock", *words(room, base_sif)[:4]).expect(0)
    newer = write_wheel(room.folder / "index" / "tool-stub", "tool-stub", "2.0", (), origin="newer")
    page = newer.with_name("index.html")
    page.write_text(page.read_text().replace("</body>", f'<a href="{newer.name}">{newer.name}</a></body>'))
    fetched(room, base_sif, "--locked").expect(0)
    room.alone("build", *words(room, base_sif), "--offline", "--locked").expect(0)
    made = json.loads((room.folder / "x.plan" / "made-of.json").read_text())
    assert made["packages"] == ["other-stub==1.0", "tool-stub==1.0"]


def test_conda_packages_and_the_wheels_on_them(room: Served, base_sif: Path) -> None:
    compiled_channel.write(room.folder / "channel")
    with served(room.folder / "channel") as channel:
        room.write("demo.yml", CONDA.format(channel=channel, minor=MINOR))
        done = room.recipe("build", *words(room, base_sif), "--offline").expect(5)
        assert NOT_FETCHED in done.err
        room.recipe("lock", *words(room, base_sif)[:4]).expect(0)
        done = room.recipe("build", *words(room, base_sif), "--offline", "--locked").expect(5)
        assert f"failed: conda packages were {NOT_FETCHED}" in done.err
        (room.folder / "demo.lock.yml").unlink()
        fetched(room, base_sif).expect(0)
    assert room.kinds() == {"layers", "compiled"}
    room.alone("build", *words(room, base_sif), "--offline").expect(0)
    image = room.folder / "x.sif"
    assert inside(image, "python", "-c", "import greetpy, tool_stub; print(tool_stub.__version__)") == "1.0\n"


def test_sources_are_built_ahead(room: Served, base_sif: Path) -> None:
    """A container builds them, on the layer of torch: this one is made then."""
    room.write("demo.yml", "name: demo\ndependencies:\n  - pip: [tool-stub, torch==2.8.0, plain-source]\n")
    write_index(room.folder / "index", [*PACKAGES, ("torch", "2.8.0+cpu", ())])
    settings = {"UV_FIND_LINKS": write_source(room.folder / "source", name="plain-source")}
    done = fetched(room, base_sif, "-v", **settings).expect(0)
    assert "in a container, on other layers: these are made too" in done.err
    assert room.kinds() == {"layers", "compiled"}
    room.alone("build", *words(room, base_sif), "--offline", **settings).expect(0)
    log = room.log(room.folder / "x.plan")
    assert "layer packages: " in log
    assert "packages: in a container" not in log
    inside(room.folder / "x.sif", "python", "-c", "import tool_stub, plain_source, torch")


def test_a_base_image_of_a_registry(room: Served, docker_daemon: str, base_tar: Path, registry: str) -> None:
    del docker_daemon
    base = f"docker://{tagged_debian(base_tar, registry=registry)}"
    room.write("demo.yml", WHEELS)
    plain = {"APPTAINER_NOHTTPS": "1"}
    done = room.alone("build", *words(room, base), "--offline", **plain).expect(4)
    assert f"the base image {base} was {NOT_FETCHED}" in done.err
    fetched(room, base, **plain).expect(0)
    assert room.kinds() == {"bases", "compiled"}
    room.alone("build", *words(room, base), "--offline", **plain).expect(0)
    assert "the image that docker://" in room.log(room.folder / "x.plan")
    assert inside(room.folder / "x.sif", "python", "-c", "import tool_stub; print(tool_stub.__version__)") == "1.0\n"


def test_a_failure_keeps_its_log(room: Served, base_sif: Path) -> None:
    room.write("demo.yml", WHEELS)
    done = room.alone("fetch", *words(room, base_sif)[:4]).expect(5)
    assert "]: step 'fetch' failed: this machine could not reach a server it needs" in done.err
    assert "fix: fetch where the internet can be reached" in done.err
    (log,) = (room.folder / "cache" / "fetch").glob("demo-local-*/logs/fetch.log")
    assert f"at:  {log}" in done.err
    assert "error sending request" in log.read_text()
    # The next one that gets through leaves nothing; what is exported for builds is not meant for it.
    fetched(room, base_sif, RECIPE_OFFLINE="yes").expect(0)
    assert list((room.folder / "cache" / "fetch").iterdir()) == []
    assert room.left_behind() == []


def test_a_fetch_that_was_killed_leaves_nothing_to_the_next(room: Served, base_sif: Path) -> None:
    room.write("demo.yml", WHEELS)
    gate = threading.Event()
    with served(room.folder / "index", gate=gate) as room.index:
        process = room.start("fetch", *words(room, base_sif)[:4], "--tmpdir", room.tmp)
        end = time.monotonic() + LIMIT
        while not any("pip compile" in line for line in processes(str(room.folder / "cache"))):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        gate.set()
        assert room.left_behind() != []
        done = fetched(room, base_sif, "-v", "--tmpdir", str(room.tmp)).expect(0)
    assert "removed what an earlier build had left" in done.err
    assert room.left_behind() == []


@pytest.mark.parametrize(
    ("settings", "words_of_it"),
    [
        (
            {"RECIPE_CACHE_DIR": "/proc/nowhere"},
            ("the cache folder '/proc/nowhere' cannot be used", "RECIPE_CACHE_DIR"),
        ),
        ({"TMPDIR": "/nowhere"}, ("no temporary folder can be made in '/nowhere'", "--tmpdir")),
    ],
)
def test_folders_that_cannot_be_used(
    settings: dict[str, str], words_of_it: tuple[str, str], room: Served, base_sif: Path
) -> None:
    room.write("demo.yml", WHEELS)
    done = fetched(room, base_sif, **settings).expect(4)
    assert all(text in done.err for text in words_of_it)


def test_a_build_is_no_fetch_whatever_is_exported(room: Served, base_sif: Path) -> None:
    room.write("demo.yml", WHEELS)
    room.recipe("build", *words(room, base_sif), RECIPE_FETCH="yes").expect(0)


def test_several_sites_and_one_that_cannot(room: Served, base_sif: Path) -> None:
    room.write("demo.yml", WHEELS)
    room.site("other", "extends: local\ntitle: another machine\n")
    done = room.recipe("fetch", "other", "local", "lumi-g", room.folder / "demo.yml", "--base", base_sif)
    assert done.code == 2
    names = ("other", "local", "lumi-g")
    table = [line.split() for line in done.err.splitlines() if line.split()[:1] and line.split()[0] in names]
    rows = {row[0]: row[1] for row in table}
    assert rows == {"other": "fetched", "local": "fetched", "lumi-g": "refused"}
    assert list(room.tmp.iterdir()) == []
