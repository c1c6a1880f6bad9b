"""Variables with wrong values: what, where and fix, and exit code 2, of every command that uses them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from builder.cli.main import run
from builder.cli.variables import VARIABLES

WRONG = {
    "HOME": ["~", "~/x", "~~", "~nosuch", "relative"],
    "RECIPE_CACHE_GIB": ["forty", "-1", "nan", "inf", "1e99"],
    "RECIPE_CACHE_DIR": ["env.txt"],
    "RECIPE_CACHE_SHARED": ["nothere", "env.txt"],
    "RECIPE_TMPDIR": ["nothere", "env.txt"],
    "RECIPE_UV": ["/nothere/uv", "env.txt", "/bin/false", "/bin/true"],
    "RECIPE_PYTHON": ["/nothere/python", "env.txt", "/bin/false", "/bin/true", "/bin/echo"],
    "SOURCE_DATE_EPOCH": ["abc", "-1", "1.5", "99999999999"],
    "RECIPE_MNIST": ["nothere", "env.txt"],
    "RECIPE_OFFLINE": ["no", "1"],
    "RECIPE_FRESH": ["no", "true"],
    "RECIPE_ACCEPT_LICENSES": ["y"],
    "RECIPE_EXPECT_GPU": ["1"],
    "RECIPE_GPU_VISIBILITY": ["all", "Rank"],
    "RECIPE_REGISTRY": ["https://nvcr.io/v2", "a b"],
    "RECIPE_TORCH_INDEX": ["foo", "ftp://x.org/"],
    "RECIPE_MASTER_PORT": ["0", "65536", "port"],
    "RECIPE_PROCESSES": ["mpi"],
    "RECIPE_DEVICE": ["gpu"],
}
LINES = {
    "build": "build -n local env.txt",
    "plan": "plan local env.txt --show",
    "check": "check local env.txt",
    "lock": "lock local env.txt --offline",
    "fetch": "fetch local env.txt",
    "cache": "cache ls",
    "convert": "convert local x.tar",
    "smoke": "smoke local x.sif",
    "run": "run local x.sif -- ls",
}
CASES = [(name, value, command) for name, values in WRONG.items() for value in values for command in LINES]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "env.txt").write_text("six==1.17.0\n")
    monkeypatch.chdir(tmp_path)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_every_variable_has_wrong_values() -> None:
    assert set(WRONG) == set(VARIABLES)


@pytest.mark.parametrize(
    ("name", "value", "command"), [case for case in CASES if case[2] in (VARIABLES[case[0]].commands or LINES)]
)
@pytest.mark.usefixtures("folder")
def test_a_wrong_value_is_said_by_each_command(
    name: str, value: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert run(LINES[command].split()) == 2
    said = capsys.readouterr().err
    assert f"'{value}' cannot be the value of {name}: " in said
    assert f"or unset {name}\n" in said


@pytest.mark.parametrize("line", ["cache ls", "cache check", "cache prune", "cache ls --format json"])
@pytest.mark.skipif(os.getuid() == 0, reason="the system's folders are root's own")
@pytest.mark.usefixtures("folder")
def test_a_cache_folder_of_another_user_is_refused(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECIPE_CACHE_DIR", "/etc")
    assert run(line.split()) == 4
    out, err = capsys.readouterr()
    assert ": the cache folder '/etc' belongs to root (uid 0)" in err
    assert bool(out) == ("json" in line)


def test_an_empty_place_is_no_cache(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECIPE_CACHE_DIR", str(folder))
    assert run(["cache", "ls"]) == 0
    assert capsys.readouterr().err == f"there is no cache in '{folder}' yet\n"
    assert [path.name for path in folder.iterdir()] == ["env.txt"]


def test_all_wrong_variables_are_said_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, values in WRONG.items():
        monkeypatch.setenv(name, values[0])
    assert run(LINES["build"].split()) == 2
    assert capsys.readouterr().err.count("cannot be the value of") == sum(
        "build" in (one.commands or LINES) for one in VARIABLES.values()
    )
    assert [path.name for path in folder.iterdir()] == ["env.txt"]


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("RECIPE_CACHE_GIB", "nan", "cache prune --gib 3"),
        ("RECIPE_CACHE_GIB", "nan", "cache ls --help"),
        ("RECIPE_CACHE_GIB", "0.5", "cache ls"),
        ("RECIPE_CACHE_DIR", "a/new/one", "cache ls"),
        ("RECIPE_TORCH_INDEX", "default", "check local env.txt"),
        ("RECIPE_TORCH_INDEX", "foo", "check local env.txt --torch-index=default"),
        ("SOURCE_DATE_EPOCH", "315532800", "build --help"),
        ("SOURCE_DATE_EPOCH", "abc", "check local env.txt"),
        ("RECIPE_OFFLINE", "maybe", "check local env.txt"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_is_right_or_not_used_is_no_fault(
    name: str, value: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert run(line.split()) == 0


@pytest.mark.usefixtures("folder")
def test_doctor_reports_what_a_build_would_refuse(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECIPE_CACHE_GIB", "abc")
    monkeypatch.setenv("RECIPE_UV", "/nonexistent")
    assert run(["doctor", "--offline"]) == 4
    out = capsys.readouterr().out
    assert re.search(r"BAD +RECIPE_CACHE_GIB +'abc': it is no number of GiB\n    fix: write RECIPE_CACHE_GIB=40", out)
    assert re.search(r"BAD +RECIPE_UV +'/nonexistent': there is no such program\n    fix: write the path of uv", out)


@pytest.mark.parametrize("words", [["ls"], ["ls", "--format", "json"], ["check"], ["prune"], ["prune", "-n"]])
def test_a_cache_behind_a_closed_folder_is_one_error(words: list[str], tmp_path: Path) -> None:
    """As of a user whose HOME is root's: whether a cache is there cannot be known."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    env = {"PATH": os.environ["PATH"], "HOME": str(closed), "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, "-m", "builder.cli.main", "cache", *words]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 4, said
    assert "no cache" not in said
    assert done.stderr.count("error[cache-folder]") == 1
    assert "set RECIPE_CACHE_DIR to a folder of your own" in said
