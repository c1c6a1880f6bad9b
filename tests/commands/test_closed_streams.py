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


@pytest.mark.parametrize(("words", "end", "code"), [
    ("sites lumi-g", "| true", 0), ("--help", "| true", 0), ("check --format table local x.yml", "| true", 0),
    ("check local no.yml", "2>&1 | true", 2), ("check local no.yml", "2>/dev/full", 2),
    ("check local x.yml", "2>/dev/full", 0), ("nonsense", "2>/dev/full", 2), ("sites", ">/dev/full", 4),
])  # fmt: skip
def test_a_reader_that_is_gone_changes_no_exit_code(tmp_path: Path, words: str, end: str, code: int) -> None:
    (tmp_path / "x.yml").write_text(to_yaml(GOOD))
    # The reader has ended before the program writes: it waits for a line that comes only then.
    line = f'{{ sleep 0.2; "{sys.executable}" -m builder.cli.main {words}; echo $? >code; }} {end}; cat code'
    line = line if "|" in end else f'"{sys.executable}" -m builder.cli.main {words} {end}; echo $?'
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.strip().splitlines()[-1], "Traceback" in done.stderr) == (str(code), False), done.stderr


def test_an_early_interrupt_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from hpc_recipe import start; start()"
    done = subprocess.run([sys.executable, "-c", code, "check"], env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_the_entry_point_catches_an_interrupt() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert '\nrecipe = "hpc_recipe:start"\n' in project
