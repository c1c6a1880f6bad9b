"""Fixes that this file, this site and this line can follow."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.main import run

Capture = pytest.CaptureFixture[str]


@rows(
    ("name", "text", "line", "code", "told"),
    [
        ("r.txt", "--no-build-isolation\n", "check local r.txt", 2, "of an environment.yml, which can name this file"),
        ("r.txt", "six\n", "check mn5 r.txt --driver 12.4", 2, "CUDA 12.4 came with the driver 550.54.14"),
        ("r.txt", "six\n", "check local r.txt --ignore unpinned,glibc", 2, "write --ignore unpinned --ignore glibc"),
        ("-x.yml", "name: x\ndependencies: [python=3.12]\n", "check local y.yml", 2, "recipe check local ./-x.yml"),
        ("r.txt", "torch==1.13.0\n", "check lumi-g r.txt", 3, "use torch 2.4.0 to 2.9.1"),
        ("r.txt", "-e ./pkg\n", "check lumi-g r.txt", 3, "build with --backend apptainer"),
        (
            "r.txt",
            "git+https://example.org/x.git\n",
            "check local r.txt",
            0,
            "with git, with --base, or give the address",
        ),
        ("r.txt", "libgl1\n", "check local r.txt", 0, "choose a base image that has it, with --base"),
    ],
)
def test_a_fix_can_be_followed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    name: str,
    text: str,
    line: str,
    code: int,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for old in tmp_path.glob("*.*"):
        old.unlink()
    Path("pkg").mkdir(exist_ok=True)
    Path("pkg/pyproject.toml").touch()
    Path(name).write_text(text)
    assert run(line.split()) == code
    assert told in capsys.readouterr().err
