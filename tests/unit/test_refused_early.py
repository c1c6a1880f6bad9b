"""What a command cannot do is refused before it works."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.cli.main import run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "six.txt").write_text("six==1.16.0\n")
    return tmp_path


def test_a_file_as_a_folder_has_no_rights_to_change(capsys: Capture) -> None:
    assert run(["check", "local", "six.txt/x.txt"]) == 2
    printed = capsys.readouterr().err
    assert "'six.txt' is a file, and no folder" in printed
    assert "chmod" not in printed


@pytest.mark.parametrize("link", [False, True])
def test_a_lock_looks_at_its_folder_before_it_solves(folder: Path, capsys: Capture, link: bool) -> None:
    if link:
        (folder / "six.lock").symlink_to("elsewhere")
    else:
        (folder / "six.lock").write_text("mine")
    assert run(["lock", "local", "six.txt"]) == 4
    assert "'six.lock' is a link or a file where a folder should be" in capsys.readouterr().err
