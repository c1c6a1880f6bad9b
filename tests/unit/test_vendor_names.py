"""The vendor that the name of a package says: on each site what is for others, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.model.finding import BuilderError, Finding
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.pipeline.resolution import resolve_recipe

SITES = {"local": "cpu", "mn5": "nvidia", "lumi-g": "amd", "dawn": "intel"}
CODES = ("package-vendor", "package-counterpart", "default-wheel")

NAMES = {
    "nvidia": """
        cuda-core cuda-python cudf-cu12 cugraph-cu12 cuml-cu11 cuml-cu12 cupy-cuda11x cupy-cuda12x cuspatial-cu12
        cuvs-cu12 cuxfilter-cu12 dask-cuda dask-cudf-cu12 dgl-cu118 faiss-gpu faiss-gpu-cu12 jax-cuda12-pjrt
        jax-cuda12-plugin libcudf-cu12 libraft-cu12 mxnet-cu112 numba-cuda nvidia-cudnn-frontend nvidia-dali-cuda120
        nvidia-modelopt nvidia-nvimgcodec-cu12 nvidia-pytriton nx-cugraph-cu12 onnxruntime-genai-cuda onnxruntime-gpu
        paddlepaddle-gpu pycuda pylibcudf-cu12 pylibraft-cu12 raft-dask-cu12 rmm-cu12 spconv-cu120 tensorflow-gpu
        tensorflow-gpu-estimator tensorrt tensorrt-cu12 tf-nightly-gpu ucx-py-cu12 ucxx-cu12 xgboost-cu12
    """,
    "amd": """
        amd-aiter amd-cupy amd-quark cupy-rocm-4-3 cupy-rocm-5-0 cupy-rocm-7-0 jax-rocm60-pjrt jax-rocm60-plugin
        jax-rocm7-pjrt jax-rocm7-plugin onnxruntime-migraphx onnxruntime-rocm pytorch-triton-rocm rocm rocm-sdk-core
        rocm-sdk-devel rocm-sdk-libraries-gfx942 tensorflow-rocm triton-rocm
    """,
    "intel": """
        intel-extension-for-deepspeed intel-extension-for-openxla intel-extension-for-tensorflow paddlepaddle-xpu
        pytorch-triton-xpu triton-xpu
    """,
    "": """
        jax-metal onnxruntime-directml onnxruntime-genai-directml onnxruntime-silicon tensorflow-directml
        tensorflow-directml-plugin tensorflow-macos tensorflow-metal torch-directml
    """,
}
HARMLESS = """
    amdsmi bitsandbytes boost camelot-py catboost cu2qu cubed cudatext curio customtkinter cut-cross-entropy cutadapt
    cython daal4py dask dpctl dpnp expandvars fastapi gensim gpaw gpflow gpiozero gprofiler-official gpustat gputil gpy
    gpyopt gpytorch hiplot huggingface-hub icc-rt intel-cmplr-lib-rt intel-cmplr-lib-ur intel-extension-for-transformers
    intel-numpy intel-openmp intel-scipy intel-tensorflow intelhex intelmq jaxopt jaxtyping lightgbm llvmlite metpy
    migrate mkl mkl-fft mkl-service mpi4py numba numpy nvchecker nvdlib nvgpu nvidia-htop nvidia-ml-py nvidia-ml-py3
    nvidia-pyindex nvidia-sphinx-theme nvitop onnx onnxruntime-extensions onnxruntime-tools openvino openvino-dev
    openvino-telemetry optimum pandas pillow procmon-parser py3nvml pyamdgpuinfo pynvml pyrocko pyzmq rocketry
    rockhound rocksdict rocm-docs-core rocrate scikit-learn-intelex scipy siliconcompiler tbb tbb4py
    tensorflow-cpu tensorflow-datasets tensorflow-hub tensorflow-probability tritonclient umap-learn xarray xpinyin
    xpublish
"""


def find(folder: Path, site: str, names: list[str]) -> dict[str, list[Finding]]:
    """The findings on vendors by the name."""
    path = folder / "requirements.txt"
    path.write_text("".join(f"{name}\n" for name in names))
    try:
        findings = resolve_recipe(load_site(site), load_recipe(path), context=Context()).findings
    except BuilderError as error:
        findings = error.findings
    found: dict[str, list[Finding]] = {}
    for one in findings:
        if one.code in CODES and one.at and one.at.line:
            found.setdefault(names[one.at.line - 1], []).append(one)
    return found


@pytest.mark.parametrize("site", SITES)
def test_names_for_another_vendor_are_found(tmp_path: Path, site: str) -> None:
    names = {name: vendor for vendor, words in NAMES.items() for name in words.split()}
    assert len(names) >= 70
    found = find(tmp_path, site, list(names))
    expected = {name for name, vendor in names.items() if vendor != SITES[site]}
    wrong = {
        name
        for name in found
        if any(one.code != "default-wheel" or "is replaced by" in one.message for one in found[name])
    }
    assert sorted(expected - wrong) == []
    assert sorted(wrong - expected) == []
    if site == "local":
        others = [one for rows in found.values() for one in rows if one.code != "default-wheel"]
        assert {one.level for one in others} <= {"warning", "note"}


@pytest.mark.parametrize("site", SITES)
def test_names_that_only_look_like_a_vendors_are_left_alone(tmp_path: Path, site: str) -> None:
    names = HARMLESS.split()
    assert len(set(names)) >= 80
    found = find(tmp_path, site, names)
    vendors = [name for name, rows in found.items() if any(one.code == "package-vendor" for one in rows)]
    assert vendors == []


@pytest.mark.parametrize("name", ["amd-x", "rocm-x", "x-rocm", "x-rocm-5-0", "x-gfx942", "x-migraphx"])
def test_a_vendor_is_known_at_any_place_of_a_name(tmp_path: Path, name: str) -> None:
    for site in ("local", "mn5", "dawn"):
        (found,) = find(tmp_path, site, [name])[name]
        assert "is for AMD GPUs (by its name, not looked up)" in found.message
    assert find(tmp_path, "lumi-g", [name]) == {}


def test_a_build_for_cpus_is_known_by_its_extra(tmp_path: Path) -> None:
    assert find(tmp_path, "local", ["intel-extension-for-tensorflow[cpu]"]) == {}
    assert find(tmp_path, "lumi-g", ["intel-extension-for-tensorflow"]) != {}


def test_what_no_site_has_is_named(tmp_path: Path) -> None:
    for site in SITES:
        (found,) = find(tmp_path, site, ["torch-directml"])["torch-directml"]
        assert "is for DirectML, which only Windows has (by its name, not looked up)" in found.message
