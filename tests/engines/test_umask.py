"""The user's umask decides who may read an image and what lies beside it, and nothing of what is in it."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_program import LIMIT, Room, inside, until_text

from builder.sif.bounded import hash_file

pytestmark = pytest.mark.engines

RECIPE = """
    name: masked
    dependencies:
      - pip: [six==1.16.0]
    container:
      files: {data: /opt/data}
      run: ["mkdir /opt/made && echo made >/opt/made/file"]
"""
UMASKS = {"layers": (0o022, 0o077, 0o007), "apptainer": (0o022, 0o077)}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def words(room: Room, base: Path, backend: str, text: str = RECIPE) -> list[str | Path]:
    words = ["build", "local", room.write("masked.yml", text), "--base", base, "--backend", backend]
    return [*words, "-o", room.folder / "x.sif", "--no-smoke"]


@pytest.mark.parametrize("backend", UMASKS)
def test_fault_07_the_umask_is_obeyed_outside_and_not_seen_inside(
    rooms: Callable[[str], Room], base_sif: Path, backend: str
) -> None:
    digests = set()
    for umask in UMASKS[backend]:
        room = rooms(f"umask-{backend}-{umask:03o}")
        tool = room.write("data/bin/tool", "#!/bin/sh\necho tool\n")
        tool.chmod(0o777 & ~umask)
        room.write("data/notes.txt", "notes\n").chmod(0o666 & ~umask)
        cache = room.folder / "cache"
        room.recipe(*words(room, base_sif, backend), umask=umask, RECIPE_CACHE_DIR=str(cache)).expect(0)
        image, plan = room.folder / "x.sif", room.folder / "x.plan"
        assert oct(mode(image)) == oct(0o755 & ~umask)
        beside = [path for path in room.folder.iterdir() if path.name.startswith("x.sif.")]
        assert len(beside) == 2
        made = [plan, *(path for path in plan.rglob("*") if not path.is_symlink())]
        # What is copied keeps the rights of its source, in a folder that the umask has closed.
        copied = [path for path in made if {"layering", "root", "smoke"} & set(path.relative_to(plan).parts[:2])]
        for path in [*beside, *(path for path in made if path not in copied)]:
            assert mode(path) & umask == 0, (path, oct(mode(path)))
        assert oct(mode(beside[0])) == oct(0o666 & ~umask)
        assert oct(mode(cache)) == "0o700"
        assert inside(image, "/opt/data/bin/tool") == "tool\n"
        assert inside(image, "cat", "/opt/data/notes.txt", "/opt/made/file") == "notes\nmade\n"
        digests.add(hash_file(image))
    assert len(digests) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_fault_08_an_interrupted_build_leaves_nothing_half_made_in_the_cache(
    rooms: Callable[[str], Room], base_sif: Path, number: signal.Signals
) -> None:
    room = rooms(f"stopped-{number.name}")
    room.write("data/notes.txt", "notes\n")
    text = RECIPE.replace("mkdir /opt/made", "echo we are inside && sleep 300 && mkdir /opt/made")
    process = room.start(*words(room, base_sif, "layers", text), RECIPE_CACHE_DIR=str(room.folder / "cache"))
    until_text(room.folder / "x.plan" / "logs" / "build-image.log", "we are inside", process=process)
    assert len(list((room.folder / "cache" / "layers-1" / "work").iterdir())) > 0
    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + number
    assert "interrupted; partial output was removed" in out
    assert list((room.folder / "cache" / "layers-1" / "work").iterdir()) == []
    assert list((room.folder / "cache" / "layers-1" / "locks").glob("*@*")) == []
    assert list(room.tmp.iterdir()) == []
