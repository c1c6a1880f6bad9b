"""The checks one by one: what each says and where, and that ordinary recipes are left in peace."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.inputs import make_context
from builder.cli.output import format_finding
from builder.compile.backends.apptainer import check_conda_client
from builder.compile.compile import compile_plan
from builder.model.finding import BuilderError, ConfigError, Finding, UnsupportedError, select_errors
from builder.model.lock import BaseLock, Lock, PipFile
from builder.model.recipe import Recipe
from builder.model.site import Site
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import find_site_files, load_site
from builder.resolve.checks.builds import check_index_login
from builder.resolve.driver import find_kernel_driver
from builder.resolve.locked import make_lock_request
from builder.resolve.resolve import resolve


class Bench:
    """Writes a recipe and says what becomes of it on a site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def recipe(self, *lines: str, conda: tuple[str, ...] = (), more: str = "", **files: str) -> Path:
        for name, text in files.items():
            (self.folder / f"{name}.txt").write_text(text)
        if not conda and not more:
            path = self.folder / "requirements.txt"
            path.write_text("".join(f"{line}\n" for line in lines))
            return path
        path = self.folder / "environment.yml"
        head = "name: demo\nchannels: [conda-forge]\ndependencies:\n"
        body = [f"  - {text}\n" for text in conda or ("python=3.12",)]
        body += ["  - pip:\n", *[f"    - {line}\n" for line in lines]] if lines else []
        path.write_text(head + "".join(body) + more)
        return path

    def target(self, site: str, *lines: str, conda: tuple[str, ...] = (), more: str = "", **files: str) -> Target:
        return resolve(
            load_recipe(self.recipe(*lines, conda=conda, more=more, **files)), load_site(site), context=Context()
        )

    def found(
        self, site: str, *lines: str, conda: tuple[str, ...] = (), more: str = "", **context: object
    ) -> tuple[Finding, ...]:
        recipe = load_recipe(self.recipe(*lines, conda=conda, more=more), shown="demo")
        try:
            return compile_plan(resolve(recipe, load_site(site), context=Context(**context))).findings  # type: ignore[arg-type]
        except BuilderError as error:
            return error.findings


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def said(found: tuple[Finding, ...], code: str) -> list[str]:
    return ["\n".join(format_finding(finding)) for finding in found if finding.code == code]


def codes(found: tuple[Finding, ...], *levels: str) -> set[str]:
    return {finding.code for finding in found if finding.level in (levels or ("error", "warning"))}


def family(target: Target) -> tuple[str, ...]:
    return target.environment.torch_lines


# --- ordinary recipes are left in peace -------------------------------------------------------------------------------

ORDINARY: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "numbers": ((), ("python=3.12", "numpy=2.2", "scipy=1.15", "pandas=2.2")),
    "plots": ((), ("python=3.11", "matplotlib=3.10", "cartopy=0.24", "ffmpeg=7")),
    "torch": (("torch==2.8.0", "torchvision==0.23.0"), ("python=3.12",)),
    "torch-any-python": (("torch==2.8.0",), ("python",)),
    "training": (("torch==2.8.0", "accelerate==1.10.0", "transformers==4.55.0", "datasets==4.0.0"), ()),
    "lightning": (("torch>=2.6,<2.9", "lightning==2.5.2", "torchmetrics==1.8.0"), ()),
    "graph": (("torch==2.8.0", "torch-geometric==2.6.1", "nvidia-ml-py==12.560.30"), ()),
    "cpu-words": (("cudatools-not==1.0", "curated-transformers==2.0", "cu-cal==1.1", "xpublish==0.4"), ()),
    "freeze": (("torch==2.8.0", "nvidia-cublas-cu12==12.8.4.1", "nvidia-nccl-cu12==2.27.3", "triton==3.4.0"), ()),
    "markers": (("torch==2.8.0", "onnxruntime-gpu==1.22.0; sys_platform == 'win32'", "pywin32; os_name == 'nt'"), ()),
}
# What the site's own state says about any recipe: the old driver of MareNostrum 5, the inferred one of Frontier, those
# that are unknown, and torchvision for aarch64.
UNKNOWN_DRIVER = {"site-driver-unknown", "conda-cuda"}
INHERENT = {
    "mn5": {"cuda-minor", "site-unsure"},
    "frontier": {"site-unsure"},
    "isambard-ai": {"cuda-minor", "network-plugin", "torch-companion"},
    "roihu-gpu": {"torch-companion"},
    "jupiter": {*UNKNOWN_DRIVER, "torch-companion"},
    "setonix": {"site-driver-unknown", "site-unsure", "table-unsure"},
    **dict.fromkeys(("juwels-booster", "karolina", "leonardo", "snellius", "vega"), UNKNOWN_DRIVER),
}


@rows("site", list(find_site_files()))
@rows("name", ORDINARY)
def test_an_ordinary_recipe_is_not_warned_of(name: str, site: str, bench: Bench) -> None:
    lines, conda = ORDINARY[name]
    assert codes(bench.found(site, *lines, conda=conda)) <= INHERENT.get(site, set())


@rows(
    "line", ["jax[cuda12]==0.6.2", "onnxruntime-gpu[cuda,cudnn]==1.22.0", "cupy-cuda12x[ctk]==14.1.0", "vllm==0.10.2"]
)
def test_a_vendors_own_packages_are_at_home(line: str, bench: Bench) -> None:
    assert codes(bench.found("mn5", line, conda=("python=3.12",))) <= INHERENT["mn5"]


@rows("line", ["jax[rocm]==0.5.0", "onnxruntime-rocm==1.22.2", "bitsandbytes==0.50.2"])
def test_amds_packages_are_at_home(line: str, bench: Bench) -> None:
    assert codes(bench.found("lumi-g", line)) == set()


