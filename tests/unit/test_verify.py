"""The question to the image's torch: which answer is wrong, and what a torch that says little is taken for."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import builder

VERIFY = Path(builder.__file__).parent / "data" / "templates" / "verify.py"
AMD = {"vendor": "amd", "torch": "2.8.0+rocm6.4", "architecture": "gfx90a"}
NVIDIA = {"vendor": "nvidia", "torch": "2.8.0+cu128", "architecture": "sm_90"}


@pytest.fixture(scope="module")
def verify() -> ModuleType:
    spec = importlib.util.spec_from_file_location("verify", VERIFY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("built", "target", "runs"),
    [
        ("gfx90a", "gfx90a", True),
        ("gfx90a:xnack-", "gfx90a", True),
        ("gfx942", "gfx90a", False),
        ("gfx900", "gfx90a", False),
        ("sm_90", "sm_90", True),
        ("sm_80", "sm_86", True),  # the same major: binary compatible
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90", False),
        ("sm_120", "sm_90", False),
        ("sm_90a", "sm_90", False),
        ("compute_80", "sm_90", True),  # PTX, compiled by the driver
        ("compute_100", "sm_90", False),
    ],
)
def test_kernels_that_run_on_a_gpu(verify: ModuleType, built: str, target: str, runs: bool) -> None:
    assert verify.serves(built, target) is runs


@pytest.mark.parametrize(
    ("expected", "found", "fault"),
    [
        (AMD, {"torch": "2.8.0+rocm6.4", "hip": "6.4", "architectures": ["gfx908", "gfx90a"]}, ""),
        (AMD, {"torch": "2.8.0+rocm6.4", "hip": "6.4", "architectures": []}, ""),
        (
            AMD,
            {"torch": "2.8.0+rocm6.4", "hip": "6.4", "architectures": ["gfx1100", "gfx942"]},
            "torch 2.8.0+rocm6.4 has no kernels for gfx90a, it was built for gfx1100, gfx942",
        ),
        (AMD, {"torch": "2.8.0", "cuda": "12.8", "architectures": []}, "torch 2.8.0 is not built for amd GPUs"),
        (NVIDIA, {"torch": "2.8.0+cu128", "cuda": "12.8", "architectures": ["sm_80", "sm_90"]}, ""),
        (
            NVIDIA,
            {"torch": "2.8.0+cu128", "cuda": "12.8", "architectures": ["sm_100", "sm_120"]},
            "torch 2.8.0+cu128 has no kernels for sm_90, it was built for sm_100, sm_120",
        ),
        ({"vendor": "cpu", "torch": "2.8.0+cpu"}, {"torch": "2.8.0+cpu", "architectures": []}, ""),
    ],
)
def test_what_is_wrong_with_an_answer(
    verify: ModuleType, expected: Mapping[str, str], found: Mapping[str, Any], fault: str
) -> None:
    faults = verify.faults(expected, found)
    assert faults[:1] == ([fault] if fault else [])


def raising() -> str:
    raise RuntimeError("no GPU")


@pytest.mark.parametrize(
    ("torch", "found"),
    [
        (SimpleNamespace(_C=SimpleNamespace(_cuda_getArchFlags=lambda: "sm_80 sm_90")), ["sm_80", "sm_90"]),
        (SimpleNamespace(_C=SimpleNamespace(_cuda_getArchFlags=lambda: None)), []),
        (SimpleNamespace(_C=SimpleNamespace(_cuda_getArchFlags=raising, _xpu_getArchFlags=lambda: "pvc,dg2")),
         ["dg2", "pvc"]),
        (SimpleNamespace(cuda=SimpleNamespace(get_arch_list=lambda: ["gfx90a"])), ["gfx90a"]),
        (SimpleNamespace(cuda=SimpleNamespace(get_arch_list=lambda: 7)), []),
        (SimpleNamespace(), []),
    ],
)  # fmt: skip
def test_a_torch_is_asked_in_every_way_it_may_know(verify: ModuleType, torch: object, found: list[str]) -> None:
    assert verify.architectures(torch) == found


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


def test_a_build_that_does_not_say_is_told_of_and_passes(ask: Ask) -> None:
    done = ask(AMD, version="2.8.0+rocm6.4", built="hip = '6.4'")
    assert done.returncode == 0, done.stderr
    assert "verify: this torch does not say whether it has kernels for gfx90a" in done.stdout


def test_the_default_indexs_build_fails(ask: Ask) -> None:
    done = ask(AMD, version="2.8.0", built="cuda = '12.8'", flags="sm_90")
    assert done.returncode == 1
    assert "torch 2.8.0 is not built for amd GPUs" in done.stderr
