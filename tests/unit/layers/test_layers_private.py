"""The cache and temporary folders are the user's own, also on file systems that keep no locks."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.rows import rows

from builder.execute.cache_maintenance import (
    check_files,
    ensure_cache_folder,
    explain_no_locks,
    is_layer_cache_missing,
    open_cache,
    prune_downloads,
)
from builder.layers import locks
from builder.layers.cache import SharedCache, Store
from builder.layers.locks import is_dead, make_mark
from builder.layers.private_folders import (
    CONDA,
    FETCH,
    LAYERS,
    MARK,
    UV,
    PrivateError,
    ensure_private_folder,
    ensure_temporary_parent,
)
from builder.model.finding import ToolError
from builder.system.scratch import find_private_parent, make_scratch_folder

DAY = 86400.0


@pytest.fixture(params=[0o022, 0o077, 0o000, 0o007, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def keep(store: Store, key: str, *, size: int = 1000) -> None:
    store.get("layers", key, title=key, make=lambda path: path.write_bytes(b"x" * size) and None)


def without_locks_stand_in(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def flock(_file: object, _how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)


def lock_of_each_node_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lustre's `localflock`: what other nodes have locked is not seen."""
    monkeypatch.setattr(fcntl, "flock", lambda _file, _how: None)


def other_machine_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_name_machine", lambda: "another")
    monkeypatch.setattr(locks, "_find_boot", lambda: "00000000")


def test_security_14_a_cache_is_made_for_its_user_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    del umask
    Store(tmp_path / "new" / "cache")
    made = [tmp_path / "new", *(path for path in (tmp_path / "new").rglob("*") if path.is_dir())]
    assert len(made) > len((UV, CONDA, FETCH)) + 8
    assert {oct(mode(path)) for path in made} == {"0o700"}


@rows("bits", [0o770, 0o707, 0o777, 0o720, 0o1777])
@rows("part", ["", LAYERS, f"{LAYERS}/layers", UV, CONDA, FETCH])
def test_security_14_a_cache_that_others_can_write_is_refused(tmp_path: Path, part: str, bits: int) -> None:
    environment = {"RECIPE_CACHE_DIR": str(tmp_path / "cache")}
    open_cache(environment)
    folder = tmp_path / "cache" / part
    folder.chmod(bits)
    with pytest.raises(ToolError) as caught:
        open_cache(environment)
    assert caught.value.exit_code == 4
    (finding,) = caught.value.findings
    assert (finding.code, str(folder) in finding.message) == ("cache-folder", True)
    assert f"chmod -R go-w {folder}" in finding.fix
    assert "RECIPE_CACHE_DIR" in finding.fix
    folder.chmod(bits & ~0o022)  # what the fix says
    open_cache(environment)


@pytest.mark.parametrize("bits", [0o755, 0o700, 0o750])
def test_a_cache_that_others_only_read_is_used(tmp_path: Path, bits: int) -> None:
    tmp_path.chmod(bits)
    assert ensure_cache_folder({"RECIPE_CACHE_DIR": str(tmp_path)}) == tmp_path
    assert mode(tmp_path) == bits


