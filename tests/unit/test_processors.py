"""Sites whose processors are aarch64: the builds of torch, markers, wheels, engines; a driver that an image brings."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.matrix import TOOL
from support.rows import rows

from builder.compile.compile import compile_plan
from builder.execute.processors import check_engines
from builder.model.finding import Finding, ToolError, UnsupportedError
from builder.model.plan import Plan
from builder.model.target import Context, Target
from builder.parse.gpu_tables import load_torch_table
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve
from builder.resolve.tokens import find_vendor, list_all_tokens

ARM_SITES = ("isambard-ai", "jupiter", "roihu-gpu")
COMPAT_IMAGE = "docker://docker.io/nvidia/cuda:13.0.2-cudnn-devel-ubuntu24.04"


def target_of(site: str, *lines: str, folder: Path, **context: str) -> Target:
    path = folder / "requirements.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return resolve(load_recipe(path), load_site(site), context=Context(tool=TOOL, **context))


def refusal(site: str, *lines: str, folder: Path) -> Finding:
    with pytest.raises(UnsupportedError) as caught:
        target_of(site, *lines, folder=folder)
    return caught.value.findings[0]


def codes(target: Target) -> set[str]:
    return {finding.code for finding in target.findings if finding.level == "warning"}


def plan_of(site: str, backend: str, folder: Path) -> Plan:
    return compile_plan(target_of(site, "numpy==2.2.0", folder=folder, backend=backend))


def test_what_is_built_for_aarch64_is_built_for_x86_64_too() -> None:
    for row in load_torch_table().releases:
        tokens = list_all_tokens(row, arch="aarch64")
        assert set(tokens) <= {*list_all_tokens(row, arch="x86_64")}, row.torch
        assert not any(find_vendor(token) in ("amd", "intel") for token in tokens)
        assert bool(row.aarch64) == (tuple(map(int, row.torch.split("."))) >= (2, 6)), row.torch
        if row.aarch64:
            assert bool(row.aarch64.pypi_cuda) == (tuple(map(int, row.torch.split("."))) >= (2, 11)), row.torch
            assert row.aarch64.pypi_cuda in ("", row.pypi_cuda)


@rows("torch", ["torch==2.0.1+cu118", "torch==2.2.2+cu121", "torch==2.4.1+cu124", "torch==2.5.1", "torch==2.9.1+cu129"])
def test_a_torch_without_a_build_for_aarch64_is_refused(torch: str, tmp_path: Path) -> None:
    found = refusal("roihu-gpu", torch, folder=tmp_path)
    assert found.code in ("torch-build", "torch-unknown")
    assert "aarch64" in found.message or found.code == "torch-unknown"
    assert found.fix


@rows("site", ARM_SITES)
def test_the_build_with_cuda_is_taken(site: str, tmp_path: Path) -> None:
    torch = target_of(site, "torch==2.9.1", folder=tmp_path).environment.torch
    assert torch is not None
    assert torch.token.startswith("cu")
    assert torch.index.endswith(torch.token)


def test_companions_have_no_local_version_before_torch_2_10(tmp_path: Path) -> None:
    old = target_of("roihu-gpu", "torch==2.9.1", "torchvision", "torchaudio", folder=tmp_path)
    assert old.environment.torch_lines == ("torch==2.9.1+cu130", "torchvision==0.24.1", "torchaudio==2.9.1")
    assert "torch-companion" in codes(old)
    new = target_of("roihu-gpu", "torch==2.10.0", "torchvision", folder=tmp_path)
    assert new.environment.torch_lines == ("torch==2.10.0+cu130", "torchvision==0.25.0+cu130")
    assert "torch-companion" not in codes(new)
    x86 = target_of("juwels-booster", "torch==2.9.1", "torchvision", folder=tmp_path)
    assert x86.environment.torch_lines == ("torch==2.9.1+cu126", "torchvision==0.24.1+cu126")


def test_markers_are_those_of_the_sites_processor(tmp_path: Path) -> None:
    lines = ("numpy; platform_machine == 'x86_64'", "scipy; platform_machine == 'aarch64'")
    assert target_of("roihu-gpu", *lines, folder=tmp_path).environment.pip_lines == (
        'scipy ; platform_machine == "aarch64"',
    )
    assert target_of("leonardo", *lines, folder=tmp_path).environment.pip_lines == (
        'numpy ; platform_machine == "x86_64"',
    )


def test_an_unknown_driver_takes_the_oldest_line_and_says_so(tmp_path: Path) -> None:
    target = target_of("vega", "torch==2.9.1", folder=tmp_path)
    assert target.environment.torch is not None
    assert target.environment.torch.token == "cu126"
    assert "site-driver-unknown" in codes(target)
    read = target_of("vega", "torch==2.9.1", folder=tmp_path, driver="580.95.05")
    assert read.environment.torch is not None
    assert read.environment.torch.token == "cu130"
    assert "site-driver-unknown" not in codes(read)
    amd = target_of("setonix", "torch==2.8.0", folder=tmp_path)
    assert amd.environment.torch is not None
    assert amd.environment.torch.token == "rocm6.3"


def test_an_unknown_driver_takes_no_image_of_a_newer_cuda(tmp_path: Path) -> None:
    assert not target_of("leonardo", "torch==2.9.0", folder=tmp_path).base.cuda
    named = target_of("leonardo", "torch", folder=tmp_path, base="docker://nvcr.io/nvidia/pytorch:25.10-py3")
    assert named.base.cuda == "13.0.2"


def test_cuda_compat_counts_in_an_image_that_is_named(tmp_path: Path) -> None:
    target = target_of("isambard-ai", "torch==2.11.0", folder=tmp_path, base=COMPAT_IMAGE)
    assert target.environment.torch is not None
    assert target.environment.torch.token == "cu130"
    assert "cuda-compat" in codes(target)
    (script,) = [file.text for file in compile_plan(target).files if file.path == "image/env.sh"]
    assert 'LD_LIBRARY_PATH="/usr/local/cuda/compat/lib:/usr/local/cuda/compat' in script
    own = target_of("isambard-ai", "torch==2.11.0", folder=tmp_path)
    assert own.environment.torch is not None
    assert own.environment.torch.token == "cu126"  # not by itself
    other = target_of("mn5", "torch==2.11.0", folder=tmp_path, base=COMPAT_IMAGE)
    assert other.environment.torch is not None
    assert other.environment.torch.token.startswith("cu12")  # nor where the site does not say so


@rows(("backend", "emulated", "refused"), [("layers", True, True), ("docker", False, True), ("docker", True, False)])
def test_an_engine_builds_for_its_own_processor(
    backend: str, emulated: bool, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="laptop", machine="aarch64"))
    root = tmp_path / "root"
    handlers = root / "proc/sys/fs/binfmt_misc"
    handlers.mkdir(parents=True)
    if emulated:
        (handlers / "qemu-x86_64").touch()
    plan, site = plan_of("vega", backend, tmp_path), load_site("vega")
    if not refused:
        check_engines(site, plan, here=plan.steps, plan_line="", root=root)
        return
    with pytest.raises(ToolError) as caught:
        check_engines(site, plan, here=plan.steps, plan_line="recipe plan vega x.txt", root=root)
    (finding,) = caught.value.findings
    assert finding.code == "other-processor"
    assert "recipe plan vega x.txt" in finding.fix
    check_engines(site, plan, here=(), plan_line="", root=root)  # all of it in jobs


def test_docker_is_told_the_processor(tmp_path: Path) -> None:
    (script,) = [file.text for file in plan_of("vega", "docker", tmp_path).files if file.path == "1-build-image.sh"]
    assert "docker build \\\n  --platform=linux/amd64" in script


def test_the_fast_networks_name_of_the_first_host(tmp_path: Path) -> None:
    (job,) = [file.text for file in plan_of("juwels-booster", "layers", tmp_path).files if file.path == "run/job.sh"]
    assert "MASTER_ADDR=${hosts%%$'\\n'*}i\n" in job


@rows("line", ["faiss-gpu-cu12==1.14.1.post1", "vllm==0.9.2", "xformers==0.0.33"])
def test_a_package_without_a_wheel_for_aarch64_gives_a_warning(line: str, tmp_path: Path) -> None:
    def told(site: str) -> list[str]:
        target = target_of(site, line, "bitsandbytes==0.50.2", folder=tmp_path)
        return [one.message for one in target.findings if one.code == "default-wheel"]

    assert told("roihu-gpu") == [
        f"'{line}' has no wheel for aarch64, the processors of 'roihu-gpu', on the default index"
    ]
    assert told("vega") == []