def test_intels_extension_of_its_own_index_is_at_home(bench: Bench) -> None:
    lines = (
        "--extra-index-url https://pytorch-extension.intel.com/release-whl/stable/xpu/us/",
        "torch==2.8.0",
        "intel-extension-for-pytorch==2.8.10+xpu",
    )
    assert codes(bench.found("dawn", *lines, conda=("python=3.11",))) == {"package-retired"}


def test_one_build_of_onnx_runtime_is_enough(bench: Bench) -> None:
    lines = ("onnxruntime-openvino==1.22.0", "onnxruntime-gpu==1.22.0")
    assert "onnxruntime and onnxruntime-openvino install" in said(bench.found("local", *lines), "one-module")[0]
    assert codes(bench.found("local", "onnxruntime-openvino==1.22.0")) == set()
    # Written twice it is one package.
    assert codes(bench.found("local", "onnxruntime==1.22.0", "onnxruntime-gpu==1.22.0")) == set()


@rows(("glibc", "fits"), [("2.31", False), ("2.34", True), ("2.39", True), ("unknown", True)])
def test_a_package_that_needs_a_newer_c_library(glibc: str, fits: bool, bench: Bench) -> None:
    image = f"base_images: [{{reference: 'docker://example.org/x:1', rocm: 7.1.0, glibc: '{glibc}', source: [olcf]}}]"
    (bench.folder / "mine.yaml").write_text(f"name: mine\nextends: frontier\n{image}\n")
    found = bench.found(str(bench.folder / "mine.yaml"), "onnxruntime-migraphx==1.24.4", conda=("python=3.12",))
    needs = "error: the wheels of 'onnxruntime-migraphx==1.24.4' need glibc 2.34, the base image"
    assert [text.startswith(needs) for text in said(found, "glibc")] == ([] if fits else [True])


@rows(
    ("site", "line", "compiled", "fix"),
    [
        ("frontier", "flash-attn==2.7.4", ("flash-attn",), "no action needed if the base image has a compiler"),
        ("mn5", "deepspeed==0.17.0", ("deepspeed",), "no action needed to install it"),
        (
            "frontier",
            "flash-attn==2.7.4 --hash=sha256:" + "0" * 64,
            (),
            "install it after the others, in container.run",
        ),
        ("frontier", "numpy==2.2.0", (), ""),
    ],
)
def test_what_is_compiled_against_torch(
    site: str, line: str, compiled: tuple[str, ...], fix: str, bench: Bench
) -> None:
    digest = "--hash=sha256:"
    lines = (f"torch==2.6.0 {digest}{'1' * 64}" if digest in line else "torch==2.6.0", line)
    assert bench.target(site, *lines).environment.compiled == compiled
    assert [fix in text for text in said(bench.found(site, *lines), "build-needs")] == ([True] if fix else [])


# --- packages of another vendor ---------------------------------------------------------------------------------------

ROCM_6_2 = next(image.reference for image in load_site("lumi-g").base_images if image.rocm == "6.2.4")
FOREIGN = [
    ("lumi-g", "onnxruntime-gpu==1.22.0", "NVIDIA", "AMD GPUs", "for AMD there is: onnxruntime-rocm==1.22.2.post3, "
     "or onnxruntime-migraphx>=1.23 (glibc 2.34)"),
    ("dawn", "onnxruntime-gpu==1.22.0", "NVIDIA", "Intel GPUs", "for Intel there is: onnxruntime-openvino"),
    ("lumi-g", "tensorflow[and-cuda]==2.19.0", "NVIDIA", "AMD GPUs", "for AMD there is: "
     "tensorflow-rocm==2.18.1 below a line of its own: --find-links "
     "https://repo.radeon.com/rocm/manylinux/rocm-rel-6.4/ (ROCm 6.4 in the image), "
     "or tensorflow-rocm==2.16.1 below a line of its own: --find-links "
     f"https://repo.radeon.com/rocm/manylinux/rocm-rel-6.2/ (ROCm 6.2: the base image {ROCM_6_2})"),
    ("mn5", "tensorflow-rocm==2.14.0.600", "AMD", "NVIDIA GPUs",
     "for NVIDIA there is: tensorflow[and-cuda], 2.14 or newer"),
    ("dawn", "nvidia-dali-cuda120==1.50.0", "NVIDIA", "Intel GPUs", "remove it: no build for Intel is known"),
]  # fmt: skip


@rows(("site", "line", "made_for", "has", "fix"), FOREIGN)
def test_a_package_of_another_vendor(site: str, line: str, made_for: str, has: str, fix: str, bench: Bench) -> None:
    found = bench.found(site, "numpy==2.2.0", line)
    message = f"error: '{line}' works on {made_for} devices only, '{site}' has {has}\n  at:  demo:2\n  fix: {fix}"
    assert said(found, "package-vendor") == [message]


def test_on_cpus_another_vendors_package_is_a_warning(bench: Bench) -> None:
    found = bench.found("local", "cupy-cuda12x==13.6.0")
    assert said(found, "package-vendor")[0].startswith("warning: 'cupy-cuda12x==13.6.0' works on NVIDIA devices only, ")
    assert codes(bench.found("local", "intel-extension-for-pytorch==2.8.0")) == {"package-retired"}


DEFAULT_WHEELS = [
    ("lumi-g", "jax==0.6.2", "CPU"),
    ("mn5", "jax==0.6.2", "CPU"),
    ("mn5", "tensorflow==2.19.0", "CPU"),
    ("dawn", "onnxruntime==1.22.0", "CPU"),
    ("frontier", "xformers==0.0.32.post2", "NVIDIA"),
    ("dawn", "intel-extension-for-pytorch==2.8.0", "CPU"),
]


