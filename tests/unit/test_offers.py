"""What the tables offer for a vendor is accepted on its sites, in the lines that the fix names."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rows import rows

from builder.model.finding import Finding, UnsupportedError
from builder.model.target import Context
from builder.parse.gpu_tables import load_package_table
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.checks.vendors import suggest_counterpart
from builder.resolve.resolve import resolve

ROCM_7 = next(image.reference for image in load_site("lumi-g").base_images if image.rocm == "7.0")
ROCM_6_2 = next(image.reference for image in load_site("lumi-g").base_images if image.rocm == "6.2.4")
TENSORFLOW = "--find-links https://repo.radeon.com/rocm/manylinux/rocm-rel"
VLLM = "--extra-index-url https://wheels.vllm.ai/rocm/0.14.1/rocm700"
# a phrase of an offer -> base image ("" for the site's) and the lines; none: it names an image or a build from source
LINES: dict[str, tuple[str, tuple[str, ...]]] = {
    "index cuNNN": ("", ("torch==2.8.0", "torchvision", "torchaudio")),
    "index rocmX.Y": ("", ("torch==2.8.0", "torchvision", "torchaudio")),
    "index xpu": ("", ("torch==2.8.0", "torchvision", "torchaudio")),
    "vllm==VERSION": ("", (VLLM, "vllm==0.14.1+rocm700")),
    "vllm of PyPI": ("", ("vllm==0.10.2",)),
    "the image vllm": ("", ()),
    "triton-rocm": ("", ("torch==2.8.0", "pytorch-triton-rocm")),
    "triton-xpu": ("", ("torch==2.8.0", "pytorch-triton-xpu")),
    "triton of PyPI": ("", ("triton==3.4.0",)),
    "jax[rocm]==0.5.0": ("", ("jax[rocm]==0.5.0",)),
    "jax[cuda12]": ("", ("jax[cuda12]==0.6.2",)),
    "rocm-rel-6.2": (ROCM_6_2, (f"{TENSORFLOW}-6.2/", "tensorflow-rocm==2.16.1")),
    "rocm-rel-6.4": ("", (f"{TENSORFLOW}-6.4/", "tensorflow-rocm==2.18.1")),
    "tensorflow[and-cuda]": ("", ("tensorflow[and-cuda]==2.19.0",)),
    "with tensorflow==2.15.0": ("", ("tensorflow==2.15.0", "intel-extension-for-tensorflow[xpu]==2.15.0.2")),
    "amd-cupy": ("", ("--extra-index-url https://pypi.amd.com/simple", "amd-cupy==13.5.1")),
    "cupy-rocm-7-0": (ROCM_7, ("cupy-rocm-7-0==14.1.0",)),
    "cupy-cuda11x": ("", ("cupy-cuda11x==13.6.0", "torch==2.8.0")),
    "cupy-cuda12x": ("", ("cupy-cuda12x[ctk]==14.1.0",)),
    "onnxruntime-rocm": ("", ("onnxruntime-rocm==1.22.2.post1",)),
    "onnxruntime-migraphx": ("", ("onnxruntime-migraphx==1.23.0",)),
    "onnxruntime-gpu": ("", ("onnxruntime-gpu[cuda,cudnn]==1.22.0",)),
    "data.dgl.ai": ("", ("--find-links https://data.dgl.ai/wheels/torch-2.4/cu124/repo.html", "torch==2.4.0", "dgl")),
    "onnxruntime-openvino": ("", ("onnxruntime-openvino==1.22.0",)),
    "flash-attn": ("", ()),
    "FLASH_ATTENTION": ("", ()),
    "GitHub wheel": ("", ()),
    "bitsandbytes of": ("", ("bitsandbytes==0.50.2",)),
    "by hipcc": ("", ()),
    "by nvcc": ("", ()),
    "by icpx": ("", ()),
    "pytorch-extension.intel.com": ("", ()),
    "xgboost of": ("", ("xgboost==3.0.0",)),
    "sgl-kernel==": ("", ("sgl-kernel==0.3.0+rocm700",)),
    "sgl-kernel of": ("", ("sgl-kernel==0.3.0",)),
    "or faiss-gpu-cu12": ("", ("faiss-gpu-cu12==1.14.1.post1",)),
    "faiss-gpu of": ("", ("faiss-gpu==1.14.3",)),
    "faiss-gpu-cu12 of": ("", ("faiss-gpu-cu12==1.14.1.post1",)),
}


def errors(
    folder: Path, site: str, *lines: str, conda: str = "python=3.12", base: str = "", driver: str = ""
) -> list[Finding]:
    path = folder / "environment.yml"
    pip = "".join(f"    - '{line}'\n" for line in lines)
    wanted = "".join(f"  - {name}\n" for name in conda.split())
    path.write_text(
        f"name: demo\nchannels: [conda-forge]\ndependencies:\n{wanted}" + (f"  - pip:\n{pip}" if pip else "")
    )
    try:
        found = resolve(
            load_recipe(path, shown="demo"), load_site(site), context=Context(base=base, driver=driver)
        ).findings
    except UnsupportedError as error:
        found = error.findings
    return [finding for finding in found if finding.level == "error"]


@rows("site", ["lumi-g", "frontier", "mn5", "dawn"])
def test_the_lines_of_an_offer_are_accepted(tmp_path: Path, site: str) -> None:
    refused, unknown = list[str](), list[str]()
    for row in load_package_table().packages:
        fix = suggest_counterpart(row.name, site=load_site(site))
        if not fix.startswith("for "):
            continue
        named = [lines for phrase, lines in LINES.items() if phrase in fix]
        unknown += [] if named else [fix]
        for base, lines in named:
            if base and site != "lumi-g":
                continue
            python = "python=3.11" if "Python 3.9 to 3.11" in fix else "python=3.12"
            found = errors(tmp_path, site, *lines, conda=python, base=base) if lines else []
            refused += [f"{row.name}: {fix}: {lines}: {one.message}" for one in found]
    assert not unknown
    assert not refused


def test_no_offer_is_for_a_cuda_that_the_driver_does_not_run() -> None:
    assert "cuda13" not in suggest_counterpart("cupy", site=load_site("mn5"))
    assert "cuda13" not in suggest_counterpart("jax", site=load_site("mn5"))


@rows(
    ("site", "line", "base", "fix"),
    [
        ("lumi-g", "cupy-rocm-7-0==14.1.0", "", f"use the base image {ROCM_7}"),
        ("lumi-g", "jax[rocm7-local]==0.10.2", "", f"use the base image {ROCM_7}"),
        ("lumi-g", "cupy-rocm-7-0==14.1.0", ROCM_7, ""),
        ("lumi-g", "cupy-rocm-5-0==13.3.0", "", "remove it: 'lumi-g' serves ROCm 6.1"),
    ],
)
def test_a_package_for_another_rocm_is_refused(tmp_path: Path, site: str, line: str, base: str, fix: str) -> None:
    found = [finding for finding in errors(tmp_path, site, line, base=base) if finding.code == "package-cuda"]
    assert [fix in finding.fix for finding in found] == ([True] if fix else [])


@rows(
    ("conda", "fix"),
    [
        ("cuda-version=13.0", "write cuda-version=12.2"),
        ("cuda-version>=13", "write cuda-version=12.2"),
        ("cuda-version=12.2", ""),
        ("cuda-version<13", ""),
    ],
)
def test_a_cuda_of_conda_that_the_driver_does_not_run(tmp_path: Path, conda: str, fix: str) -> None:
    found = errors(tmp_path, "mn5", conda=f"python=3.12 numpy=2.2 {conda}", driver="535.86.10")
    assert [fix in finding.fix for finding in found] == ([True] if fix else [])


@pytest.mark.parametrize(("build", "told"), [("cuda120*", "remove the build string"), ("cuda126*", "")])
def test_a_build_string_of_another_cuda_is_named(tmp_path: Path, build: str, told: str) -> None:
    path = tmp_path / "environment.yml"
    path.write_text(f"name: demo\ndependencies: [python=3.12, 'pytorch=2.8.0={build}', libpng]\n")
    found = resolve(load_recipe(path, shown="demo"), load_site("mn5"), context=Context()).findings
    fixes = [finding.fix for finding in found if finding.code == "conda-build"]
    assert [told in fix for fix in fixes] == ([True] if told else [])
