"""The layering folder as a plan runs it, and its compiler."""

import subprocess
import sys
from pathlib import Path

import pytest

import builder.layers

FOLDER = Path(builder.layers.__file__).parent


def layering(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-S", "-B", str(FOLDER), *arguments]
    return subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["build", "--help"], 0, "layers.json"),
        ([], 2, "the following arguments are required: command"),
        (["build", "x.json"], 2, "--output, --runtime"),
        (["build", "x.json", "--output", "y", "--runtime", "apptainer"], 1, "'x.json' is not a description of layers"),
    ],
)
def test_the_command_line(arguments: list[str], code: int, text: str, tmp_path: Path) -> None:
    done = layering(*arguments, folder=tmp_path)
    assert done.returncode == code
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
