"""Conda environments as layers: really solved, locked, linked and run, from channels that are made here."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import compiled_channel
import pytest
from compiled_channel import LARGE, MINOR, Tiny, compiled, python, write_channel, write_package
from lock_room import PASSWORD, USER, LockRoom, served
from recipe_program import LIMIT, Done, Room, inside, run
from tiny_channel import LONG
from tiny_index import write_index, write_wheel

from builder.layers.cache import hash_file
from builder.layers.conda_client import find_client, read_packages
from builder.layers.conda_solver import CondaPackage
from builder.sif.sif import PARTITION, list_layers, read_sif, write_header

pytestmark = pytest.mark.engines

RECIPE = """
    name: demo
    channels: [{channel}]
    dependencies: [python={minor}, greetpy, {more} {{pip: [{pip}]}}]
    container:
      env: {{COLOUR: blue}}
"""
WHEELS = (("tool-stub", "1.0", ("other-stub", "greetpy>=1")), ("other-stub", "2.0", ()), ("other-stub", "2.1", ()))
ARM = """
    extends: local
    title: a site of Arm processors
    node: {arch: aarch64}
"""


@pytest.fixture(scope="module")
def channel(rooms: Callable[[str], Room]) -> Path:
    return compiled_channel.write(rooms("conda-channels").folder / "tiny")


@pytest.fixture(scope="module")
def index(rooms: Callable[[str], Room]) -> str:
    return write_index(rooms("conda-index").folder / "index", WHEELS)


@pytest.fixture(scope="module")
def place(rooms: Callable[[str], Room], index: str) -> Callable[[str], LockRoom]:
    """Rooms with caches of their own, and one index of wheels."""

    class IndexRoom(LockRoom):
        def environment(self, **more: str) -> dict[str, str]:
            return super().environment(**{"UV_DEFAULT_INDEX": index, **more})

    return lambda name: IndexRoom(rooms(f"conda-{name}").folder)


def write(room: Room, channel: str, *, pip: str = "tool-stub", more: str = "greet, twin-a, twin-b, bulk,") -> Path:
    text = RECIPE.format(channel=channel, minor=MINOR, pip=pip, more=more)
    return room.write("demo.yml", text)


def make(room: Room, base: Path, *more: str, umask: int = 0o022, site: str = "local", **env: str) -> Done:
    words = ("build", site, room.folder / "demo.yml", "--base", base, "-o", room.folder / "x.sif", "--no-smoke", *more)
    return room.recipe(*words, umask=umask, **env)


def noted_layers(room: Room) -> dict[str, str]:
    made = json.loads((room.folder / "x.plan" / "made-of.json").read_text())
    return {row["title"]: row["sha256"] for row in made["layers"]}


@pytest.fixture(scope="module")
def demo(place: Callable[[str], LockRoom], channel: Path, small_sif: Path) -> LockRoom:
    """Locked and built from a channel that is a folder."""
    room = place("demo")
    env = write(room, channel.as_uri())
    room.recipe("lock", "local", env, "--base", small_sif).expect(0)
    make(room, small_sif, "--locked").expect(0)
    return room


def test_layers_are_the_default_and_nothing_ran_in_a_container(demo: LockRoom) -> None:
    assert list(noted_layers(demo)) == ["conda, together", "conda bulk", "conda", "packages", "recipe"]
    log = demo.log(demo.folder / "x.plan")
    assert "in a container" not in log
    lock = demo.read("local", env=demo.folder / "demo.yml")
    # What conda has is resolved against and not installed twice.
    assert {file.name for file in lock.pip} == {"tool-stub", "other-stub"}


@pytest.mark.parametrize("options", [[], ["--cleanenv"], ["--contain"], ["--cleanenv", "--containall", "--no-home"]])
def test_the_environment_is_active_however_the_image_is_entered(options: list[str], demo: LockRoom) -> None:
    image = demo.folder / "x.sif"
    code = (
        "import sys, os, greetpy, tool_stub, json; print(json.dumps([sys.prefix, sys.version_info[:2],"
        " os.environ['COLOUR'], os.environ['CONDA_PREFIX'],"
        " *[path for path in (greetpy.__cached__, tool_stub.__cached__, json.__cached__) if os.path.isfile(path)]]))"
    )
    for way in ("exec", "run"):
        done = run(["apptainer", way, *options, image, "python", "-c", code]).expect(0)
        prefix, version, colour, conda, *cached = json.loads(done.out)
        assert (prefix, conda, colour) == ("/opt/env", "/opt/env", "blue")
        assert version == [int(part) for part in MINOR.split(".")]
        assert len(cached) == 3  # those of them that are there
        assert all(path.startswith(f"/opt/env/lib/python{MINOR}/") for path in cached)
        assert run(["apptainer", way, *options, image, "greet"]).expect(0).out == "hello from /opt/env\n"
        assert run(["apptainer", way, *options, image, "greet-py"]).expect(0).out == "/opt/env in /opt/env\n"
    done = run(["apptainer", "shell", *options, image], stdin="greet-script\ngreet-where\n").expect(0)
    assert done.out == "/opt/env in /opt/env\n/opt/env\n"
    assert run(["apptainer", "test", *options, image]).code == 0


def test_the_image_says_what_is_in_it(demo: LockRoom) -> None:
    image = demo.folder / "x.sif"
    out = demo.recipe("inspect", image, "--json").expect(0).out
    found = {(row["kind"], row["name"]): row for row in json.loads(out)["packages"]}
    assert ("conda", "greet") in found
    assert ("pip", "tool-stub") in found
    record = json.loads(inside(image, "cat", "/opt/env/conda-meta/greetpy-1.0-pyh_0.json"))
    assert record["url"] == "file:///mnt/conda/noarch/greetpy-1.0-pyh_0.conda"  # no folder of this machine
    assert f"lib/python{MINOR}/site-packages/greetpy/__init__.py" in record["files"]
    assert str(demo.folder.parent) not in inside(image, "sh", "-c", "cat /opt/env/conda-meta/*")
    assert inside(image, "find", "/opt/env", "-name", "*.a") == ""
    # Two packages have one file: one of them wins, always the same, and nothing is left of the other.
    assert inside(image, "cat", "/opt/env/share/twin/which.txt") in ("a\n", "b\n")
    assert "clobber" not in inside(image, "sh", "-c", "ls -a /opt/env; cat /opt/env/conda-meta/twin*")


def test_the_same_bytes_for_every_user_place_and_time(
    place: Callable[[str], LockRoom], demo: LockRoom, small_sif: Path
) -> None:
    other = place("another/place")
    shutil.copy(demo.folder / "demo.yml", other.folder)
    shutil.copy(demo.folder / "demo.lock.yml", other.folder)
    shutil.copytree(demo.folder / "demo.lock", other.folder / "demo.lock")
    more = {"LC_ALL": "C", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
    make(other, small_sif, "--locked", umask=0o077, **more).expect(0)
    assert hash_file(other.folder / "x.sif") == hash_file(demo.folder / "x.sif")
    # Once more with packages that are unpacked already, by a solver that finds the same ones.
    shutil.rmtree(other.folder / "cache" / "layers-1")
    shutil.rmtree(other.folder / "demo.lock")
    (other.folder / "demo.lock.yml").unlink()
    make(other, small_sif, "--force", umask=0o002).expect(0)
    after, before = noted_layers(other), noted_layers(demo)
    assert {title for title in after if after[title] != before[title]} == {"recipe"}  # which names the lock


def test_one_changed_pin_makes_one_layer(place: Callable[[str], LockRoom], channel: Path, small_sif: Path) -> None:
    room = place("changed")
    own = shutil.copytree(channel, room.folder / "own")
    write(room, own.as_uri(), pip="tool-stub, other-stub==2.0")
    make(room, small_sif).expect(0)
    first = noted_layers(room)
    write(room, own.as_uri(), pip="tool-stub, other-stub==2.1")
    make(room, small_sif, "--force").expect(0)
    second = noted_layers(room)
    assert {title for title in second if second[title] != first[title]} == {"packages", "recipe"}
    write_channel(own, compiled_channel.compiled(room.folder / "c", words="good day", version="1.1"))
    write(room, own.as_uri(), pip="tool-stub, other-stub==2.1", more="greet=1.1, bulk,")
    make(room, small_sif, "--force").expect(0)
    third = noted_layers(room)
    assert {title for title in third if third[title] != second[title]} == {"conda", "recipe"}
    assert "layer conda bulk: 51.0 MB, from the cache" in room.log(room.folder / "x.plan")
    assert inside(room.folder / "x.sif", "greet") == "good day from /opt/env\n"


def test_a_channel_over_http_and_a_package_that_was_swapped(
    place: Callable[[str], LockRoom], channel: Path, small_sif: Path
) -> None:
    room = place("http")
    own = shutil.copytree(channel, room.folder / "channels" / "own")
    with served(own.parent) as address:
        env = write(room, f"{address}/own", more="greet,")
        room.recipe("lock", "local", env, "--base", small_sif).expect(0)
        make(room, small_sif, "--locked").expect(0)
        image = room.folder / "x.sif"
        assert inside(image, "greet-py") == "/opt/env in /opt/env\n"
        record = json.loads(inside(image, "cat", "/opt/env/conda-meta/greet-1.0-h0.json"))
        assert record["url"] == f"{address}/own/linux-64/greet-1.0-h0.conda"
        before = hash_file(image)
        write_package(own, Tiny(name="greet", build="h0", files={"bin/greet": "#!/bin/sh\necho swapped\n"}))
        fresh = {"RECIPE_CACHE_DIR": str(room.folder / "fresh")}
        swapped = make(room, small_sif, "--force", **fresh).expect(5)
    assert "greet-1.0-h0.conda' is not the one that its channel or the lock names" in swapped.err
    # The image that was there stays; with what was kept nothing has to be asked for.
    assert hash_file(image) == before
    make(room, small_sif, "--locked", "--force").expect(0)
    gone = make(room, small_sif, "--locked", "--force", **fresh).expect(5)
    assert "can be reached" in gone.err


def test_a_swapped_package_of_a_folder_is_refused(
    place: Callable[[str], LockRoom], channel: Path, small_sif: Path
) -> None:
    room = place("swapped")
    own = shutil.copytree(channel, room.folder / "own")
    index = write_index(room.folder / "index", WHEELS)
    write(room, own.as_uri(), more="greet,")
    env = room.folder / "demo.yml"
    room.recipe("lock", "local", env, "--base", small_sif, UV_DEFAULT_INDEX=index).expect(0)
    kept = (own / "noarch" / "greetpy-1.0-pyh_0.conda").read_bytes()
    write_package(own, Tiny(name="greetpy", build="pyh_0", subdir="noarch", files={"site-packages/greetpy.py": "!"}))
    done = make(room, small_sif, "--locked", UV_DEFAULT_INDEX=index).expect(5)
    assert "greetpy" in done.err
    assert "is not the one" in done.err or "is not the file" in done.err
    # What a channel says of a package is not believed either.
    (room.folder / "demo.lock.yml").unlink()
    shutil.rmtree(room.folder / "demo.lock")
    done = make(room, small_sif, UV_DEFAULT_INDEX=index).expect(5)
    assert "greetpy-1.0-pyh_0.conda' is not the one that its channel or the lock names" in done.err
    (own / "noarch" / "greetpy-1.0-pyh_0.conda").write_bytes(kept[:-200])
    make(room, small_sif, UV_DEFAULT_INDEX=index).expect(5)
    (own / "noarch" / "greetpy-1.0-pyh_0.conda").write_bytes(kept)
    room.recipe("lock", "local", env, "--base", small_sif, UV_DEFAULT_INDEX=index).expect(0)
    write_wheel(room.folder / "index" / "other-stub", "other-stub", "2.1", (), origin="somebody else's")
    make(room, small_sif, "--locked", UV_DEFAULT_INDEX=index).expect(5)
    assert not (room.folder / "x.sif").exists()
    assert not room.left_behind()


def test_two_builds_at_once_from_nothing(place: Callable[[str], LockRoom], demo: LockRoom, small_sif: Path) -> None:
    """They share every cache, and none of them has anything yet."""
    room = place("at-once")
    for name in ("demo.yml", "demo.lock.yml"):
        shutil.copy(demo.folder / name, room.folder)
    shutil.copytree(demo.folder / "demo.lock", room.folder / "demo.lock")
    words = ("build", "local", room.folder / "demo.yml", "--base", small_sif, "--locked", "--no-smoke", "-o")
    started = [room.start(*words, room.folder / f"{name}.sif") for name in ("one", "two", "three")]
    said = [process.communicate(timeout=LIMIT)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], said
    right = hash_file(demo.folder / "x.sif")
    assert [hash_file(room.folder / f"{name}.sif") for name in ("one", "two", "three")] == [right] * 3


def test_a_private_channel_and_its_password(
    place: Callable[[str], LockRoom], channel: Path, small_sif: Path, tmp_path: Path
) -> None:
    room = place("private")
    with served(channel.parent, password=PASSWORD) as address:
        write(room, f"{address}/{channel.name}", more="greet,")
        refused = make(room, small_sif).expect(5)
        netrc = tmp_path / "netrc"
        netrc.write_text(f"machine {address[7:].partition(':')[0]} login {USER} password {PASSWORD}\n")
        netrc.chmod(0o600)
        done = make(room, small_sif, NETRC=str(netrc)).expect(0)
        # By an alias too, for a channel that is only a name.
        write(room, channel.name, more="greet,")
        alias = address.replace("//", f"//{USER}:{PASSWORD}@")
        fresh = {"RECIPE_CACHE_DIR": str(room.folder / "fresh"), "CONDA_CHANNEL_ALIAS": alias}
        named = make(room, small_sif, "--force", **fresh).expect(0)
    assert inside(room.folder / "x.sif", "greet") == "hello from /opt/env\n"
    assert PASSWORD not in "".join(one.out + one.err for one in (refused, done, named))
    assert not [path for path in room.folder.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]


def test_what_was_cut_or_altered_in_the_cache_is_noticed(demo: LockRoom, small_sif: Path) -> None:
    right = hash_file(demo.folder / "x.sif")
    unpacked = demo.folder / "cache" / "conda" / "packages"
    words = next(unpacked.glob("libgreet-1.0-h0*/share/greet/words.txt"))
    for text in ("hell", "HELLO"):
        words.unlink()  # a link to what other environments have
        words.write_text(text)
        shutil.rmtree(demo.folder / "cache" / "layers-1")
        make(demo, small_sif, "--locked", "--force").expect(0)
        assert hash_file(demo.folder / "x.sif") == right
    layer = max((demo.folder / "cache" / "layers-1" / "layers").glob("*.sqfs"), key=lambda path: path.stat().st_size)
    os.truncate(layer, layer.stat().st_size // 2)
    make(demo, small_sif, "--locked", "--force").expect(0)
    assert hash_file(demo.folder / "x.sif") == right


HOLE = bytes(LARGE)  # a layer of its own, packed at once


@pytest.fixture(scope="module")
def ground(rooms: Callable[[str], Room]) -> str:
    """A channel with what every environment here needs."""
    folder = rooms("conda-ground").folder
    return write_channel(folder / "channel", (python(), *compiled(folder / "c"))).as_uri()


def named(name: str, *depends: str, x: bool = True, big: bool = False) -> Tiny:
    """A package with `share/x` and a module, or without; a `big` one lies in a layer of its own."""
    module = f"lib/python{MINOR}/site-packages/module_x.py"
    files = {"share/x": name, module: f"WHO = '{name}'\n"} if x else {f"share/{name}": name}
    return Tiny(name=name, build="h0", depends=depends, files={**files, **({f"share/{name}.bin": HOLE} if big else {})})


# Which packages may have to lie together, and all of them.
SAME: dict[str, tuple[set[str], Callable[[], tuple[Tiny, ...]]]] = {
    "two": ({"aa", "bb"}, lambda: (named("aa"), named("bb", big=True))),
    "two that need": ({"aa", "bb"}, lambda: (named("aa", "bb"), named("bb", big=True))),
    "one more that loses in its own layer": (
        {"aa", "bb", "zz"},
        lambda: (named("aa"), named("bb"), named("zz", big=True)),
    ),
    "a chain": ({"aa", "bb"}, lambda: (named("aa", big=True), named("mm", "aa", x=False), named("bb", "mm"))),
    "somebody who needs one of them": (
        {"aa", "bb"},
        lambda: (named("aa"), named("bb"), named("a0", "bb", x=False)),
    ),
    "somebody else": ({"aa", "bb"}, lambda: (named("aa"), named("bb"), named("zz", "aa", x=False))),
}


@pytest.mark.parametrize("case", SAME)
def test_a_file_of_two_packages_is_that_of_a_conda_environment(
    case: str, place: Callable[[str], LockRoom], small_sif: Path, ground: str
) -> None:
    """py-rattler links the whole environment on a disk to say what is right."""
    room = place(f"same-name-{list(SAME).index(case)}")
    together, packages = SAME[case][0], SAME[case][1]()
    channel = write_channel(room.folder / "channel", packages).as_uri()
    names = ", ".join(package.name for package in packages)
    text = f"name: demo\nchannels: [{channel}, {ground}]\ndependencies: [python={MINOR}, {names}]\n"
    room.write("demo.yml", text)
    room.recipe("lock", "local", room.folder / "demo.yml", "--base", small_sif).expect(0)
    make(room, small_sif, "--locked").expect(0)
    image = room.folder / "x.sif"
    lock = room.read("local", env=room.folder / "demo.yml")
    rows = [{name: getattr(package, name) for name in CondaPackage.__annotations__} for package in lock.conda]
    client = find_client(work=room.tmp, cache=room.folder / "conda", environment={}, offline=False)
    disk = room.folder / "disk"
    client.link_packages(read_packages(rows), disk, prefix="/opt/env", platform="linux-64")
    right = (disk / "share" / "x").read_text()
    tag = f"cpython-{MINOR.replace('.', '')}"
    compiled_module = f"/opt/env/lib/python{MINOR}/site-packages/__pycache__/module_x.{tag}.pyc"
    code = (
        "import module_x, os; print(open('/opt/env/share/x').read(), module_x.WHO, module_x.__cached__,"
        " os.path.isfile(module_x.__cached__))"
    )
    assert inside(image, "python", "-c", code).split() == [right, right, compiled_module, "True"]
    told = room.log(room.folder / "x.plan").rpartition("are put into one layer: ")[2].splitlines()[0]
    assert set(told.split(", ")) <= together
    # It is known the next time, and the same is made of it: nothing is made twice.
    digest = hash_file(image)
    shutil.rmtree(room.folder / "cache" / "layers-1" / "layers")
    make(room, small_sif, "--locked", "--force").expect(0)
    assert "are put into one layer" not in room.log(room.folder / "x.plan")
    assert hash_file(image) == digest


def test_a_kept_package_does_not_depend_on_its_first_place(
    place: Callable[[str], LockRoom], small_sif: Path, ground: str
) -> None:
    rooms = place("kept-before"), place("kept-fresh")
    channel = write_channel(rooms[0].folder / "channel", (named("aa"), named("bb"))).as_uri()
    for room in rooms:
        for names in ("aa, bb", "bb") if room is rooms[0] else ("bb",):
            text = f"name: demo\nchannels: [{channel}, {ground}]\ndependencies: [python={MINOR}, {names}]\n"
            room.write("demo.yml", text)
            make(room, small_sif, "--force").expect(0)
    assert hash_file(rooms[0].folder / "x.sif") == hash_file(rooms[1].folder / "x.sif")


def test_what_a_package_wants_to_run_runs_inside(
    place: Callable[[str], LockRoom], channel: Path, small_sif: Path
) -> None:
    room = place("posty")
    write(room, channel.as_uri(), more="posty, posty-more, wakes, bulk,")
    make(room, small_sif).expect(0)
    image = room.folder / "x.sif"
    assert inside(image, "cat", "/opt/env/share/posty/made.txt") == "hello from /opt/env\nposty 2.1 3\n"
    assert list(noted_layers(room)) == ["conda bulk", "conda", "conda-scripts", "packages", "recipe"]
    log = room.log(room.folder / "x.plan")
    assert "conda-scripts: in a container" in log
    assert "activation scripts are not run: wakes.sh" in log


def test_other_versions_of_pip_are_installed_inside(
    rooms: Callable[[str], Room], channel: Path, small_sif: Path
) -> None:
    """As in a flat image: pip's version takes the place of conda's, file by file."""
    room = rooms("conda-other-versions")
    (room.folder / "wheels").mkdir()
    wheel = write_wheel(room.folder / "wheels", "greetpy", "2.0", (), origin="pip")
    write(room, channel.as_uri(), pip="greetpy==2.0", more="greet,")
    links = " ".join([os.environ.get("PIP_FIND_LINKS", ""), str(wheel.parent)]).strip()
    make(room, small_sif, PIP_FIND_LINKS=links, RECIPE_CACHE_DIR=str(room.folder / "cache")).expect(0)
    assert "ask for other versions than conda's" in room.log(room.folder / "x.plan")
    code = "import importlib.metadata as m; print([d.version for d in m.distributions() if d.name == 'greetpy'])"
    assert inside(room.folder / "x.sif", "python3", "-c", code) == "['2.0']\n"


def test_by_hand_a_plan_says_what_it_needs_before_any_work(demo: LockRoom, small_sif: Path, index: str) -> None:
    kit = demo.folder / "kit"
    demo.recipe("plan", "local", demo.folder / "demo.yml", "--base", small_sif, "--locked", "-o", kit).expect(0)
    programs = demo.folder / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("apptainer", "mksquashfs", "unsquashfs", "bash", "python3"):
        (programs / name).symlink_to(str(shutil.which(name, path="/usr/bin:/bin:/usr/sbin")))
    path = f"{programs}:/usr/bin:/bin"
    env = {**demo.environment(), "PATH": path, "RECIPE_PYTHON": "/usr/bin/python3", "HOME": str(demo.folder)}
    done = run(["bash", "1-build-image.sh"], env=env, cwd=kit)
    assert shutil.which("uv", path=path) is None, "this test needs a machine without a uv of the system's"
    assert done.code == 1
    assert "conda packages need py-rattler, which /usr/bin/python3 has not" in done.err
    assert "fix: run `pip install 'uv==" in done.err
    assert "layer" not in done.out
    # uv has it fetched where it is at hand.
    (programs / "uv").symlink_to(str(shutil.which("uv")))
    env.pop("UV_DEFAULT_INDEX")
    env |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))}
    env["UV_INDEX"] = " ".join([index, os.environ.get("UV_INDEX", "")]).strip()
    done = run(["bash", "1-build-image.sh"], env=env, cwd=kit)
    assert done.code == 0, done.out + done.err
    made = json.loads((kit / "made-of.json").read_text())
    assert {row["title"]: row["sha256"] for row in made["layers"]} == noted_layers(demo)


def test_an_arm_environment_is_solved_and_laid_out_here(
    place: Callable[[str], LockRoom], channel: Path, small_sif: Path
) -> None:
    """Its programs do not run here: the base image only says that it is for Arm, a stand-in."""
    room = place("arm")
    base = stand_in_for_arm(small_sif, room.folder / "arm.sif")
    site = room.site("grace", ARM)
    room.write("demo.yml", f"name: demo\nchannels: [{channel.as_uri()}]\ndependencies: [python={MINOR}, greetpy]\n")
    make(room, base, site=site).expect(0)
    listing = run(
        ["unsquashfs", "-d", room.folder / "tree", "-o", last_but_one(room.folder / "x.sif"), room.folder / "x.sif"]
    )
    assert listing.code == 0, listing.err
    tree = room.folder / "tree" / "opt" / "env"
    content = (tree / "bin" / f"python{MINOR}").read_bytes()
    assert content.startswith(b"stand-in \x7f/opt/env\0")
    assert len(content) == len(b"stand-in \x7f" + LONG.encode() + b"\0end")
    assert "WHERE = '/opt/env'" in (tree / "lib" / f"python{MINOR}" / "site.py").read_text()
    assert (tree / "bin" / "greet-py").read_text().startswith(f"#!/opt/env/bin/python{MINOR}\n")
    cached = tree / "lib" / f"python{MINOR}" / "site-packages" / "greetpy" / "__pycache__"
    assert [path.name for path in cached.iterdir()] == [f"__init__.cpython-{MINOR.replace('.', '')}.pyc"]


def last_but_one(image: Path) -> str:
    """Where the layer below the last begins."""
    return str(list_layers(image, read_sif(image))[-2].offset)


def stand_in_for_arm(source: Path, target: Path) -> Path:
    """A copy of a base image whose header and partition say Arm."""
    shutil.copy(source, target)
    target.chmod(0o644)
    sif = read_sif(target)
    sif.arch = b"04\0"
    kind, part, _ = PARTITION.unpack(sif.system.extra[: PARTITION.size])
    sif.system.extra = PARTITION.pack(kind, part, sif.arch) + sif.system.extra[PARTITION.size :]
    with target.open("r+b") as file:
        write_header(file, sif, time=7)
    return target
