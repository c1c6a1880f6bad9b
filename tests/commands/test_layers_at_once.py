"""The cache, and several processes that want one entry."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

from builder.layers.cache import Store


def _race(folder: Path, number: int) -> None:
    def fill(path: Path) -> None:
        (folder / f"made-{number}").touch()
        time.sleep(0.1)
        path.write_bytes(b"x" * 100000)

    entry, _ = Store(folder).get("layers", "k", title="t", make=fill)
    assert entry.path.stat().st_size == 100000


def test_several_builds_at_once_make_it_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=_race, args=(tmp_path, number)) for number in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(300)
    assert [child.exitcode for child in children] == [0] * 4
    assert len(list(tmp_path.glob("made-*"))) == 1