@rows(("site", "line", "built"), DEFAULT_WHEELS)
def test_the_default_wheel_would_lose_the_gpu(site: str, line: str, built: str, bench: Bench) -> None:
    found = said(bench.found(site, line, conda=("python=3.12",)), "default-wheel")
    assert len(found) == 1
    message = f"error: '{line}' from the default index is built for {built}: on '{site}' it would run without the GPU"
    assert found[0].startswith(f"{message}\n  at:  demo:6\n  fix: ")


def test_cpu_may_be_meant(bench: Bench) -> None:
    more = "container:\n  gpu: [amd, cpu]\n"
    assert codes(bench.found("lumi-g", "jax==0.6.2", more=more)) == set()
    assert codes(bench.found("lumi-g", conda=("python=3.12", "jax=0.6.2", "jaxlib=0.6.2"), more=more)) == set()


def test_a_plugin_beside_it_serves_jax(bench: Bench) -> None:
    assert codes(bench.found("mn5", "jax==0.6.2", "jax-cuda12-plugin==0.6.2", conda=("python=3.12",)), "error") == set()


def test_a_release_before_the_first_for_the_vendor(bench: Bench) -> None:
    (text,) = said(bench.found("lumi-g", "bitsandbytes==0.45.0"), "default-wheel")
    assert text == (
        "error: 'bitsandbytes==0.45.0' has no build for AMD GPUs: the first one known is 0.49.0\n"
        "  at:  demo:1\n  fix: use bitsandbytes>=0.49.0"
    )


CUDA_NAMES = [
    ("cupy-cuda13x[ctk]==14.1.0", "13"),
    ("jax[cuda13]==0.7.2", "13"),
    ("nvidia-dali-cuda130==1.52.0", "13"),
]


@pytest.mark.parametrize(("line", "major"), CUDA_NAMES)
def test_a_package_for_a_newer_cuda_than_the_driver(line: str, major: str, bench: Bench) -> None:
    (text,) = said(bench.found("mn5", line, conda=("python=3.12",), driver="535.86.10"), "package-cuda")
    assert text == (
        f"error: '{line}' is built for CUDA {major}, the driver of 'mn5' is 535.86.10\n"
        f"  at:  demo:6\n  fix: use a build for CUDA {int(major) - 1}"
    )
    newer = bench.found("mn5", line, conda=("python=3.12",), driver="580.65.06")
    assert said(newer, "package-cuda") == []


# --- conda ------------------------------------------------------------------------------------------------------------

CONDA = [
    ("lumi-g", "cupy=13.4", "built for NVIDIA GPUs: on 'lumi-g' it would not work"),
    ("dawn", "jax=0.6", "built for NVIDIA GPUs and for CPUs: on 'dawn' it would run without the GPU"),
    ("frontier", "tensorflow-gpu=2.18", None),
    ("lumi-g", "tensorflow=2.18", "built for NVIDIA GPUs and for CPUs: on 'lumi-g' it would run without the GPU"),
]


@rows(("site", "spec", "ends"), CONDA)
def test_conda_has_no_build_for_the_gpus(site: str, spec: str, ends: str | None, bench: Bench) -> None:
    (text,) = said(bench.found(site, conda=("python=3.12", spec)), "conda-default")
    assert text.startswith(f"error: '{spec}' from conda is {ends or 'built for NVIDIA GPUs'}")
    assert re.search(r"\n  at:  demo:5\n  fix: (?:for|remove it: no build for) ", text)


def test_conda_builds_for_nvidia_are_at_home_there(bench: Bench) -> None:
    assert codes(bench.found("mn5", conda=("python=3.12", "cupy=13.4", "jax=0.6.2=cuda126py312_0"))) == set()


def test_a_cuda_build_that_would_be_installed_is_an_error(bench: Bench) -> None:
    (text,) = said(bench.found("lumi-g", conda=("python=3.12", "openmm=8.2=py312_cuda12_0")), "conda-build")
    assert text == (
        "error: 'openmm=8.2=py312_cuda12_0' is a CUDA build, 'lumi-g' has AMD GPUs\n"
        "  at:  demo:5\n  fix: remove the build string"
    )


def test_what_is_left_out_or_replaced_may_have_a_cuda_build(bench: Bench) -> None:
    conda = ("python=3.12", "cudnn=8.9=cuda12_0", "torchvision=0.21.0=cuda126_py312_0", "libmagma=2.9=cuda126_0")
    target = bench.target("lumi-g", "torch==2.6.0", conda=conda)
    assert target.environment.conda == ("python=3.12", "pip")
    assert family(target) == ("torch==2.6.0+rocm6.2.4", "torchvision==0.21.0+rocm6.2.4")
    assert select_errors(target.findings) == ()


# --- which torch ------------------------------------------------------------------------------------------------------

