"""Output that cannot be written: one error and exit code 4; messages that cannot be written change no exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENT = "name: demo\nchannels:\n  - conda-forge\ndependencies:\n  - python=3.12\n  - numpy\n"
LINES = [
    "check demo.yml", "check local demo.yml", "check local demo.yml --format json", "sites", "sites lumi-g",
    "explain glibc", "--help", "--version", "plan --show local demo.yml",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "demo.yml").write_text(ENVIRONMENT)
    return tmp_path


def call(folder: Path, line: str, *, out: str = "", err: str = "") -> tuple[int, str]:
    """Run a command with streams that lead to a file; the exit code, and what is on stderr."""
    with Path(out or "/dev/null").open("w") as first, Path(err or folder / "err").open("w") as second:
        argv = [sys.executable, "-m", "builder.cli.main", *line.split()]
        code = subprocess.run(argv, cwd=folder, stdout=first, stderr=second, check=False).returncode
    return code, "" if err else (folder / "err").read_text()


@pytest.mark.parametrize("line", LINES)
def test_a_full_output_is_one_error(line: str, folder: Path) -> None:
    code, said = call(folder, line, out="/dev/full")
    assert (code, said.count("error[")) == (4, 1), said
    assert "no space left on device" in said
    assert "Exception ignored" not in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("line", "code"), [("check local demo.yml", 0), ("check nowhere demo.yml", 2), ("nothing", 2)])
def test_full_messages_change_no_exit_code(line: str, code: int, folder: Path) -> None:
    assert call(folder, line, err="/dev/full")[0] == code


@pytest.mark.parametrize(("line", "code"), [("sites", 4), ("nothing", 2)])
def test_both_full(line: str, code: int, folder: Path) -> None:
    assert call(folder, line, out="/dev/full", err="/dev/full")[0] == code
