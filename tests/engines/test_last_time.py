"""Layers are begun with what the indexes had the last time, and the indexes have the last word: real engines."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from lock_room import LockRoom, served
from recipe_program import Room, inside, until_text
from tiny_index import write_index

pytestmark = pytest.mark.engines

RECIPE = "name: last\ndependencies:\n  - pip: [tool-stub, other-stub]\n"
OLD = [("tool-stub", "1.0", ()), ("other-stub", "1.0", ())]
NEW = [*OLD, ("tool-stub", "2.0", ())]


class Slow(LockRoom):
    """A room with an index that answers nobody while its gate is closed."""

    gate = threading.Event()
    index = ""

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of `recipe`."""
        return super().environment(**{"UV_DEFAULT_INDEX": self.index, "NO_PROXY": "127.0.0.1", **more})


@pytest.fixture
def room(rooms: Callable[[str], Room], base_sif: Path) -> Iterator[Slow]:
    """One image has been built of the index's first state; its layers are gone, the downloads are there."""
    room = Slow(rooms("last-time").folder)
    write_index(room.folder / "index", OLD)
    with served(room.folder / "index", gate=room.gate) as room.index:
        room.gate.set()
        room.write("last.yml", RECIPE)
        room.recipe(*words(room, base_sif)).expect(0)
        for name in ("layers", "compiled"):
            shutil.rmtree(room.folder / "cache" / "layers-1" / name)
        yield room
        room.gate.set()


def words(room: Room, base: Path) -> tuple[object, ...]:
    names = (room.folder / "last.yml", "--base", base, "-o", room.folder / "x.sif")
    return ("build", "local", *names, "--no-smoke", "--force")


@contextmanager
def begun(room: Slow, base: Path, *, seen: str) -> Iterator[None]:
    """A build that has said something while the index was silent; it ends well when the gate is open."""
    shutil.rmtree(room.folder / "x.plan")
    room.gate.clear()
    process = room.start(*words(room, base))
    try:
        until_text(room.folder / "x.plan" / "logs" / "build-image.log", seen, process=process)
        yield
    finally:
        room.gate.set()
        said, _ = process.communicate()
    assert process.returncode == 0, said


def packages(room: Room) -> list[str]:
    return list(json.loads((room.folder / "x.plan" / "made-of.json").read_text())["packages"])


def test_layers_are_ready_before_the_index_has_answered(room: Slow, base_sif: Path) -> None:
    with begun(room, base_sif, seen="layer packages:"):
        assert "resolved" not in room.log(room.folder / "x.plan")
    assert packages(room) == ["other-stub==1.0", "tool-stub==1.0"]
    assert "the packages have changed" not in room.log(room.folder / "x.plan")


def test_the_index_has_the_last_word(room: Slow, base_sif: Path) -> None:
    with begun(room, base_sif, seen="layer packages:"):
        write_index(room.folder / "index", NEW)
    assert packages(room) == ["other-stub==1.0", "tool-stub==2.0"]
    assert "dependencies changed" in room.log(room.folder / "x.plan")
    code = "import tool_stub, importlib.metadata as m; print(tool_stub.__version__, len(list(m.distributions())))"
    first = inside(room.folder / "x.sif", "python", "-c", code)
    assert first.startswith("2.0 ")


def test_what_the_index_no_longer_has_is_not_built(room: Slow, base_sif: Path) -> None:
    shutil.rmtree(room.folder / "index" / "tool-stub")
    done = room.recipe(*words(room, base_sif)).expect(5)
    assert "tool-stub" in done.err + room.log(room.folder / "x.plan")
