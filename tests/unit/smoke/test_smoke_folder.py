"""The folder runs in images: old Pythons, torch and the standard library only, no module of ours."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import builder.smoke

FOLDER = Path(builder.smoke.__file__).parent
FILES = sorted(FOLDER.glob("*.py"))
ALLOWED = {*sys.stdlib_module_names, "torch"}
NEEDS_TORCH = {"allreduce", "ddp", "meeting", "pi", "probe", "rank", "snapshot", "training", "workers"}


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").split(".")[0])
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_is_python_3_8(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 8))
    futures = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    assert futures or file.name == "__init__.py"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_imports_torch_and_the_standard_library_only(file: Path) -> None:
    assert imported(ast.parse(file.read_text())) <= ALLOWED


@pytest.mark.parametrize("file", [file for file in FILES if file.stem not in NEEDS_TORCH], ids=lambda file: file.stem)
def test_is_imported_without_torch(file: Path) -> None:
    at_top = ast.Module(
        body=[node for node in ast.parse(file.read_text()).body if not isinstance(node, ast.FunctionDef)]
    )
    in_classes = [node for node in ast.walk(at_top) if isinstance(node, ast.Import)]
    assert not any(alias.name.split(".")[0] == "torch" for node in in_classes for alias in node.names)


def test_there_are_files() -> None:
    assert len(FILES) > 15


def smoke(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run the folder as an image does, in a Python without any installed package (-S): torch is missing there."""
    command = [sys.executable, "-S", "-B", str(FOLDER), *arguments]
    return subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=60)


WORKLOADS = ("probe", "mnist", "ddp", "pi", "allreduce", "startup", "imports", "devices", "judge", "conclude")


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
        (["probe", "--expect-masks", "0xfe,core"], '"0xfe,core" is no list of CPU masks in hexadecimal'),
        (["probe", "--expect-masks", "0"], '"0" is no list of CPU masks'),
        (["probe", "--expect-variable", "A"], '"A" is not NAME=VALUE'),
        (["allreduce", "--to", "1"], '"1" is not a size from 4096 bytes'),
        (["allreduce", "--floor", "128MiB"], '"128MiB" is not SIZE=GBPS'),
        (["startup", "--started", "now"], '"now" is not a time in seconds since 1970'),
        (["conclude", ".", "--expect", "mnist,$(id)"], "is no list of workloads"),
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
    """The folder has a run.py, a record.py and more: they are not importable by these names."""
    done = smoke("imports", "run", "record", "json", folder=tmp_path)
    assert done.returncode == 1
    assert "FAIL import run: ModuleNotFoundError" in done.stdout
    assert "FAIL import record: ModuleNotFoundError" in done.stdout
    assert "ok   import json: 2." in done.stdout