CHOICES = [
    (("torchvision==0.21.0",), "lumi-g", ("torch==2.6.0+rocm6.2.4", "torchvision==0.21.0+rocm6.2.4")),
    (("torch", "torchvision==0.21.0"), "lumi-g", ("torch==2.6.0+rocm6.2.4", "torchvision==0.21.0+rocm6.2.4")),
    (("torch", "torchaudio"), "frontier", ("torch==2.13.0+rocm7.1", "torchaudio==2.11.0+rocm7.1")),
    (("vllm==0.10.2",), "mn5", ("torch==2.8.0+cu129",)),
    (("torch<2.10", "xformers"), "mn5", ("torch==2.9.1+cu128",)),
    (("torch==2.6.0+rocm6.1",), "lumi-g", ("torch==2.6.0+rocm6.1",)),
    (("torch==2.6.0", "torchvision==0.21.0+rocm6.1"), "lumi-g",
     ("torch==2.6.0+rocm6.1", "torchvision==0.21.0+rocm6.1")),
    (("torch[opt-einsum]==2.8.0",), "lumi-g", ("torch[opt-einsum]==2.8.0+rocm6.4",)),
    (("torch==2.8.0; sys_platform == 'linux'", "torch==2.2.2; sys_platform == 'darwin'"), "local",
     ("torch==2.8.0+cpu",)),
    (("torch @ https://download.pytorch.org/whl/rocm6.3/torch-2.8.0%2Brocm6.3-cp312-cp312-linux_x86_64.whl",),
     "lumi-g", ("torch==2.8.0+rocm6.3",)),
    (("torch @ https://example.org/torch-2.7.1-cp312-cp312-manylinux_2_28_x86_64.whl",), "local",
     ("torch==2.7.1+cpu",)),
]  # fmt: skip


@rows(("lines", "site", "became"), CHOICES)
def test_the_release_suits_everything_that_is_asked(
    lines: tuple[str, ...], site: str, became: tuple[str, ...], bench: Bench
) -> None:
    target = bench.target(site, *lines, conda=("python=3.12",), more="container:\n  python: env\n")
    assert family(target) == became
    assert not [line for line in target.environment.pip_lines if "torch" in line]


@pytest.mark.parametrize("first", ["torch", "accelerate==1.10.0"])
def test_constraints_on_torch_count(first: str, bench: Bench) -> None:
    target = bench.target("local", "-c limits.txt", first, limits="torch==2.4.1\nnumpy<3\n")
    assert family(target) == ("torch==2.4.1+cpu",)
    assert target.environment.constraints == ("torch==2.4.1+cpu", "numpy<3")


def test_requests_of_conda_and_pip_hold_together(bench: Bench) -> None:
    target = bench.target("lumi-g", "torch>=2.5", conda=("python=3.12", "pytorch<2.7"))
    assert family(target) == ("torch==2.6.0+rocm6.2.4",)
    (text,) = said(bench.found("lumi-g", "torch==2.8.0", conda=("python=3.12", "pytorch=2.6")), "torch-unknown")
    message = "'torch==2.8.0' contradicts 'pytorch=2.6', at demo:5: no version satisfies both"
    assert text.startswith(f"error: {message}\n  at:  demo:7\n")


PYTHON_RANGES = [
    ("python", "torch==2.6.0", "python=3.12"),
    ("python>=3.9", "torch==2.0.1", "python>=3.9,3.11.*"),
    ("python>=3.10,<3.12", "torch==2.8.0", "python>=3.10,<3.12,3.11.*"),
    ("python>=3.13", "torch==2.8.0", "python>=3.13,3.13.*"),
    ("python=3.12.4", "torch==2.8.0", "python=3.12.4"),
    ("python>=3.12.4", "torch==2.8.0", "python>=3.12.4,3.12.*"),
]


@rows(("python", "torch", "became"), PYTHON_RANGES)
def test_a_range_of_pythons_is_held_to_what_torch_has(python: str, torch: str, became: str, bench: Bench) -> None:
    site = "local" if torch == "torch==2.0.1" else "lumi-g"
    conda = (python, "ffmpeg") if site == "local" else (python,)
    assert bench.target(site, torch, conda=conda).environment.conda[0] == became


def test_a_python_that_torch_has_not_comes_by_conda(bench: Bench) -> None:
    """The base image's Python is 3.12; torch 2.1 ends at 3.11, and the recipe does not say which it wants."""
    target = bench.target("local", "torch==2.1.2")
    assert (target.environment.place, target.environment.python) == ("conda", "3.11")
    assert family(target) == ("torch==2.1.2+cpu",)


def test_a_range_of_pythons_keeps_out_of_an_older_base_image(bench: Bench) -> None:
    target = bench.target("mn5", "torch==2.3.0", conda=("python>=3.11",))
    assert (target.environment.place, target.environment.python) == ("venv", "3.12")
    assert family(target) == ("torch==2.3.0+cu121",)


REFUSED = [
    ("lumi-g", ("torch==2.6.0", "torchvision==0.21.0+cu124"), "torch-vendor"),
    ("lumi-g", ("torch==2.6.0+rocm6.2.4", "torchvision==0.21.0+rocm6.1"), "torch-companion"),
    ("lumi-g", ("torch==2.12.0", "torchaudio"), "torch-build"),
    ("frontier", ("torch==2.12.0", "torchaudio==2.10.0"), "torch-companion"),
    ("lumi-g", ("torch @ git+https://github.com/pytorch/pytorch.git@v2.8.0",), "torch-unclear"),
    ("lumi-g", ("torch==2.6.0+rocm6.2.5",), "torch-unknown"),
    ("lumi-g", ("torch==2.10.0+rocm7.1",), "torch-driver"),
    ("mn5", ("torch==2.6.0", "vllm==0.10.2"), "torch-pin"),
    ("dawn", ("torch==2.7.0", "intel-extension-for-pytorch==2.8.10+xpu"), "torch-pin"),
]


@rows(("site", "lines", "code"), REFUSED)
def test_a_torch_that_cannot_be(site: str, lines: tuple[str, ...], code: str, bench: Bench) -> None:
    assert codes(bench.found(site, *lines, conda=("python=3.12",)), "error") == {code}