def test_a_link_of_ones_own_leads_to_the_cache(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir(0o700)
    (tmp_path / "cache").symlink_to("scratch")
    assert ensure_cache_folder({"RECIPE_CACHE_DIR": str(tmp_path / "cache")}) == tmp_path / "scratch"


@pytest.mark.parametrize("bits", [0o777, 0o707, 0o703])
def test_security_14_a_cache_that_others_can_replace_is_refused(tmp_path: Path, bits: int) -> None:
    cache = tmp_path / "open" / "cache"
    cache.mkdir(0o700, parents=True)
    cache.parent.chmod(bits)
    with pytest.raises(PrivateError, match=f"'{cache}' is not safe: '{cache.parent}' can be written by all users"):
        ensure_private_folder(cache, instead="?")
    cache.parent.chmod(bits | 0o1000)
    assert ensure_private_folder(cache, instead="?") == cache


def test_security_14_without_a_home_there_is_no_cache_in_tmp(tmp_path: Path) -> None:
    with pytest.raises(ToolError) as caught:
        open_cache({})
    (finding,) = caught.value.findings
    assert (finding.code, caught.value.exit_code) == ("cache-folder", 4)
    assert "HOME is not set" in finding.message
    open_cache({"RECIPE_CACHE_DIR": str(tmp_path)})  # what the fix says


@rows("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL])
def test_security_14_without_locks_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store = Store(tmp_path)
    keep(store, "a")
    assert explain_no_locks(store) == ""
    without_locks_stand_in(monkeypatch, number)
    keep(store, "b")  # builds go on
    left = tmp_path / LAYERS / "work" / make_mark().replace(f".{os.getpid()}.", ".4194305.")
    left.mkdir()
    assert store.prune(0) == []
    store.sweep()
    assert left.is_dir()
    assert not any(store.drop(entry) for entry in store.list_entries())
    stray = tmp_path / LAYERS / "layers" / f"{'ab' * 32}.sqfs"
    stray.touch()
    with store.lock_downloads(alone=True) as ours:
        assert not ours
    with pytest.raises(ToolError, match="no locks"):
        prune_downloads(store)
    assert check_files(store) == ((), ())
    assert stray.exists()
    assert {entry.key for entry in store.list_entries()} == {"a", "b"}
    assert "no locks" in explain_no_locks(store)


def test_security_14_without_locks_an_altered_layer_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_locks_stand_in(monkeypatch, errno.ENOSYS)
    store = Store(tmp_path)
    keep(store, "a")
    store.get_path("layers", "a").write_bytes(b"y" * 1000)
    assert [store.check(entry) for entry in store.list_entries()] == [False]
    keep(store, "a")
    assert store.get_path("layers", "a").read_bytes() == b"x" * 1000
    assert [store.check(entry) for entry in Store(tmp_path).list_entries()] == [True]


def test_security_14_what_another_node_uses_stays_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_of_each_node_stand_in(monkeypatch)
    here = Store(tmp_path)
    keep(here, "a")
    keep(here, "b")
    with monkeypatch.context() as there:
        other_machine_stand_in(there)
        elsewhere = Store(tmp_path)
        with elsewhere.keep("layers", "a"), elsewhere.lock_downloads(), elsewhere.work_folder() as living:
            there.undo()
            lock_of_each_node_stand_in(monkeypatch)
            here.sweep()
            assert living.is_dir()
            assert [entry.key for entry in here.prune(0)] == ["b"]
            with here.lock_downloads(alone=True) as ours:
                assert not ours
            assert "a" in {entry.key for entry in here.list_entries()}
    assert [entry.key for entry in here.prune(0)] == ["a"]


def test_security_14_an_entry_that_is_taken_while_it_is_dropped_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    keep(store, "a")
    (entry,) = store.list_entries()
    answers = iter([False, True])  # of nobody, and then of somebody who came between
    monkeypatch.setattr(store.locks, "is_used", lambda _name: next(answers))
    assert not store.drop(entry)
    assert store.find("layers", "a") == entry


@rows(
    ("change", "dead"),
    [
        ("{0}.{1}.{2}.{3}.{4}", False),
        ("{0}.4194305.{2}.{3}.{4}", True),  # a number that no process has
        ("{0}.{1}.1.{3}.{4}", True),  # the number was given to another process
        ("{0}.{1}.{2}.{3}.another", False),
        ("{0}.4194305.{2}.{3}.another", False),
        ("{0}.{1}.{2}.00000000.{4}", False),  # a machine of the same name, or one that was started again a moment ago
        ("4711-oldname", False),
        (".", False),
    ],
)
def test_security_14_marks_tell_who_has_ended(tmp_path: Path, change: str, dead: bool) -> None:
    path = tmp_path / f"x@{change.format(*make_mark().split('.', 4))}"
    path.touch()
    assert is_dead(path, mark=path.name.partition("@")[2]) is dead
    os.utime(path, (time.time() - 15 * DAY,) * 2)
    own = change == "{0}.{1}.{2}.{3}.{4}"  # a build may take its time
    assert is_dead(path, mark=path.name.partition("@")[2]) is not own


def test_a_mark_of_before_the_machine_started_is_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / make_mark()
    path.touch()
    monkeypatch.setattr(locks, "_find_boot", lambda: "11111111")
    assert not is_dead(path)
    monkeypatch.setattr(locks, "_read_boot_time", lambda: time.time() + 1)
    assert is_dead(path)


@pytest.mark.parametrize("bits", [0o777, 0o770, 0o707])
def test_security_11_a_temporary_place_that_others_can_write_is_refused(tmp_path: Path, bits: int) -> None:
    parent = tmp_path / "tmp"
    parent.mkdir()
    parent.chmod(bits)
    with pytest.raises(ToolError) as caught, make_scratch_folder(tmp_path, parent=parent):
        pass
    (finding,) = caught.value.findings
    assert (finding.code, caught.value.exit_code) == ("no-tmpdir", 4)
    assert str(parent) in finding.message
    assert f"chmod -R go-w {parent}" in finding.fix
    assert "--tmpdir" in finding.fix
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]
    parent.chmod(bits | 0o1000)
    with make_scratch_folder(tmp_path, parent=parent) as scratch:
        assert mode(scratch) == 0o700


def other_user_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that was made until now is another user's."""
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)


