"""One recipe, two builds, the same bytes: by whom, where, when and with which caches makes no difference."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from elsewhere import on_another_machine
from recipe_program import Done, Room, inside, report_of, run
from stand_ins.images import COMPILED, docker, small_debian

from builder.inspect.image_comparison import compare_file_systems
from builder.sif.bounded import hash_file
from builder.sif.reader import Reader
from builder.sif.sif import read_sif

pytestmark = pytest.mark.engines

RECIPE = """
    name: twice
    dependencies:
      - pip: [six==1.16.0, numpy==2.3.5]
    container:
      system: [less]
      env: {COLOUR: blue}
      files: {notes.txt: /opt/notes/notes.txt}
      run: ["python -c 'import numpy' && echo made >/opt/notes/made.txt"]
      labels: {purpose: "the same bytes"}
"""
# Where Debian's packages and the size of numpy are not what is tested: a build takes half as long.
FEWER = RECIPE.replace(", numpy==2.3.5", "").replace("numpy", "six")
SMALL = FEWER.replace("      system: [less]\n", "")
ELSEWHERE = {"LC_ALL": "C", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"}
# A .pyc file that is not valid is compiled anew with every start: Python itself says which.
STALE = """
import importlib.util, os, sys
old, seen = [], 0
for root, _, names in os.walk("/"):
    if root.startswith(("/proc", "/sys", "/dev", "/tmp", "/home")):
        continue
    for name in names:
        path = os.path.join(root, name)
        if not name.endswith(f".{sys.implementation.cache_tag}.pyc") or not path.startswith(("/usr", "/opt")):
            continue
        with open(path, "rb") as file:
            head = file.read(16)
        source = importlib.util.source_from_cache(path)
        seen += 1
        if head[4] == 0 and os.path.exists(source):
            if int.from_bytes(head[8:12], "little") != int(os.stat(source).st_mtime):
                old.append(path)