@rows("line", ["tensorflow==2.10.0", "tensorflow-gpu==2.10.0"])
def test_older_tensorflow_needs_the_libraries_of_cuda(line: str, bench: Bench) -> None:
    """Its wheels hold device code; the extra that brings the libraries is of 2.14 and newer."""
    slim, cuda = "docker://docker.io/library/python:3.10-slim-bookworm", "docker://docker.io/nvidia/cuda:11.8.0-x"
    found = bench.found("mn5", line, conda=("python=3.10",), base=slim)
    assert not codes(found, "error")
    (text,) = said(found, "package-cuda")
    assert "fix: choose a base image with CUDA (docker://nvcr.io/nvidia/pytorch:" in text
    assert "package-cuda" not in codes(bench.found("mn5", line, conda=("python=3.10",), base=cuda))


@rows(
    ("site", "backend", "fix"),
    [
        ("lumi-g", "", "build with --backend apptainer, which copies and installs it"),
        ("lumi-g", "layers", "build with --backend apptainer, which copies and installs it"),
        ("frontier", "", ""),
        ("mn5", "", ""),
        ("local", "layers", ""),
    ],
)
def test_a_folder_is_copied_only_where_it_can_be_installed(site: str, backend: str, fix: str, bench: Bench) -> None:
    package = bench.folder / "mypackage"
    package.mkdir(exist_ok=True)
    (package / "pyproject.toml").write_text("")
    found = said(bench.found(site, "./mypackage", conda=("python=3.12",), backend=backend), "pip-local")
    assert len(found) == bool(fix)
    assert fix in "".join(found)


@rows(
    ("line", "source", "installed"),
    [
        ("-e .", ".", "/opt/recipe/build/local/0/package"),
        (".[dev]", ".", "/opt/recipe/build/local/0/package[dev]"),
        ("./my_package", "./my_package", "/opt/recipe/build/local/0/my_package"),
    ],
)
def test_a_folder_is_a_copy_in_the_build(line: str, source: str, installed: str, bench: Bench) -> None:
    for folder in (bench.folder, bench.folder / "my_package"):
        folder.mkdir(exist_ok=True)
        (folder / "pyproject.toml").write_text("")
    recipe = load_recipe(bench.recipe(line, "torch==2.8.0"))
    plan = compile_plan(resolve(recipe, load_site("local"), context=Context(backend="docker")))
    files = {file.path: file.text for file in plan.files}
    assert files["image/requirements-own.txt"] == f"{installed}\n"
    assert files["image/constraints.txt"] == "torch==2.8.0+cpu\n"
    assert (source, installed.partition("[")[0].replace("/opt/recipe/build", "image")) in [
        (copy.source, copy.path) for copy in plan.copies
    ]
    assert "install.sh own" in files["Dockerfile"]


@rows("line", ["xformers", "xformers>=0.0.25", "xformers==0.0.27", "vllm<0.9"])
def test_a_torch_that_a_range_may_fit_is_not_refused(line: str, bench: Bench) -> None:
    """xformers 0.0.27 requires torch 2.3.1, and the table has no row for it."""
    assert "torch-pin" not in codes(bench.found("mn5", "torch==2.3.1", line, conda=("python=3.11",)), "error")


def test_the_driver_of_nvidia_is_named(bench: Bench) -> None:
    found = bench.found("mn5", "torch==2.9.1+cu130", conda=("python=3.12",), driver="535.86.10")
    (text,) = said(found, "torch-driver")
    assert text.startswith("error: 'torch==2.9.1+cu130' cannot run on the site 'mn5': its driver is 535.86.10\n")


# --- doubts, hashes, drivers ------------------------------------------------------------------------------------------


@rows(("site", "doubted"), [("dawn", True), ("lumi-g", False), ("local", False), ("mn5", False)])
def test_a_doubt_about_one_vendors_wheels_is_not_told_to_another(site: str, doubted: bool, bench: Bench) -> None:
    more = "container:\n  python: env\n"
    found = said(bench.found(site, "torch==2.5.0", conda=("python=3.12",), more=more), "table-unsure")
    assert len(found) == doubted
    assert not doubted or "xpu index for 2.5.x" in found[0]
    assert not doubted or "torch 2.6.0 has a build that is certain" in found[0]
    assert not said(bench.found(site, "torch==2.6.0", conda=("python=3.12",), more=more), "table-unsure")


def test_hashes_where_all_is_one_call(bench: Bench) -> None:
    lines = [f"{name} --hash=sha256:{'0' * 64}" for name in ("torch==2.8.0", "numpy==2.2.0")]
    (text,) = said(bench.found("lumi-g", *lines), "pip-hashes")
    assert text == (
        "error: cotainr installs in one call of pip, and the file has no hash for this site's torch\n"
        "  at:  demo:1\n  fix: remove the hashes from the file"
    )
    assert said(bench.found("lumi-g", lines[1]), "pip-hashes") == []
    assert said(bench.found("local", *lines), "pip-hashes") == []


def test_pip_needs_no_hash_of_a_line_that_its_marker_skips(bench: Bench) -> None:
    lines = [f"six==1.16.0 --hash=sha256:{'0' * 64}", "iniconfig ; python_version < '3'"]
    assert said(bench.found("local", *lines), "pip-hash") == []
    (text,) = said(bench.found("local", lines[0], "iniconfig ; python_version > '3'"), "pip-hash")
    assert "has no hash; others have one" in text


@rows(
    ("option", "hashed", "noted"),
    [("six", True, 1), ("Six", True, 1), (":all:", True, 1), ("six", False, 0), ("idna", True, 0), (":none:", True, 0)],
)
def test_a_digest_of_what_is_built_from_sources_is_noted(tmp_path: Path, option: str, hashed: bool, noted: int) -> None:
    digest = f" --hash=sha256:{'0' * 64}" if hashed else ""
    (tmp_path / "a.txt").write_text(f"--no-binary {option}\nsix==1.16.0{digest}\n")
    target = resolve(load_recipe(tmp_path / "a.txt"), load_site("local"), context=Context())
    found = [finding for finding in target.findings if finding.code == "pip-hash"]
    assert [(finding.level, finding.at and finding.at.line) for finding in found] == [("note", 2)] * noted


