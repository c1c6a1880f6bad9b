"""Base images: that of the ROCm asked for, and none for other GPUs or another processor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.rows import rows

from builder.model.finding import Finding, UnsupportedError
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve

NGC = "docker://nvcr.io/nvidia/pytorch:24.03-py3"
IPEX = "docker://intel/intel-extension-for-pytorch:2.8.10-xpu"


def decide(folder: Path, site: str, *lines: str, base: str = "", backend: str = "", arch: str = "") -> Target:
    path = folder / "requirements.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    found = load_site(site)
    if arch:
        found = replace(found, node=replace(found.node, arch=arch))  # type: ignore[arg-type]
    return resolve(load_recipe(path), found, context=Context(base=base, backend=backend))


def refuse(folder: Path, site: str, *lines: str, base: str = "", arch: str = "") -> tuple[Finding, ...]:
    with pytest.raises(UnsupportedError) as caught:
        decide(folder, site, *lines, base=base, arch=arch)
    return tuple(one for one in caught.value.findings if one.level == "error")


@rows(
    "site, line, backend, base",
    [
        ("lumi-g", "torch==2.5.1+rocm6.2", "", "lumi-rocm-rocm-6.2.4.sif"),
        ("lumi-g", "torch==2.6.0", "", "lumi-rocm-rocm-6.2.4.sif"),
        ("lumi-g", "torch==2.6.0", "layers", "lumi-rocm-rocm-6.2.4.sif"),
        ("lumi-g", "torch==2.9.1", "", "u24r64f21m43t29-20260225_144743.sif"),
        ("lumi-g", "torch==2.4.1", "", "u24r64f21m43t29-20260225_144743.sif"),
        ("frontier", "torch==2.7.1+rocm6.3", "", "cpe:25.03_gnu_ubuntu"),
    ],
)
def test_a_wheel_gets_the_base_image_of_its_rocm(site: str, line: str, backend: str, base: str, tmp_path: Path) -> None:
    target = decide(tmp_path, site, line, backend=backend)
    assert target.base.reference.endswith(base), target.base.reference


def test_a_base_of_the_users_own_stays(tmp_path: Path) -> None:
    own = "docker://docker.io/library/python:3.12-slim-bookworm"
    assert decide(tmp_path, "lumi-g", "torch==2.6.0", base=own).base.reference == own


@rows(
    "site, base, text",
    [
        ("dawn", NGC, "built for NVIDIA GPUs, the site 'dawn' has Intel GPUs"),
        ("mn5", IPEX, "built for Intel GPUs, the site 'mn5' has NVIDIA GPUs"),
        ("frontier", IPEX, "built for Intel GPUs, the site 'frontier' has AMD GPUs"),
        ("frontier", NGC, "built for NVIDIA GPUs, the site 'frontier' has AMD GPUs"),
        ("lumi-g", "docker://docker.io/nvidia/cuda:12.4.1-base-ubuntu22.04", "built for NVIDIA GPUs"),
        ("mn5", "docker://docker.io/rocm/dev-ubuntu-24.04:6.4", "built for AMD GPUs"),
        ("dawn", "docker://pytorch/pytorch:2.4.1-cuda12.4-cudnn9-runtime", "built for NVIDIA"),
    ],
)
def test_a_base_for_other_gpus_is_refused(site: str, base: str, text: str, tmp_path: Path) -> None:
    (found,) = refuse(tmp_path, site, "numpy==2.1.0", base=base)
    assert found.code == "base-vendor"
    assert text in found.message
    assert found.at is not None
    assert found.at.key == "--base"


def test_a_base_for_other_gpus_is_named_with_the_other_faults(tmp_path: Path) -> None:
    codes = {one.code for one in refuse(tmp_path, "dawn", "torch==2.4.1+cu124", base=NGC)}
    assert "base-vendor" in codes


@rows(
    "site, base",
    [
        ("mn5", NGC),
        ("mn5", "docker://nvcr.io/nvidia/base/ubuntu:22.04_20240212"),
        ("local", NGC),
        ("dawn", "docker://docker.io/library/python:3.12-slim-bookworm"),
        ("frontier", "docker://docker.io/library/rockylinux:9.3"),
    ],
)
def test_other_base_images_are_taken(site: str, base: str, tmp_path: Path) -> None:
    assert decide(tmp_path, site, "numpy==2.1.0", base=base).base.reference == base


@rows(
    "arch, base, text",
    [
        ("x86_64", "docker://docker.io/arm64v8/python:3.12", "built for aarch64"),
        ("x86_64", "docker://ghcr.io/group/image:1.0-aarch64", "built for aarch64"),
        ("aarch64", "docker://ghcr.io/group/image:1.0-amd64", "built for x86_64"),
    ],
)
def test_a_base_for_another_processor_is_refused(arch: str, base: str, text: str, tmp_path: Path) -> None:
    (found,) = refuse(tmp_path, "local", "numpy==2.1.0", base=base, arch=arch)
    assert (found.code, text in found.message) == ("base-vendor", True)
    same = {"x86_64": "aarch64", "aarch64": "x86_64"}[arch]
    assert decide(tmp_path, "local", "numpy==2.1.0", base=base, arch=same).base.reference == base
