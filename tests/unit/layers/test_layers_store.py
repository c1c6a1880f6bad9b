"""The cache: whole entries or none, whoever else is there."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from pathlib import Path

import pytest

from builder.execute.cache_maintenance import prune
from builder.layers.cache import REMOVER, CacheEntry, Store, compute_key
from builder.layers.private_folders import LAYERS, find_cache_folder, read_limit_bytes

HALF = "ab" * 32  # a name as the cache gives it


def filled(folder: Path, *keys: str) -> Store:
    store = Store(folder)
    for number, key in enumerate(keys):
        entry, _ = store.get("layers", key, title=key, make=lambda path: path.write_bytes(b"x" * 1000))
        os.utime(entry.path.with_suffix(".json"), (number, number))
    return store


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    store, calls = Store(tmp_path), []

    def fill(path: Path) -> None:
        calls.append(path)
        path.write_bytes(b"layer")

    first, fresh = store.get("layers", "k", title="t", make=fill)
    again, fresh_again = store.get("layers", "k", title="t", make=fill)
    assert (fresh, fresh_again, len(calls)) == (True, False, 1)
    assert first.sha256 == again.sha256
    assert again.path.read_bytes() == b"layer"
    for _ in range(12_000):
        if not list((store.folder / "work").iterdir()):  # removed beside what follows
            break
        time.sleep(0.01)
    assert list((store.folder / "work").iterdir()) == []


def test_a_maker_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        store.get("layers", "k", title="t", make=fail)
    assert store.list_entries() == []
    assert list((store.folder / "layers").iterdir()) == []
    assert list((store.folder / "work").iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"xx", b"x" * 2000])
def test_an_entry_of_another_size_is_none(content: bytes, tmp_path: Path) -> None:
    store = filled(tmp_path, "k")
    store.get_path("layers", "k").write_bytes(content)
    assert store.find("layers", "k") is None
    entry, fresh = store.get("layers", "k", title="t", make=lambda path: path.write_bytes(b"new"))
    assert (fresh, entry.path.read_bytes()) == (True, b"new")


def test_an_altered_entry_of_the_same_size_is_found_and_removed(tmp_path: Path) -> None:
    store = filled(tmp_path, "k", "l")
    store.get_path("layers", "k").write_bytes(b"y" * 1000)
    assert [store.check(entry) for entry in store.list_entries()] == [False, True]
    assert [entry.key for entry in store.list_entries()] == ["l"]


def test_files_of_a_killed_build_are_no_entries_and_are_swept(tmp_path: Path) -> None:
    store = filled(tmp_path, "k")
    for thread in threading.enumerate():
        if thread.name == REMOVER:
            thread.join()
    store.get_path("layers", HALF).write_bytes(b"half")
    with store.work_folder() as living:
        random, _, _, rest = living.name.split(".", 3)
        dead = living.with_name(f"{random}.{os.getpid()}.1.{rest}")  # the number of this process, which it had not then
        dead.mkdir()
        store.sweep()
        assert living.is_dir()
        assert not dead.exists()
    assert list((store.folder / "work").iterdir()) == []
    assert [path.name for path in store.find_broken()] == [f"{HALF}.sqfs"]


def test_the_least_recently_used_goes_first_and_used_ones_stay(tmp_path: Path) -> None:
    store = filled(tmp_path, "a", "b", "c", "d")
    with store.keep("layers", "a"):
        assert [entry.key for entry in store.prune(2500)] == ["b", "c"]
    assert [entry.key for entry in store.list_entries()] == ["a", "d"]
    assert store.prune(2500) == []
    assert [entry.key for entry in store.prune(0)] == ["a", "d"]


def test_use_is_noted(tmp_path: Path) -> None:
    store = filled(tmp_path, "a", "b")
    store.get("layers", "a", title="a", make=lambda path: path.write_bytes(b""))
    assert [entry.key for entry in store.list_entries()] == ["b", "a"]


def test_a_file_under_the_same_name_has_a_digest_of_its_own(tmp_path: Path) -> None:
    store, path = Store(tmp_path / "cache"), tmp_path / "base.sif"
    path.write_bytes(b"one")
    os.utime(path, (1000, 1000))
    first = store.find_digest(path)
    other = tmp_path / "other"
    other.write_bytes(b"two")
    os.utime(other, (1000, 1000))
    other.replace(path)
    assert store.find_digest(path) != first


def test_keys_and_settings() -> None:
    assert compute_key({"a": 1, "b": [2]}) == compute_key({"b": [2], "a": 1}) != compute_key({"a": 1, "b": [3]})
    assert find_cache_folder({"RECIPE_CACHE_DIR": "/c"}) == Path("/c")
    assert find_cache_folder({"XDG_CACHE_HOME": "/x", "HOME": "/h"}) == Path("/x/recipe")
    assert find_cache_folder({"HOME": "/h"}) == Path("/h/.cache/recipe")
    assert read_limit_bytes({"RECIPE_CACHE_GIB": "2"}) == 2 * 2**30
    assert read_limit_bytes({"RECIPE_CACHE_GIB": ""}) == read_limit_bytes({}) == 40 * 2**30


def test_parallel_builds_do_not_deadlock(tmp_path: Path) -> None:
    """Each has made one entry and reads it to its end, and has to make the other, which it did not find before."""
    both, done = threading.Barrier(2, timeout=120), list[bool]()

    def writes(path: Path, text: str) -> None:
        path.write_text(text)

    def build(own: str, other: str) -> None:
        store = Store(tmp_path)
        look, looked = store.find, list[str]()

        def late(kind: str, key: str) -> CacheEntry | None:
            looked.append(key)
            return None if looked.count(key) == 1 else look(kind, key)

        store.find = late  # type: ignore[method-assign]
        store.get("layers", own, title=own, make=lambda path: writes(path, own))
        with store.keep("layers", own):
            both.wait()
            entry, fresh = store.get("layers", other, title=other, make=lambda path: writes(path, other))
            done.append(not fresh and entry.path.read_text() == other)

    pairs = (("a", "b"), ("b", "a"))
    threads = [threading.Thread(target=build, args=pair, daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=240)
    assert done == [True, True]
    assert list((tmp_path / LAYERS / "locks").glob("make-*")) == []


# --- nothing half-read is remembered ---------------------------------------------------------------------------------


def test_fault_02_a_fact_is_remembered_whole_or_not_at_all(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.remember("facts", HALF, {"glibc": "2.36"})
    store.remember("known", "b", "c" * 64)
    assert store.recall("facts", HALF) == {"glibc": "2.36"}
    assert store.find_broken() == []
    path = store.folder / "facts" / f"{HALF}.json"
    text = path.read_text()
    for damaged in ("", text[:-2], text.replace("2.36", ""), json.dumps({"glibc": ""}), "[1]", "null", "[" * 10**5):
        path.write_text(damaged)
        assert store.recall("facts", HALF) is None
        assert store.find_broken() == [path]


@pytest.mark.parametrize("call", ["write", "rename"])
def test_fault_02_a_full_disk_leaves_no_draft_of_a_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = Store(tmp_path)

    def full(self: Path, *words: object, **_: object) -> int:
        if call == "write":
            self.write_bytes(str(words[0])[:5].encode())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text" if call == "write" else "replace", full)
    store.remember("facts", "a", {"glibc": "2.36"})
    assert list((store.folder / "facts").iterdir()) == []


def test_fault_02_what_a_kill_has_left_of_a_fact_is_found_and_pruned(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.remember("facts", "whole", 1)
    left = [store.folder / "known" / ".b.json.12-34", store.folder / "facts" / f"{HALF}.json"]
    left[0].write_text((store.folder / "facts" / "whole.json").read_text())  # killed before its rename
    left[1].write_text('{"format": 3, "glibc": ""}')
    assert sorted(store.find_broken()) == sorted(left)
    assert prune(store, {}, gib=1.0) == ()
    assert store.find_broken() == []
    assert store.recall("facts", "whole") == 1