DRIVERS = [
    ("6.3", "6.3"),
    ("30.10", "30.10"),
    ("30.10.1", "30.10"),
    ("6.3.60300-2084815", "6.3"),
    ("6.4.60402", "6.4"),
    ("6.3.6", "6.0"),  # the module's own count: it came with ROCm 6.0
    ("6.16.13", "30.30"),
    ("6.3.4", ""),  # ROCm's number or the module's? nobody can tell
    ("6", ""),
]


@rows(("driver", "kernel"), DRIVERS)
def test_a_driver_of_amds_is_read_with_care(driver: str, kernel: str) -> None:
    assert find_kernel_driver(driver) == kernel


BAD_DRIVERS = [
    ("lumi-g", "6.3.4", "no table says which ROCm the driver '6.3.4' serves"),
    ("lumi-g", "5.1", "no table says which ROCm the driver '5.1' serves"),
    ("mn5", "new", "'new' is not a driver version"),
    ("local", "535.86.10", "the site 'local' has no GPU: it has no driver"),
]


@rows(("site", "driver", "message"), BAD_DRIVERS)
def test_a_driver_that_cannot_be_used(site: str, driver: str, message: str, bench: Bench) -> None:
    (found,) = bench.found(site, "torch==2.8.0", driver=driver)
    assert (found.code, found.message, found.level) == ("driver", message, "error")


def test_a_driver_of_intels_is_noted(bench: Bench) -> None:
    assert "site-driver-unknown" in codes(bench.found("dawn", "torch==2.8.0"), "note")
    found = bench.found("dawn", "torch==2.8.0", driver="1099")
    assert "site-driver-unknown" not in codes(found, "note")


MANY_BUILDS = [("lumi-g", "torchao==0.13.0"), ("dawn", "torchcodec==0.7.0"), ("frontier", "megablocks==0.7.0")]


@pytest.mark.parametrize(("site", "line"), MANY_BUILDS)
def test_one_name_for_the_builds_of_all_vendors(site: str, line: str, bench: Bench) -> None:
    (text,) = said(bench.found(site, "torch==2.8.0", line, conda=("python=3.12",)), "many-builds")
    assert text.startswith(
        f"warning: '{line}' has builds for several vendors under one name; the default index has NVIDIA's\n"
        "  at:  demo:7\n  fix: check that it does what you need on "
    )
    assert text.endswith("GPUs, or remove it")
    assert said(bench.found("mn5", "torch==2.8.0", line, conda=("python=3.12",)), "many-builds") == []


# --- whatever is written, there is an answer --------------------------------------------------------------------------

NAMES = ("torch", "torchvision", "torchaudio", "triton", "xformers", "vllm", "jax", "bitsandbytes", "nvidia-nccl-cu12",
         "torchao", "cupy", "onnxruntime", "intel-extension-for-pytorch", "numpy")  # fmt: skip
SPECIFIERS = ("", "==2.8.0", "==2.6.0+rocm6.2.4", "==2.8.*", ">=2.0,<2.9", "==0.45.0,<1", "===2.6.0", "~=2.6", "<1",
              "==0.21.0+cu124", "==1.0a1", "==2.8.0.post1", "==0.10.2", ">2.15")  # fmt: skip
MARKERS = ("", "", "", "; sys_platform == 'linux'", "; python_version < '3.10'", "; platform_machine == 'aarch64'")
SPECS = ("python", "python>=3.13", "python>=3.9,<3.11", "python=3", "python!=3.12", "pytorch", "pytorch=2.6", "jax",
         "pytorch>=2.5=*cuda*", "torchvision=0.21", "pytorch-cuda=12.4", "cudatoolkit", "numpy=1.26|2.0", "cpuonly",
         "cudnn=8.9=cuda12_0", "conda-forge::scipy=1.15")  # fmt: skip
MODES = ("", "container:\n  python: base\n", "container:\n  python: env\n", "container:\n  gpu: [amd, cpu]\n")


@pytest.mark.property
def test_any_recipe_has_an_answer_on_every_site(bench: Bench) -> None:
    """Refused or resolved, but never an exception, and never a torch beside the one that was chosen."""
    dice = random.Random(20261121)
    sites = [load_site(name) for name in find_site_files()]
    read = 0
    for _ in range(80):
        names = dice.sample(NAMES, dice.randint(1, 4))
        lines = [name + dice.choice(SPECIFIERS) + dice.choice(MARKERS) for name in names]
        conda = tuple(dice.sample(SPECS, dice.randint(1, 3)))
        try:
            recipe = load_recipe(bench.recipe(*[f'"{line}"' for line in lines], conda=conda, more=dice.choice(MODES)))
        except ConfigError:
            continue  # two requests that contradict each other are a fault of the file
        read += 1
        for site in sites:
            answer = answered(recipe, site)
            if isinstance(answer, Target):
                left = [line for line in answer.environment.pip_lines if re.match(r"torch(vision|audio)?\b(?!-)", line)]
                assert answer.environment.torch is None or not left, (lines, conda, site.name)
            else:
                assert select_errors(answer), (lines, conda, site.name)
    assert read > 40


def answered(recipe: Recipe, site: Site) -> Target | tuple[Finding, ...]:
    try:
        return resolve(recipe, site, context=Context())
    except UnsupportedError as error:
        return error.findings


# --- who sees the login of an index ----------------------------------------------------------------------------------

