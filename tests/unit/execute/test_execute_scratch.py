"""Temporary folders."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.rows import rows

from builder.model.finding import BuilderError, ConfigError, ToolError
from builder.system.files import remove_tree, write_atomic
from builder.system.scratch import make_scratch_folder, remove_leftovers


def code(call: Callable[[], Any], error: type[BuilderError] = ConfigError) -> str:
    with pytest.raises(error) as caught:
        call()
    assert all(finding.fix for finding in caught.value.findings)
    return caught.value.findings[0].code


def test_the_temporary_folder_goes_whatever_is_in_it(tmp_path: Path) -> None:
    kit, parent = tmp_path / "kit", tmp_path / "tmp"
    kit.mkdir()
    parent.mkdir()
    with make_scratch_folder(kit, parent=parent) as scratch:
        assert scratch.name.startswith(f"recipe-{os.getpid()}-")
        assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
        recorded = json.loads((kit / ".state.json").read_text())
        assert recorded["temporary"] == [str(scratch)]
        inner = scratch / "rootfs" / "etc"
        inner.mkdir(parents=True)
        (inner / "passwd").touch()
        (scratch / "link").symlink_to(tmp_path)
        inner.chmod(0o500)
        inner.parent.chmod(0)
    assert list(parent.iterdir()) == []
    assert list(kit.iterdir()) == []


def test_what_a_killed_build_left_is_removed(tmp_path: Path) -> None:
    left, draft, mine = tmp_path / "recipe-12-abc", tmp_path / ".x.sif.recipe-12", tmp_path / "thesis"
    for path in (left, mine):
        path.mkdir()
    draft.touch()
    paths = [str(left), str(draft), str(mine), "recipe-1-relative", str(tmp_path / "recipe-9-gone")]
    (tmp_path / ".state.json").write_text(json.dumps({"temporary": paths}))
    assert remove_leftovers(tmp_path) == (left, draft)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis"]


@rows("text", ["", "[]", '{"temporary": 3}', "\xff"])
def test_a_broken_state_is_forgotten(tmp_path: Path, text: str) -> None:
    (tmp_path / ".state.json").write_text(text, encoding="latin-1")
    assert remove_leftovers(tmp_path) == ()
    assert list(tmp_path.iterdir()) == []


def test_no_place_for_temporary_files(tmp_path: Path) -> None:
    def enter() -> None:
        with make_scratch_folder(tmp_path, parent=tmp_path / "gone"):
            pass

    assert code(enter, ToolError) == "no-tmpdir"


def test_a_tree_is_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep/file").touch()
    (tmp_path / "link").symlink_to("keep")
    assert remove_tree(tmp_path / "link")
    assert remove_tree(tmp_path / "gone")
    assert (tmp_path / "keep/file").exists()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.json"]
