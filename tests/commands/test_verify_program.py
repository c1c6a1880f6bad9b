"""verify.py as an image runs it, beside a stand-in for torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import builder

VERIFY = Path(builder.__file__).parent / "data" / "templates" / "verify.py"


AMD = {"vendor": "amd", "torch": "2.8.0+rocm6.4", "architecture": "gfx90a"}


Ask = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Runs verify.py beside a stand-in for torch with the given version, vendor line and architectures."""

    def go(
        expected: Mapping[str, str], *, version: str, built: str, flags: str = ""
    ) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / "torch"
        folder.mkdir()
        (folder / "__init__.py").write_text(f"from . import version, _C\n__version__ = {version!r}\n")
        (folder / "version.py").write_text(built)
        (folder / "_C.py").write_text(f"def _cuda_getArchFlags():\n    return {flags!r}\n" if flags else "")
        (tmp_path / "recipe.json").write_text(json.dumps({"expect": expected}))
        (tmp_path / "verify.py").write_bytes(VERIFY.read_bytes())
        words = [sys.executable, "-B", "verify.py", "recipe.json", "answer.json"]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    return go


def test_the_right_build_passes(ask: Ask, tmp_path: Path) -> None:
    done = ask(AMD, version="2.8.0+rocm6.4", built="hip = '6.4'", flags="gfx90a gfx942")
    assert done.returncode == 0, done.stderr
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["faults"] == []
    assert answer["found"]["architectures"] == ["gfx90a", "gfx942"]


def test_a_build_for_other_gpus_of_the_vendor_fails(ask: Ask) -> None:
    done = ask(AMD, version="2.8.0+rocm6.4", built="hip = '6.4'", flags="gfx942")
    assert done.returncode == 1
    assert "verify: error: torch 2.8.0+rocm6.4 has no kernels for gfx90a, it was built for gfx942" in done.stderr


def test_a_build_without_an_answer_is_reported_and_passes(ask: Ask) -> None:
    done = ask(AMD, version="2.8.0+rocm6.4", built="hip = '6.4'")
    assert done.returncode == 0, done.stderr
    assert "verify: this torch does not say whether it has kernels for gfx90a" in done.stdout


def test_the_default_indexs_build_fails(ask: Ask) -> None:
    done = ask(AMD, version="2.8.0", built="cuda = '12.8'", flags="sm_90")
    assert done.returncode == 1
    assert "torch 2.8.0 is not built for amd GPUs" in done.stderr
