"""The workflow for GitHub: valid by its schema, and its cheap lines run in a fresh clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
PROGRAMS = Path(sys.executable).parent
# job and step -> why its line is not run here
ELSEWHERE = {
    ("lint", "install"): "the environment of the tests is this",
    ("lint", "types"): "make lint: half a minute",
    ("lint", "source"): "make source: a few seconds, and before these tests",
    ("unit", "install"): "the environment of the tests is this",
    ("unit", "unit"): "make unit: most of a minute",
    ("wheel", "wheel"): "tests/terminal/conftest.py builds it: it asks an index for hatchling",
    ("wheel", "install"): "tests/terminal/conftest.py installs it: it asks an index",
    ("wheel", "try"): "tests/terminal/test_wheel.py",
    ("docs", "install"): "it asks an index for mkdocs-material",
}


def _steps() -> Iterator[tuple[str, str, str]]:
    loaded: Any = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    for job, content in loaded["jobs"].items():
        for step in content["steps"]:
            if "run" in step:
                yield job, step["name"], step["run"]


STEPS = list(_steps())
HERE = [step for step in STEPS if step[:2] not in ELSEWHERE]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files in a folder of their own."""
    folder = tmp_path_factory.mktemp("clone") / "recipe"
    for name in list_tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def list_tracked() -> list[str]:
    """Name the tracked files: other tests make and remove files between them at the same time."""
    manifest = ROOT / ".copied-files"  # of tests/testbed/update_copy.py, where this is a copy without a .git
    if not manifest.exists():
        words = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.rstrip("\0").split("\0")
    return manifest.read_text(encoding="utf-8").split("\0")


def test_the_workflow_is_valid_by_the_schema_of_github() -> None:
    words = [PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", WORKFLOW]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_refuses_a_wrong_workflow(tmp_path: Path) -> None:
    wrong = tmp_path / "ci.yml"
    wrong.write_text(WORKFLOW.read_text(encoding="utf-8").replace("runs-on", "run-on"), encoding="utf-8")
    words = [PROGRAMS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", wrong]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 1


def test_each_line_is_run_here_or_has_a_reason() -> None:
    assert {*ELSEWHERE} <= {(job, name) for job, name, _ in STEPS}
    assert len(HERE) >= 5


@pytest.mark.parametrize("step", HERE, ids=lambda step: " ".join(step[:2]))
def test_a_line_of_the_workflow_succeeds(step: tuple[str, str, str], clone: Path) -> None:
    env = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "RUFF_NO_CACHE": "true"}
    done = subprocess.run(["bash", "-ec", step[2]], cwd=clone, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
