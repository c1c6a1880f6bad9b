"""One recipe, two builds, the same bytes: by whom, where, when and with which caches makes no difference."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from elsewhere import on_another_machine
from recipe_program import Done, Room, inside, run
from stand_ins.images import docker, stand_in_debian

from builder.layering.digest import sha256_of
from builder.layering.sif import read_sif

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


def words(room: Room, base: str | Path, backend: str, *more: str) -> list[str | Path]:
    room.write("notes.txt", "notes\n")
    recipe = room.write("twice.yml", RECIPE)
    words = ["build", "local", recipe, "--base", base, "--backend", backend, "-o", room.folder / "x.sif", "--no-smoke"]
    return [*words, *more]


def made(room: Room, base: str | Path, backend: str, *more: str, umask: int = 0o022, **environment: str) -> Done:
    cache = {"RECIPE_CACHE_DIR": str(room.folder / "cache")}
    return room.recipe(*words(room, base, backend, *more), umask=umask, **{**cache, **environment}).expect(0)


def digest(room: Room) -> str:
    return sha256_of(room.folder / "x.sif")


@pytest.fixture(scope="module")
def flat(rooms: Callable[[str], Room], base_sif: Path) -> Room:
    room = rooms("flat")
    made(room, base_sif, "apptainer")
    return room


def test_a_flat_image_is_the_same_elsewhere(flat: Room, rooms: Callable[[str], Room], base_sif: Path) -> None:
    """Another folder, umask, locale and time zone, caches that are cold, and a user without a range of ids."""
    room = rooms("another/place")
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
    room = rooms("epoch")
    made(room, base_sif, "apptainer", SOURCE_DATE_EPOCH="315532800")
    assert inside(room.folder / "x.sif", "python3", "-c", STALE) == "True [] 0\n"
    code = "import os; print({int(os.stat(p).st_mtime) for p in ('/opt/env', os.__file__, '/opt/notes/notes.txt')})"
    assert inside(room.folder / "x.sif", "python3", "-c", code) == "{315532800}\n"


def test_layers_made_in_containers_are_the_same(rooms: Callable[[str], Room], base_sif: Path) -> None:
    one, other = rooms("layers"), rooms("layers-elsewhere")
    made(one, base_sif, "layers")
    made(other, base_sif, "layers", umask=0o077, **ELSEWHERE, HOME=str(other.folder))
    assert digest(other) == digest(one)
    assert inside(one.folder / "x.sif", "python3", "-c", STALE) == "True [] 0\n"


def test_what_docker_made_is_the_same(rooms: Callable[[str], Room], docker_daemon: str, base_tar: Path) -> None:
    del docker_daemon
    base = f"docker://{stand_in_debian(base_tar)}"
    one, other = rooms("docker"), rooms("docker-elsewhere")
    try:
        made(one, base, "docker")
        made(other, base, "docker", umask=0o077, **ELSEWHERE, RECIPE_FRESH="yes")
    finally:
        names = docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "recipe/twice-local").split()
        run(["docker", "image", "rm", *names])
    assert "recipe: Python packages" in other.log(other.folder / "x.plan")
    assert digest(other) == digest(one)
    image = one.folder / "x.sif"
    assert inside(image, "python3", "-c", STALE) == "True [] 0\n"
    assert inside(image, "cat", "/opt/notes/notes.txt", "/opt/notes/made.txt") == "notes\nmade\n"
    assert run(["apptainer", "inspect", image], env={**os.environ}).expect(0).out.count("purpose: the same bytes") == 1
