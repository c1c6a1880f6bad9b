"""What builds keep: what was compiled of a download goes with it, layers stay."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.cache import describe_entry
from builder.cli.main import run
from builder.execute.cache_maintenance import prune, prune_downloads
from builder.layers.cache import Store
from builder.layers.private_folders import ensure_cache
from builder.model.finding import ToolError


def keep(store: Store, kind: str, *, size: int) -> None:
    def make(path: Path) -> None:
        path.write_bytes(bytes(size))

    store.get(kind, kind, title=kind, make=make)


def test_what_was_compiled_of_downloads_is_removed_with_them(tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep(store, "compiled", size=300)
    keep(store, "layers", size=70)
    repodata = tmp_path / "conda" / "repodata"
    repodata.mkdir()
    (repodata / "41d12168.json").write_bytes(bytes(5))
    with store.lock_downloads(), pytest.raises(ToolError, match="a build is using"):
        prune_downloads(store)
    assert {one.kind for one in store.list_entries()} == {"compiled", "layers"}
    assert prune_downloads(store, dry_run=True) == {"uv": 0, "conda": 5, "compiled": 300}
    assert repodata.is_dir()
    assert prune_downloads(store) == {"uv": 0, "conda": 5, "compiled": 300}
    assert {one.kind for one in store.list_entries()} == {"layers"}
    assert not repodata.exists()


def test_what_would_be_removed_is_named_and_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep(store, "compiled", size=300)
    keep(store, "layers", size=70)
    assert prune(store, {"RECIPE_CACHE_GIB": "1"}, gib=None, dry_run=True) == ()
    with store.keep("layers", "layers"):
        assert {one.kind for one in prune(store, {}, gib=0, dry_run=True)} == {"compiled"}
    named = prune(store, {}, gib=0, dry_run=True)
    assert {one.kind for one in named} == {"compiled", "layers"}
    assert {one.kind for one in store.list_entries()} == {"compiled", "layers"}
    assert prune(store, {}, gib=0) == named


def test_a_file_of_the_cache_has_these_words_in_json(tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep(store, "layers", size=70)
    (entry,) = store.list_entries()
    assert describe_entry(entry) == {
        "kind": "layers", "title": "layers", "key": "layers", "size": 70, "used": entry.used, "file": str(entry.path),
    }  # fmt: skip


KEY = "ab" * 32
# Names as uv 0.13 and py-rattler 0.27 give them; folders end with a slash.
MADE = (
    "uv/archive-v0/3T1fz_OoTG2U7jmm/idna/core.py", "uv/wheels-v8/pypi/idna/idna-3.10.msgpack",
    "uv/simple-v28/index/0a1b/idna.rkyv", "uv/interpreter-v5/3470a12431a434f9/0f.msgpack", "uv/sdists-v11/.git",
    "uv/builds-v0/.tmpAbC123/x", "uv/environments-v2/tool-0123456789abcdef/pyvenv.cfg", "uv/git-v0/db/0a/HEAD",
    "conda/packages/.cache.lock", "conda/packages/tinyc-1.2-h1/info/index.json", "conda/packages/tinyc-1.2-h1.lock",
    "conda/repodata/41d12168.info.json", "conda/repodata/41d12168.json", "conda/repodata/11d32625.shards-cache-v1/a",
)  # fmt: skip
OWN = (
    "uv/thesis.tex", "uv/data-v1/x.bin", "uv/archive-v0/notes.txt", "uv/wheels-v8/mine/x.whl", "conda/envs/x/y",
    "conda/packages/photos/1.jpg", "conda/packages/list.txt", "conda/repodata/notes.json", "layers-1/x.txt",
    "layers-1/layers/backup.sqfs", "layers-1/compiled/mine/x.py", "layers-1/facts/notes.json", "layers-1/known/.draft",
    "layers-1/work/my work/x.py", "layers-1/bases/ubuntu.sif", "fetch/x.txt",
)  # fmt: skip
OURS = (f"layers-1/layers/{KEY}.sqfs", f"layers-1/compiled/{KEY}.gone", f"layers-1/facts/conda-2-{KEY}.json")


def write(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1234567890")
        for path in [folder / name, *(folder / name).parents][: len(Path(name).parts)]:
            os.utime(path, (1000, 1000))  # older than any bound


def test_files_of_the_user_in_the_cache_stay_and_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECIPE_CACHE_DIR", str(tmp_path))
    Store(tmp_path)
    write(tmp_path, MADE + OWN + OURS)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").touch()
    (tmp_path / "uv" / "python-v0").symlink_to(tmp_path / "outside")
    for line in (["prune", "--downloads", "-n"], ["prune", "--gib", "0", "--downloads"], ["check"]):
        assert run(["cache", *line]) == 0
        note = capsys.readouterr().err
        if line[0] == "prune":
            assert "0.0 MB of downloads" in note
            assert "note: not made by recipe, kept: conda/envs, conda/packages/list.txt, " in note
            assert "and 10 more" in note
    assert [name for name in OWN if not (tmp_path / name).exists()] == []
    assert [name for name in MADE + OURS if (tmp_path / name).exists()] == []
    assert (tmp_path / "outside" / "x").exists()


@rows("words", [["--downloads"], ["--gib", "0"], ["--gib", "0", "--downloads"], []])
def test_a_dry_run_prints_what_the_run_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    folder = tmp_path / "-".join(["cache", *words])
    monkeypatch.setenv("RECIPE_CACHE_DIR", str(folder))
    store = Store(folder)
    keep(store, "compiled", size=300_000)
    keep(store, "layers", size=700_000)
    write(folder, MADE + OWN)
    (folder / "uv/archive-v0/3T1fz_OoTG2U7jmm/big").write_bytes(bytes(4_000_000))
    said = []
    for more in (["-n"], []):
        assert run(["cache", "prune", *words, *more]) == 0
        said.append(capsys.readouterr())
    assert said[0].out.replace("would be removed", "removed") == said[1].out
    assert said[0].err.replace("would be removed", "removed") == said[1].err
    assert ("MB by uv" in said[1].err) == ("--downloads" in words)
    assert bool(said[1].out) == ("--gib" in words)


def test_downloads_without_layers_are_removed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECIPE_CACHE_DIR", str(tmp_path))
    assert run(["cache", "prune", "--downloads"]) == 0
    assert capsys.readouterr().err == "there is no cache yet\n"
    ensure_cache(tmp_path)
    write(tmp_path, MADE)
    assert run(["cache", "prune", "--downloads"]) == 0
    assert [name for name in MADE if (tmp_path / name).exists()] == []


def test_downloads_stay_while_a_uv_is_at_work(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write(tmp_path, (*MADE, "uv/.lock"))
    with (tmp_path / "uv" / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        for dry_run in (True, False):
            with pytest.raises(ToolError, match="uv is using"):
                prune_downloads(store, dry_run=dry_run)
    assert [name for name in MADE if not (tmp_path / name).exists()] == []
    prune_downloads(store)
    assert (tmp_path / "uv" / ".lock").exists()