def test_security_11_a_place_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that only its owner can write, and one that is sticky: its owner can put anything into it."""
    for bits in (0o700, 0o755, 0o1777):
        tmp_path.chmod(bits)
        with monkeypatch.context() as patch:
            other_user_stand_in(patch)
            for check in (
                lambda: ensure_temporary_parent(tmp_path, instead="?"),
                lambda: ensure_temporary_parent(tmp_path / "new", instead="?"),
                lambda: ensure_private_folder(tmp_path, instead="?"),
            ):
                with pytest.raises(PrivateError, match=r"belongs to .*\(?uid \d+\)?"):
                    check()
        assert ensure_temporary_parent(tmp_path, instead="?") == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_security_11_a_link_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leads to a safe place now."""
    for name, target in (("link", "/tmp"), ("outer", "link"), ("gone", "nowhere")):
        (tmp_path / name).symlink_to(target)
    assert ensure_temporary_parent(tmp_path / "outer", instead="?") == Path("/tmp").resolve()
    other_user_stand_in(monkeypatch)
    for path in (tmp_path / "link", tmp_path / "outer", tmp_path / "gone"):
        with pytest.raises(PrivateError, match="is a link of"):
            ensure_temporary_parent(path, instead="?")


def test_security_11_what_is_missing_of_a_place_is_made_for_its_user_alone(tmp_path: Path, umask: int) -> None:
    del umask
    made = find_private_parent(tmp_path / "local" / "me" / "tmp", make=True)
    assert {oct(mode(path)) for path in (made, made.parent, made.parent.parent)} == {"0o700"}
    assert ensure_temporary_parent(Path("/tmp"), instead="?") == Path("/tmp").resolve()


def test_fault_08_a_temporary_folder_is_written_down_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    mkdir = Path.mkdir

    def killed_stand_in(path: Path, *words: int) -> None:
        if path.name.startswith("recipe-"):
            seen.append((tmp_path / ".state.json").read_text())
            mkdir(path, *words)

    monkeypatch.setattr(Path, "mkdir", killed_stand_in)
    with make_scratch_folder(tmp_path, parent=tmp_path) as scratch:
        assert str(scratch) in seen[0]


def test_a_shared_cache_is_copied_from_and_never_written(tmp_path: Path) -> None:
    keep(Store(tmp_path / "centre"), "a")
    keep(Store(tmp_path / "centre"), "b")
    altered = tmp_path / "centre" / LAYERS / "layers" / "b.sqfs"
    altered.write_bytes(b"y" * 1000)
    before = {path: path.lstat() for path in (tmp_path / "centre" / LAYERS / "layers").rglob("*")}
    own = Store(tmp_path / "own", shared=SharedCache(tmp_path / "centre"))

    def make(path: Path) -> None:
        path.write_bytes(b"made here")

    for key, content in (("a", b"x" * 1000), ("b", b"made here"), ("c", b"made here")):
        entry, _ = own.get("layers", key, title=key, make=make)
        assert (entry.path.read_bytes(), entry.path.parent) == (content, tmp_path / "own" / LAYERS / "layers")
    after = {path: path.lstat() for path in (tmp_path / "centre" / LAYERS / "layers").rglob("*")}
    assert {path: (seen.st_mtime_ns, seen.st_size) for path, seen in after.items()} == {
        path: (seen.st_mtime_ns, seen.st_size) for path, seen in before.items()
    }