print(seen > 500, old[:3], len(old))
"""


def words(room: Room, base: str | Path, backend: str, *more: str, text: str = RECIPE) -> list[str | Path]:
    room.write("notes.txt", "notes\n")
    recipe = room.write("twice.yml", text)
    words = ["build", "local", recipe, "--base", base, "--backend", backend, "-o", room.folder / "x.sif", "--no-smoke"]
    return [*words, *more]


def made(
    room: Room, base: str | Path, backend: str, *more: str, text: str = RECIPE, umask: int = 0o022, **environment: str
) -> Done:
    cache = {"RECIPE_CACHE_DIR": str(room.folder / "cache")}
    return room.recipe(*words(room, base, backend, *more, text=text), umask=umask, **{**cache, **environment}).expect(0)


def digest(room: Room) -> str:
    return hash_file(room.folder / "x.sif")


@pytest.fixture(scope="module")
def flat(rooms: Callable[[str], Room], base_sif: Path) -> Room:
    room = rooms("same/flat")
    made(room, base_sif, "apptainer")
    return room


def test_a_flat_image_is_the_same_elsewhere(flat: Room, rooms: Callable[[str], Room], base_sif: Path) -> None:
    """Another folder, umask, locale and time zone, caches that are cold, and a user without a range of ids."""
    room = rooms("same/another")
    there = {"RECIPE_CACHE_DIR": str(room.folder / "small" / "cache"), **ELSEWHERE}
    on_another_machine(room, words(room, base_sif, "apptainer"), tmpfs="size=6g", umask=0o077, **there).expect(0)
    assert digest(room) == digest(flat)


def test_a_flat_image_is_the_same_again(flat: Room, base_sif: Path) -> None:
    before = digest(flat), read_sif(flat.folder / "x.sif").modified
    made(flat, base_sif, "apptainer", "--force")  # the cache is warm
    assert (digest(flat), read_sif(flat.folder / "x.sif").modified) == before


def test_what_is_compiled_is_valid(flat: Room, rooms: Callable[[str], Room], base_sif: Path) -> None:
    assert inside(flat.folder / "x.sif", "python3", "-c", STALE) == "True [] 0\n"
    # A time before the base's own: its files get it too, and its .pyc files have to know.
    room = rooms("same/epoch")
    made(room, base_sif, "apptainer", text=SMALL, SOURCE_DATE_EPOCH="315532800")
    assert inside(room.folder / "x.sif", "python3", "-c", STALE) == "True [] 0\n"
    code = "import os; print({int(os.stat(p).st_mtime) for p in ('/opt/env', os.__file__, '/opt/notes/notes.txt')})"
    assert inside(room.folder / "x.sif", "python3", "-c", code) == "{315532800}\n"


def test_layers_made_in_containers_are_the_same(rooms: Callable[[str], Room], base_sif: Path) -> None:
    one, other = rooms("same/layers"), rooms("same/layers-elsewhere")
    made(one, base_sif, "layers", text=FEWER)
    made(other, base_sif, "layers", text=FEWER, umask=0o077, **ELSEWHERE, HOME=str(other.folder))
    assert digest(other) == digest(one)
    assert inside(one.folder / "x.sif", "python3", "-c", STALE) == "True [] 0\n"


def test_a_base_image_of_a_registry_is_the_same_elsewhere(
    rooms: Callable[[str], Room], docker_daemon: str, base_tar: Path, registry: str
) -> None:
    """Each machine unpacks and packs it by itself, at another time; its own files keep their times."""
    del docker_daemon
    local = small_debian(base_tar, dropped=COMPILED)
    name = f"{registry}/{local}"
    docker("tag", local, name)
    docker("push", "--quiet", name)
    one, other = rooms("same/pulled"), rooms("same/pulled-elsewhere")
    plain = {"APPTAINER_NOHTTPS": "1"}
    made(one, f"docker://{name}", "layers", text=SMALL, **plain)
    made(other, f"docker://{name}", "layers", text=SMALL, umask=0o077, **plain, **ELSEWHERE, HOME=str(other.folder))
    bases = [hash_file(next((room.folder / "cache").rglob("bases/*.sif"))) for room in (one, other)]
    assert bases[0] == bases[1]
    assert digest(other) == digest(one)
    image = one.folder / "x.sif"
    assert inside(image, "python3", "-c", STALE) == "True [] 0\n"
    assert inside(image, "cat", "/opt/notes/notes.txt", "/opt/notes/made.txt") == "notes\nmade\n"
    # It is packed as layers are: all of them are one file system. What the engine says of the base is there too.
    assert not read_sif(image).overlays
    labels = run(["apptainer", "inspect", image], env={**os.environ}).expect(0).out
    assert f"org.label-schema.usage.singularity.deffile.from: {name.rpartition(':')[0]}@sha256:" in labels
    assert "purpose: the same bytes" in labels
    assert [line.split()[0] for line in one.recipe("inspect", image, "--integrity").expect(0).out.splitlines()] == [
        "ok"
    ] * 7


# --- recipe build --reproduce -----------------------------------------------------------------------------------------


def test_a_second_build_that_is_the_same(room: Room, base_sif: Path) -> None:
    recipe = room.write("x.yml", "name: x\ndependencies: [{pip: [six==1.16.0]}]\n")
    image = room.folder / "x.sif"
    command = ("build", "local", recipe, "--base", base_sif, "-o", image, "--no-smoke", "--reproduce")
    done = room.recipe(*command).expect(0)
    assert "the same bytes" in done.err
    before = hash_file(image)
    assert report_of(room.folder / "x.plan")["verified"]["sha256"] == before
    # What is there already is built once more, and stays.
    done = room.recipe(*command).expect(0)
    assert "the same bytes" in done.err
    assert "nothing to do" not in done.err
    assert hash_file(image) == before
    assert room.left_behind() == []


@pytest.mark.parametrize("backend", ["layers", "apptainer"])
def test_a_second_build_that_differs_is_told_file_by_file(
    rooms: Callable[[str], Room], base_sif: Path, backend: str
) -> None:
    room = rooms(f"differs-{backend}")
    text = """
        name: x
        dependencies: [{pip: [six==1.16.0]}]
        container:
          run:
            - 'head -c 8 /dev/urandom >/opt/random.bin'
            - 'touch /opt/$(od -An -tx8 -N8 /dev/urandom | tr -d " ")'
        """
    image = room.folder / "x.sif"
    command = ("build", "local", room.write("x.yml", text), "--base", base_sif, "-o", image, "--no-smoke")
    done = room.recipe(*command, "--backend", backend, "--reproduce").expect(8)
    assert "NOT the same bytes: " in done.err
    assert "/opt/random.bin: content of 8 bytes" in done.err
    found = report_of(room.folder / "x.plan")
    assert (found["status"], found["verified"]["same"]) == ("passed", False)
    lines = (room.folder / "x.plan" / found["verified"]["list"]).read_text().splitlines()
    assert len(lines) == found["verified"]["count"]
    # Of layers a label names the digests: it differs too.
    assert sorted(line.rpartition(": ")[2] for line in lines if "squashfs" in line and ": /" in line) == [
        "content of 8 bytes", "only in the first", "only in the second",
    ]  # fmt: skip
    assert found["image_sha256"] == hash_file(image)
    assert inside(image, "stat", "-c", "%s", "/opt/random.bin") == "8\n"
    assert room.left_behind() == []
    assert "nothing to do" in room.recipe(*command, "--backend", backend).expect(0).err


def test_every_kind_of_difference_has_its_name(tmp_path: Path) -> None:
    for side in ("one", "two"):
        root = tmp_path / side
        (root / "folder").mkdir(parents=True)
        for name in ("same", "attribute", "content", "mode", "time", "size", "odd \x1b[2J name"):
            (root / name).write_text("text")
            os.utime(root / name, (10**9, 10**9))
        (root / "link").symlink_to(side)
        (root / f"only-{side}").write_text("")
    two = tmp_path / "two"
    for path, text in ((two / "content", "TEXT"), (two / "size", "longer"), (two / "odd \x1b[2J name", "TEXT")):
        path.write_text(text)
        os.utime(path, (10**9, 10**9))
    (two / "mode").chmod(0o755)
    os.setxattr(two / "attribute", "user.note", b"two")
    os.utime(two / "time", (10**9, 10**9 + 3601))
    for side in ("one", "two"):
        fixed = ["-mkfs-time", "0", "-all-root", "-quiet", "-no-progress"]
        run(["mksquashfs", tmp_path / side, tmp_path / f"{side}.sqfs", *fixed]).expect(0)
    with (tmp_path / "one.sqfs").open("rb") as first, (tmp_path / "two.sqfs").open("rb") as second:
        pair = [Reader(file) for file in (first, second)]
        # Folders and links were made in this or in the next second.
        found = [line for line in compare_file_systems(*pair) if not line.startswith(("/: time", "/folder"))]
    lines = [line.partition(", time")[0] for line in found]
    assert lines == [
        "/attribute: extended attributes",
        "/content: content of 4 bytes",
        "/link: target one, two",
        "/mode: mode rw-r--r--, rwxr-xr-x",
        "/odd \x1b[2J name: content of 4 bytes",
        "/only-one: only in the first",
        "/only-two: only in the second",
        "/size: size 4, 6",
        "/time: time 2001-09-09 01:46:40, 2001-09-09 02:46:41",
    ]


def test_what_docker_made_is_the_same(rooms: Callable[[str], Room], docker_daemon: str, base_tar: Path) -> None:
    del docker_daemon
    # Debian's packages are in the flat image: they are installed and normalised by the same scripts.
    base = f"docker://{small_debian(base_tar, dropped=COMPILED)}"
    one, other = rooms("docker"), rooms("docker-elsewhere")
    try:
        made(one, base, "docker", text=SMALL)
        made(other, base, "docker", text=SMALL, umask=0o077, **ELSEWHERE, RECIPE_FRESH="yes")
    finally:
        names = docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "recipe/twice-local").split()
        run(["docker", "image", "rm", *names])
    assert "recipe: Python packages" in other.log(other.folder / "x.plan")
    assert digest(other) == digest(one)
    image = one.folder / "x.sif"
    assert inside(image, "python3", "-c", STALE) == "True [] 0\n"
    assert inside(image, "cat", "/opt/notes/notes.txt", "/opt/notes/made.txt") == "notes\nmade\n"
    assert run(["apptainer", "inspect", image], env={**os.environ}).expect(0).out.count("purpose: the same bytes") == 1