SOURCE = "tool @ https://example.org/tool-1.0.tar.gz"


@rows(
    ("site", "backend", "lines", "context", "level", "said"),
    [
        ("mn5", "docker", [SOURCE], {"logins": ("UV_INDEX",)}, "warning", f"'{SOURCE}' is built from source"),
        ("mn5", "docker", ["six"], {"logins": ("UV_INDEX",)}, "note", "without a wheel could read"),
        ("lumi-g", "cotainr", ["six"], {"logins": ("PIP_INDEX_URL",)}, "warning", "while cotainr installs"),
        ("lumi-g", "tykky", ["six"], {"logins": ("PIP_INDEX_URL",)}, "warning", "while tykky installs"),
        ("local", "apptainer", [SOURCE], {"proxies": ("https_proxy",)}, "warning", "is built from source"),
        ("local", "layers", ["six"], {"proxies": ("https_proxy",)}, "note", "the login of a proxy in 'https_proxy'"),
        ("mn5", "docker", [SOURCE], {"proxies": ("all_proxy",)}, "warning", "its build can read the login of a proxy"),
        (
            "lumi-g",
            "cotainr",
            [],
            {"proxies": ("https_proxy",)},
            "warning",
            "while cotainr installs can read the login of a",
        ),
        ("local", "apptainer", [SOURCE], {"logins": ("UV_INDEX",)}, "", ""),
        ("local", "layers", [SOURCE], {"logins": ("UV_INDEX",)}, "", ""),
        ("mn5", "docker", [SOURCE], {}, "", ""),
        ("lumi-g", "cotainr", ["six"], {}, "", ""),
        ("lumi-g", "cotainr", [], {"logins": ("PIP_INDEX_URL",)}, "", ""),
    ],
)
def test_security_04_who_sees_the_login_of_an_index_is_said(
    bench: Bench, site: str, backend: str, lines: list[str], context: dict[str, tuple[str, ...]], level: str, said: str
) -> None:
    conda = ("python=3.12",) if backend in ("cotainr", "tykky") else ()
    found = [
        one for one in bench.found(site, *lines, conda=conda, backend=backend, **context) if one.code == "index-login"
    ]
    assert [one.level for one in found] == ([level] if level else [])
    if found:
        assert said in found[0].message
        assert f"'{(*context.values(),)[0][0]}'" in found[0].message


def test_security_04_every_command_of_a_recipe_sees_the_login_of_a_proxy(bench: Bench) -> None:
    context = {"proxies": ("https_proxy",), "logins": ("UV_INDEX",)}
    for conda, more, said in (
        (
            (),
            "container: {run: ['true']}\n",
            "the commands of container.run can read the login of a proxy in 'https_proxy'",
        ),
        (
            ("python=3.12", "ffmpeg"),
            "",
            "programs that packages run while they are installed could read the login of a proxy",
        ),
    ):
        found = [one for one in bench.found("local", conda=conda, more=more, **context) if one.code == "index-login"]
        assert [said in one.message for one in found] == [True]
        assert "UV_INDEX" not in found[0].message  # the door keeps it
        assert found[0].fix == "use a proxy without a login"


def test_security_04_a_lock_says_whether_something_is_built(bench: Bench) -> None:
    recipe, site = load_recipe(bench.recipe("six")), load_site("mn5")
    context = Context(backend="docker", logins=("UV_INDEX",))
    target = resolve(recipe, site, context=context)
    six = PipFile(
        name="six",
        version="1.16.0",
        kind="wheel",
        url="https://example.org/six-1.16.0-py3-none-any.whl",
        sha256="0" * 64,
    )
    for kind, codes in (("wheel", []), ("sdist", ["index-login"]), ("vcs", ["index-login"])):
        lock = Lock(
            site="mn5", recipe="0", tool="x", asked=make_lock_request(target), base=BaseLock(reference="x"),
            pip=(replace(six, kind=kind),),  # type: ignore[arg-type]
        )  # fmt: skip
        assert [one.code for one in check_index_login(replace(target, lock=lock))] == codes


def test_security_04_only_the_names_of_variables_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:S3CRET@index.example/simple")
    monkeypatch.setenv("UV_INDEX", "https://index.example/t/T0KEN/simple https://other.example/simple")
    monkeypatch.setenv("UV_EXTRA_INDEX_URL", "https://plain.example/a@b/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/home/t/wheels file:///home/t/wheels")
    monkeypatch.setenv("https_proxy", "me:S3CRET@proxy.example:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://me:S3CRET@proxy.example:3128")
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    context = make_context()
    assert context.logins == ("PIP_INDEX_URL", "UV_INDEX")
    assert context.proxies == ("https_proxy", "HTTP_PROXY")
    assert "S3CRET" not in repr(context)


def test_security_04_without_pip_no_login_is_in_sight(bench: Bench) -> None:
    """cotainr and tykky give their containers the user's environment."""
    for backend in ("cotainr", "tykky"):
        for lines, there in ((["six"], False), ([], True)):
            target = resolve(
                load_recipe(bench.recipe(*lines, conda=("python=3.12",))),
                load_site("lumi-g"),
                context=Context(backend=backend),
            )
            text = next(file.text for file in compile_plan(target).files if file.path == "1-build-image.sh")
            assert "\nown_caches\n" in text
            assert ("\nunset PIP_INDEX_URL PIP_EXTRA_INDEX_URL" in text) is there


