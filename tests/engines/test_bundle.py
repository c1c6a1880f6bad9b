"""`recipe bundle`: built where there is no network at all, not even the loopback address, and no installed recipe."""

from __future__ import annotations

import json
import shlex
import tarfile
from collections.abc import Callable
from pathlib import Path

import compiled_channel
import pytest
from compiled_channel import MINOR
from lock_room import PASSWORD, USER, LockRoom, served
from recipe_program import Room, inside, run
from tiny_index import write_index

from builder.sif.bounded import hash_file

pytestmark = pytest.mark.engines

WHEELS = (("tool-stub", "1.0", ("other-stub",)), ("other-stub", "2.0", ()))


@pytest.fixture
def room(tmp_path: Path) -> LockRoom:
    return LockRoom(tmp_path / "here")


def unpack_and_build(archive: Path, there: Path, *words: str) -> str:
    """Return the path of the image; the second machine has an empty home and the programs of the system."""
    (there / "home").mkdir(parents=True)
    run(["tar", "xf", archive], cwd=there).expect(0)
    script = f"{archive.name.removesuffix('.tar.zst')}/build.sh"
    line = f"! cat /proc/net/route | grep . -c | grep -qv ^1$; bash {shlex.quote(script)} {shlex.join(words)}"
    env = {"HOME": str(there / "home"), "PATH": "/usr/bin:/bin:/usr/sbin"}
    alone = ["unshare", "--user", "--map-current-user", "--net", "bash", "-ec", line]
    return run(alone, cwd=there, env=env).expect(0).out.splitlines()[-1]


def hold(archive: Path) -> bytes:
    """Every byte of the files of a bundle."""
    plain = archive.with_name("plain.tar")
    run(["zstd", "-dqf", archive, "-o", plain]).expect(0)
    return plain.read_bytes()


def test_it_builds_the_same_image_without_a_network(room: LockRoom, small_sif: Path, tmp_path: Path) -> None:
    index = write_index(room.folder / "index", WHEELS)
    room.write("requirements.txt", "tool-stub==1.0\n")
    with served(Path(index.removeprefix("file://")), password=PASSWORD) as server:
        settings = {"UV_DEFAULT_INDEX": server.replace("//", f"//{USER}:{PASSWORD}@")}
        words = ("local", "requirements.txt", "--base", small_sif)
        shown = room.recipe("bundle", *words, "-o", "own.tar.zst", "-n", **settings).expect(0)
        assert "own.tar.zst will hold:" in shown.err
        assert "it needs x86_64, Python 3.10 or newer, apptainer or singularity, squashfs-tools 4.4" in shown.err
        assert not (room.folder / "own.tar.zst").exists()
        done = room.recipe("bundle", *words, "-o", "own.tar.zst", **settings).expect(0)
        room.recipe("build", *words, "-o", "x.sif", "--no-smoke", **settings).expect(0)
    assert done.out == "own.tar.zst\n"
    assert "next: tar xf own.tar.zst && bash own/build.sh" in done.err
    image = unpack_and_build(room.folder / "own.tar.zst", tmp_path / "there")
    # `recipe build` adds the list of packages (SBOM) to it: by hand no plan does.
    room.recipe("plan", "local", "requirements.txt", "--base", small_sif, "-o", "plan").expect(0)
    env = room.environment(RECIPE_OFFLINE="yes", **settings)
    run(["bash", "1-build-image.sh"], cwd=room.folder / "plan", env=env).expect(0)
    assert hash_file(Path(image)) == hash_file(next((room.folder / "plan").glob("*.sif")))
    assert "no difference" in room.recipe("diff", "x.sif", image).expect(0).err
    assert inside(Path(image), "python3", "-c", "import tool_stub, other_stub; print('both')") == "both\n"
    content = hold(room.folder / "own.tar.zst")
    assert PASSWORD.encode() not in content
    assert b"index" in content
    assert room.left_behind() == []


