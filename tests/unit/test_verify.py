"""The question to the image's torch: which answer is wrong, and what a torch that says little is taken for."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.rows import rows

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


@rows(
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


@rows(
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


@rows(
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
