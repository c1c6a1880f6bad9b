"""Locks between what strangers wrote: links in a recipe's folder, and what a base image says of itself."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from support.rows import rows

from builder.lock import base_lock as base
from builder.lock.session import Session
from builder.lock.site_lock import SiteLock, write_locks
from builder.model.finding import ToolError
from builder.model.lock import BaseLock, Lock, LockRequest
from builder.model.site import BaseImage
from builder.system.process import CapturedOutput

FAULTY = """\
lock: '1'
tool: x
sites:
  mine:
    recipe: x
    digest: x
    asked: {place: venv, base: x, python: '3.12', arch: x86_64}
    base: {reference: x}
"""


def locked(site: str = "local") -> SiteLock:
    """A lock that has no packages of conda: its file of them goes."""
    asked = LockRequest(place="venv", base="x", python="3.12", arch="x86_64")
    lock = Lock(site=site, recipe="x", tool="x", asked=asked, base=BaseLock(reference="x"))
    return SiteLock(lock=lock, conda="", pip="new\n", findings=())


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A folder of the user's beside the recipe's."""
    found = tmp_path / "work" / "mine"
    found.mkdir(parents=True)
    for name in ("thesis.tex", "pixi.lock", "pylock.toml"):
        (found / name).write_text("mine")
    (tmp_path / "recipe").mkdir()
    return found


def untouched(folder: Path) -> bool:
    return {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(
        ("thesis.tex", "pixi.lock", "pylock.toml"), "mine"
    )


def test_security_01_a_faulty_lock_removes_nothing_through_a_link(tmp_path: Path, other: Path) -> None:
    index = tmp_path / "recipe" / "env.lock.yml"
    index.write_text(FAULTY)
    (tmp_path / "recipe" / "env.lock").symlink_to("../work")
    with pytest.raises(ToolError, match="link"):
        write_locks(index, [locked()], tool="x")
    assert untouched(other)
    assert index.read_text() == FAULTY


def test_a_lock_that_cannot_be_written_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk: the folders can be made, and no file in them."""

    def fill(top: Path, path: Path, text: str) -> None:
        del text
        (top / path).parent.mkdir(parents=True)
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("builder.lock.site_lock._replace_file", fill)
    with pytest.raises(ToolError, match="no space left"):
        write_locks(tmp_path / "env.lock.yml", [locked()], tool="x")
    assert list(tmp_path.iterdir()) == []


def test_security_02_a_lock_is_written_through_no_link(tmp_path: Path, other: Path) -> None:
    index = tmp_path / "recipe" / "env.lock.yml"
    (tmp_path / "recipe" / "env.lock").mkdir()
    (tmp_path / "recipe" / "env.lock" / "local").symlink_to("../../work/mine")
    with pytest.raises(ToolError, match="link"):
        write_locks(index, [locked()], tool="x")
    assert untouched(other)


def test_security_02_a_file_of_a_lock_that_is_a_link_is_replaced(tmp_path: Path, other: Path) -> None:
    index = tmp_path / "recipe" / "env.lock.yml"
    folder = tmp_path / "recipe" / "env.lock" / "local"
    folder.mkdir(parents=True)
    for name in ("pixi.lock", "pylock.toml"):
        (folder / name).symlink_to(other / name)
    index.symlink_to(other / "thesis.tex")
    write_locks(index, [locked()], tool="x")
    assert untouched(other)
    assert (folder / "pylock.toml").read_text() == "new\n"
    assert stat.S_ISREG((folder / "pylock.toml").lstat().st_mode)
    assert not (folder / "pixi.lock").is_symlink()
    assert stat.S_ISREG(index.lstat().st_mode)


def test_security_05_a_faulty_entry_goes_with_its_files(tmp_path: Path) -> None:
    index = tmp_path / "recipe" / "env.lock.yml"
    old = tmp_path / "recipe" / "env.lock" / "mine"
    old.mkdir(parents=True)
    (old / "pixi.lock").write_text("x")
    index.write_text(FAULTY)
    write_locks(index, [locked()], tool="x")
    assert not old.exists()


@rows("answer", ['recipe:{"a":' * 100_000, "recipe:{" + '"a":[' * 100_000, "recipe:{}", "recipe:{1"])
def test_security_18_an_odd_answer_of_a_base_image_is_none(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `python3` is any program, and says what it likes."""
    (tmp_path / "base.sif").write_text("x")
    monkeypatch.setattr(base, "find_program", lambda *_, **__: Path("/bin/apptainer"))
    monkeypatch.setattr(base, "capture", lambda *_, **__: CapturedOutput(exit_code=0, text=answer))
    found = locked_base(tmp_path / "base.sif")
    assert (found.python, found.provides) == ("", {})


def test_security_15_a_base_image_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "base.sif")
    assert locked_base(tmp_path / "base.sif").why == "it cannot be read on this machine: it is not a regular file"


def locked_base(path: Path) -> BaseLock:
    """What a lock says of a local base image."""
    session = Session(environment={}, work=path.parent, cache=path.parent)
    image = BaseImage(reference=str(path), source=())
    return base.lock_base(image, own=False, name="base.sif", packages=True, runtimes=("apptainer",), session=session)