# --- the image of conda's client -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("site", "backend"), [("local", "apptainer"), ("mn5", "docker")])
def test_security_23_the_image_of_micromamba_is_taken_by_its_digest(bench: Bench, site: str, backend: str) -> None:
    context = make_context(backend=backend)
    target = resolve(load_recipe(bench.recipe(conda=("python=3.12", "ffmpeg"))), load_site(site), context=context)
    lines = "\n".join(file.text for file in compile_plan(target).files).splitlines()
    named = [line for line in lines if "mambaorg" in line]
    assert named
    assert all(
        re.search(r"(?i)^from:? docker\.io/mambaorg/micromamba@sha256:[0-9a-f]{64}( AS mamba)?$", line)
        for line in named
    )


@pytest.mark.parametrize(("site", "backend"), [("local", "apptainer"), ("mn5", "docker")])
def test_security_23_the_image_of_micromamba_can_be_named_by_its_digest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, site: str, backend: str
) -> None:
    name = f"quay.example:5000/mamba@sha256:{'a' * 64}"
    monkeypatch.setenv("RECIPE_MICROMAMBA", f"docker://{name}")
    context = make_context(backend=backend)
    target = resolve(load_recipe(bench.recipe(conda=("python=3.12", "ffmpeg"))), load_site(site), context=context)
    texts = {file.path: file.text for file in compile_plan(target).files}
    lines = "\n".join(texts.values()).splitlines()
    assert f"From: {name}" in lines or f"FROM {name} AS mamba" in lines
    assert not [line for line in lines if "mambaorg" in line]


@rows("value", ["x", "/x.sif", "docker://a b", "docker://a\nRUN x", "oras://a/b@sha256:0", "docker://a AS x"])
def test_security_23_what_is_no_image_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("RECIPE_MICROMAMBA", value)
    with pytest.raises(ConfigError, match="RECIPE_MICROMAMBA"):
        make_context()


@pytest.mark.parametrize(
    ("arch", "own", "found"), [("x86_64", "", 0), ("aarch64", "", 1), ("aarch64", "host/x@sha256:1", 0)]
)
def test_security_23_no_client_is_taken_by_its_tag(tmp_path: Path, arch: str, own: str, found: int) -> None:
    (tmp_path / "x.yml").write_text("name: x\nchannels: [conda-forge]\ndependencies: [python=3.12, ffmpeg=7]\n")
    site = load_site("local")
    target = resolve(load_recipe(tmp_path / "x.yml"), site, context=Context(backend="docker", micromamba=own))
    target = replace(target, site=replace(site, node=replace(site.node, arch=arch)))
    assert len(check_conda_client(target)) == found


@rows(("line", "prefix", "level", "words"), [
    ("numpy=1.26.4=py312h8753938_0", r"C:\Users\a\miniconda3", "error", "Windows, by its prefix: the build 'numpy="),
    ("numpy=1.26.4=py312h8753938_0", "/opt/homebrew/envs/a", "error", "macOS, by its prefix: the build 'numpy="),
    ("numpy=1.26.4", "/Users/a/miniforge3", "warning", "macOS, by its prefix: Linux may lack some"),
    ("libcxx=16.0.6", "/Users/a/miniforge3", "error", "macOS, by its prefix and libcxx"),
    ("conda-forge/osx-arm64::numpy=1.26", "", "error", "names packages for macOS, and the image is Linux"),
    ("conda-forge/win-64::numpy=1.26", "", "error", "names packages for Windows, and the image is Linux"),
    ("appnope=0.1", "", "error", "macOS: Linux has no appnope"),
])  # fmt: skip
def test_an_export_of_another_system_is_recognised(
    bench: Bench, line: str, prefix: str, level: str, words: str
) -> None:
    found = bench.found("local", conda=("python=3.12", line), more=f"prefix: {prefix}\n" if prefix else "")
    (finding,) = [finding for finding in found if finding.code == "export-system"]
    assert finding.level == level
    assert words in finding.message
    assert "conda env export --from-history" in finding.fix


@rows(("line", "prefix"), [
    ("numpy", r"C:\Users\a\miniconda3"),  # an export of the requests has a prefix, too
    ("numpy=1.26.4=py312h8753938_0", "/home/a/miniforge3"),
    ("libcxx=19", "/home/a/miniforge3"),  # conda-forge builds it for Linux, too
    ("conda-forge/linux-64::numpy=1.26", ""),
])  # fmt: skip
def test_no_other_system_is_seen_without_evidence(bench: Bench, line: str, prefix: str) -> None:
    found = bench.found("local", conda=("python=3.12", line), more=f"prefix: {prefix}\n" if prefix else "")
    assert "export-system" not in {finding.code for finding in found}


def test_two_lines_that_contradict_each_other_are_named(bench: Bench) -> None:
    found = bench.found("local", conda=("python=3.12", "torch=2.8.0", "pytorch=2.7"))
    (finding,) = [finding for finding in found if finding.code == "torch-unknown"]
    assert finding.message.startswith("'torch=2.8.0' contradicts 'pytorch=2.7', at ")
    assert finding.fix == "keep one of the two"


@rows(
    ("line", "name"),
    [
        ("a @ https://index.example/a-1.0-py3-none-any-cu12.whl", "a-1.0-py3-none-any.whl"),
        ("a @ https://index.example/a-1.0%2Bx-1-cp312-cp312-linux_x86_64-null.whl#sha256=" + "0" * 64,
         "a-1.0+x-1-cp312-cp312-linux_x86_64.whl"),
        ("a @ https://index.example/a-1.0-1-py3-none-any.whl", ""),
    ],
)  # fmt: skip
def test_the_file_of_a_variant_wheel_is_refused(line: str, name: str, bench: Bench) -> None:
    found = [finding for finding in bench.found("lumi-g", line) if finding.code == "wheel-variant"]
    assert [finding.level for finding in found] == (["error"] if name else [])
    assert all(finding.fix.endswith(f"rename the file to {name}") for finding in found)