def test_conda_packages_and_their_solver_are_in_it(
    rooms: Callable[[str], Room], room: LockRoom, small_sif: Path, tmp_path: Path
) -> None:
    channel = compiled_channel.write(rooms("bundle-channel").folder / "tiny")
    with served(channel) as server:
        room.write("demo.yml", f"channels: [{server}]\ndependencies: [python={MINOR}, greetpy]\n")
        # py-rattler comes from the machine's index, as the tests' environment names it.
        outside = Room.environment(room)
        given = {name: outside[name] for name in ("UV_DEFAULT_INDEX", "PIP_INDEX_URL", "HOME") if name in outside}
        room.recipe("lock", "local", "demo.yml", "--base", small_sif).expect(0)
        done = room.recipe("bundle", "local", "demo.yml", "--base", small_sif, "--locked", **given).expect(0)
    assert "unknown  the packages" not in done.err
    (archive,) = room.folder.glob("*.tar.zst")
    image = Path(unpack_and_build(archive, tmp_path / "there", "--no-smoke"))
    assert inside(image, "greet-py") == "/opt/env in /opt/env\n"


def test_nothing_of_the_user_is_in_it(room: LockRoom, small_sif: Path) -> None:
    index = write_index(room.folder / "index", WHEELS)
    room.write("requirements.txt", "tool-stub==1.0\n")
    with served(Path(index.removeprefix("file://"))) as server:
        words = ("bundle", "local", "requirements.txt", "--base", small_sif, "-o", "own.tar")
        room.recipe(*words, UV_DEFAULT_INDEX=server).expect(0)
    with tarfile.open(room.folder / "own.tar") as archive:
        members = archive.getmembers()
    assert {(one.uid, one.gid, one.uname, one.gname, one.mtime) for one in members} == {(0, 0, "", "", 0)}
    assert {one.name.split("/")[0] for one in members} == {"own"}
    assert not [one.name for one in members if one.isfile() and one.mode & 0o022]
    texts = [one for one in members if one.name == "own/plan/layers.json"]
    assert len(texts) == 1
    with tarfile.open(room.folder / "own.tar") as archive:
        file = archive.extractfile("own/plan/layers.json")
        assert file is not None
        assert json.load(file)["base"] == "../base.sif"


def test_what_is_wrong_is_said_before_anything_is_fetched(room: LockRoom, small_sif: Path) -> None:
    room.write("requirements.txt", "tool-stub==1.0\n")
    (room.folder / "text.tar").write_text("mine")
    run(["tar", "cf", "own.tar", "text.tar"], cwd=room.folder).expect(0)
    base = ("--base", small_sif)
    for words, code, said in (
        (("local", "requirements.txt", *base, "-o", "own.tar"), 2, "'own.tar' is already there"),
        (("local", "requirements.txt", *base, "-o", "text.tar", "--force"), 2, "'text.tar' exists and is not a bundle"),
        (
            ("local", "requirements.txt", *base, "-o", "requirements.txt"),
            2,
            "'requirements.txt' is no name of a bundle",
        ),
        (("local", "requirements.txt", *base, "-o", "own.zip"), 2, "'own.zip' is no name of a bundle"),
        (("local", "requirements.txt", *base, "-o", "no/x.tar"), 2, "the folder of 'no/x.tar' is missing"),
        (("local", "lumi-c", "requirements.txt", "-o", "x.tar"), 2, "a bundle is of one recipe for one site"),
        (("local", "requirements.txt", *base, "--backend", "apptainer"), 2, "while it builds"),
    ):
        done = room.recipe("bundle", *words)
        assert (done.code, said in " ".join(done.err.split())) == (code, True), done.err
        assert "fix: " in done.err
    assert (room.folder / "text.tar").read_text() == "mine"
    assert room.left_behind() == []


def test_a_wheel_that_only_this_machine_has_is_no_part(room: LockRoom, small_sif: Path) -> None:
    """The failure is that of the other machine, seen here; the old bundle stays."""
    index = write_index(room.folder / "index", WHEELS)
    room.write("requirements.txt", "tool-stub==1.0\n")
    run(["tar", "cf", "own.tar", "requirements.txt"], cwd=room.folder).expect(0)
    before = hash_file(room.folder / "own.tar")
    words = ("bundle", "local", "requirements.txt", "--base", small_sif, "-o", "own.tar", "--force")
    done = room.recipe(*words, UV_DEFAULT_INDEX=index)
    assert done.code != 0
    assert "tool-stub" in done.err
    assert hash_file(room.folder / "own.tar") == before
    assert room.left_behind() == []
