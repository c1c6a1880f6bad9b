"""Streams that the shell closed: the program says what it can, and its exit code is what it would be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from builder.parse.yaml import to_yaml

GOOD = {"name": "x", "channels": ["conda-forge"], "dependencies": ["python=3.12", "numpy=2"]}


@pytest.mark.parametrize(("file", "closed", "code"), [
    ("x.yml", ">&-", 0), ("x.yml", "2>&-", 0), ("x.yml", ">&- 2>&-", 0), ("x.yml", "<&-", 0),
    ("no.yml", ">&-", 2), ("no.yml", "2>&-", 2), ("no.yml", ">&- 2>&- <&-", 2),
])  # fmt: skip
def test_a_closed_stream_changes_no_exit_code(tmp_path: Path, file: str, closed: str, code: int) -> None:
    (tmp_path / "x.yml").write_text(to_yaml(GOOD))
    line = f'"{sys.executable}" -m builder.cli.main check local {file} {closed}'
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr + done.stdout) == (code, False), done.stderr


def test_a_deleted_folder_is_no_fault_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(to_yaml(GOOD))
    lines = ("build -n local ../x.yml", "check x.yml", "status", "init", "cache ls", f"check local {tmp_path}/x.yml")
    for words in lines:
        (tmp_path / "gone").mkdir()
        line = f'cd gone && rmdir ../gone && "{sys.executable}" -m builder.cli.main {words}'
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode in (0, 2, 4), (words, done.stderr)
