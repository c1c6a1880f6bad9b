"""The smoke folder as an image runs it: in a Python without any installed package."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.results import MNIST

import builder.smoke

FOLDER = Path(builder.smoke.__file__).parent


def smoke(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run the folder as an image does, in a Python without any installed package (-S): torch is missing there."""
    command = [sys.executable, "-S", "-B", str(FOLDER), *arguments]
    return subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=60)


WORKLOADS = ("probe", "mnist", "ddp", "pi", "allreduce", "startup", "mpi", "imports", "devices", "judge", "conclude")


@pytest.mark.parametrize("arguments", [["--help"], *([name, "--help"] for name in WORKLOADS)])
def test_help_needs_no_torch(arguments: list[str], tmp_path: Path) -> None:
    done = smoke(*arguments, folder=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: smoke")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "the following arguments are required: WORKLOAD"),
        (["train"], "invalid choice: 'train'"),
        (["mnist", "--epochs", "0"], '"0" is not a whole number from 1'),
        (["mnist", "--timeout", "nan"], '"nan" is not a number of seconds over 0'),
        (["ddp", "--ranks", "two"], '"two" is not a whole number from 1'),
        (
            ["mnist", "--result", "missing/result.json"],
            'error: the result "missing/result.json" cannot be written: No su',
        ),
        (["probe", "--expect-masks", "0xfe,core"], '"0xfe,core" is not a list of CPU masks in hexadecimal'),
        (["probe", "--expect-masks", "0"], '"0" is not a list of CPU masks'),
        (["probe", "--expect-variable", "A"], '"A" is not NAME=VALUE'),
        (["allreduce", "--to", "1"], '"1" is not a size from 4096 bytes'),
        (["allreduce", "--floor", "128MiB"], '"128MiB" is not SIZE=GBPS'),
        (["mpi", "--ranks", "2"], "unrecognized arguments: --ranks"),
        (["mpi", "--expect-mpi", "cray"], "invalid choice: 'cray'"),
        (["mpi"], "no launcher started this process"),
        (["startup", "--started", "now"], '"now" is not a time in seconds since 1970'),
        (["conclude", ".", "--expect", "mnist,$(id)"], "is not a list of workloads"),
        (["conclude", "missing"], 'error: the folder "missing" does not exist'),
        (["judge", "missing.json"], 'error: "missing.json" cannot be read: No such file'),
    ],
)
def test_misuse_ends_with_status_2(arguments: list[str], text: str, tmp_path: Path) -> None:
    done = smoke(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_name_of_the_folder_hides_no_module_of_the_image(tmp_path: Path) -> None:
    """The folder has a run.py, a data.py and more: they are not importable by these names."""
    done = smoke("imports", "run", "data", "json", folder=tmp_path)
    assert done.returncode == 1
    assert "FAIL import run: ModuleNotFoundError" in done.stdout
    assert "FAIL import data: ModuleNotFoundError" in done.stdout
    assert "ok   import json: 2." in done.stdout


@pytest.mark.parametrize(("accuracy", "status"), [(0.97, 0), (0.5, 1)])
def test_the_judge_command_judges_a_file_again(accuracy: float, status: int, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(MNIST | {"accuracy": accuracy, "verdict": "pass"}))
    done = smoke("judge", str(path), folder=tmp_path)
    assert done.returncode == status
    assert done.stdout.splitlines()[-1] == ("verdict: FAIL (accuracy)" if status else "verdict: pass")