@pytest.mark.parametrize("part", ["", LAYERS, f"{LAYERS}/layers"])
def test_security_14_a_shared_cache_that_others_write_is_refused(tmp_path: Path, part: str) -> None:
    keep(Store(tmp_path / "centre"), "a")
    (tmp_path / "centre" / part).chmod(0o777)
    with pytest.raises(PrivateError, match="can be changed by others"):
        keep(Store(tmp_path / "own", shared=SharedCache(tmp_path / "centre")), "a")


@rows("part", [LAYERS, f"{LAYERS}/layers", f"{LAYERS}/layers/a.sqfs", f"{LAYERS}/layers/a.json"])
def test_security_14_a_shared_cache_with_links_is_refused(tmp_path: Path, part: str) -> None:
    """Of whoever they are, what they lead to may be anybody's."""
    keep(Store(tmp_path / "centre"), "a")
    place = tmp_path / "centre" / part
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PrivateError, match="is not safe"):
        keep(Store(tmp_path / "own", shared=SharedCache(tmp_path / "centre")), "a")


def test_security_14_a_shared_cache_that_others_replace_is_refused(tmp_path: Path) -> None:
    keep(Store(tmp_path / "above" / "centre"), "a")
    (tmp_path / "above").chmod(0o777)
    with pytest.raises(PrivateError, match=f"'{tmp_path / 'above'}' can be changed by others"):
        SharedCache(tmp_path / "above" / "centre")
    (tmp_path / "above").chmod(0o1777)
    SharedCache(tmp_path / "above" / "centre")


FOREIGN = {
    "conda": {"conda/environment.yml": "mine"},
    "uv": {"uv/notes.txt": "mine"},
    "both, and empty folders": {"conda/environment.yml": "mine", "uv/.keep": "", "fetch/.keep": ""},
    "uv's own cache among other caches": {"uv/CACHEDIR.TAG": "", "pip/x": ""},
    "a file": {"uv": "mine"},
    "layers": {"layers-1/thesis.tex": "mine"},
}


@pytest.mark.parametrize("files", FOREIGN.values(), ids=FOREIGN)
def test_a_folder_with_the_users_files_is_no_cache(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, mode=0o700)
        (tmp_path / name).write_text(text)
    before = sorted(tmp_path.rglob("*"))
    environment = {"RECIPE_CACHE_DIR": str(tmp_path)}
    for use in (open_cache, ensure_cache_folder, is_layer_cache_missing):
        with pytest.raises(ToolError) as caught:
            use(environment)
        (finding,) = caught.value.findings
        assert (finding.code, caught.value.exit_code) == ("cache-folder", 4)
        assert "set RECIPE_CACHE_DIR to an empty or new folder" in finding.fix
    assert sorted(tmp_path.rglob("*")) == before


OWN = {
    "empty": {},
    "files of the user's next to it": {"thesis.tex": "mine", "src/a.py": "mine"},
    "of an earlier version": {
        "uv/CACHEDIR.TAG": "", "uv/wheels-v6/x": "", "conda/packages/x": "", "fetch/x/plan.json": "",
        "layers-1/locks/x": "", "old/x": "",
    },
    "made by a script of a plan": {"uv/CACHEDIR.TAG": "", "uv/.lock": ""},
}  # fmt: skip


@pytest.mark.parametrize("files", OWN.values(), ids=OWN)
def test_a_cache_is_marked_and_then_known(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True, mode=0o700)
        (tmp_path / name).write_text(text)
    environment = {"RECIPE_CACHE_DIR": str(tmp_path)}
    open_cache(environment)
    assert (tmp_path / MARK).is_file()
    (tmp_path / CONDA / "anything").touch()  # what a later py-rattler may write
    open_cache(environment)
    assert all((tmp_path / name).is_file() for name in files)
