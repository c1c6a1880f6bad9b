"""What `check` promises: a vendor by a name, fixes that the site serves, and all that is wrong in one run."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from builder.cli.main import run
from builder.model.finding import BuilderError, ConfigError, Finding
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import find_site_files, load_site
from builder.pipeline.resolution import resolve_recipe

SITES = tuple(find_site_files())
OF_GPUS = {"lumi-g": "amd", "frontier": "amd", "dawn": "intel", "mn5": "nvidia"}


def write(folder: Path, text: str) -> Path:
    path = folder / ("environment.yml" if "dependencies:" in text else "requirements.txt")
    path.write_text(text)
    return path


def findings(folder: Path, site: str, text: str, driver: str = "") -> tuple[Finding, ...]:
    try:
        context = Context(driver=driver)
        return resolve_recipe(load_site(site), load_recipe(write(folder, text)), context=context).findings
    except BuilderError as error:
        return error.findings


def find(folder: Path, site: str, text: str, code: str, *, driver: str = "") -> list[Finding]:
    return [one for one in findings(folder, site, text, driver) if one.code == code]


def target(folder: Path, site: str, text: str) -> Target:
    return resolve_recipe(load_site(site), load_recipe(write(folder, text)), context=Context())


# --- the vendor of a name ---------------------------------------------------------------------------------------------

CERTAIN = ("cudf-cu12", "cuml-cu12==25.2", "mxnet-cu112", "spconv-cu120", "some-thing-cuda12x", "dgl==2.1.0+cu121",
           "https://example.org/thing-1.0+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl")  # fmt: skip
LISTED = ("tensorrt", "tensorrt-cu12", "paddlepaddle-gpu", "numba-cuda", "tensorflow-gpu==2.10",
          "transformer-engine", "flashinfer-python", "faiss-gpu")  # fmt: skip


@pytest.mark.parametrize("site", ["lumi-g", "frontier", "dawn"])
def test_what_only_nvidia_runs_is_refused_elsewhere(site: str, tmp_path: Path) -> None:
    for line in CERTAIN:
        (found,) = find(tmp_path, site, f"{line}\n", "package-vendor")
        assert (found.level, "not looked up" in found.message) == ("error", True), line
        assert "NVIDIA GPUs" in found.message, line
    for line in LISTED:
        (found,) = find(tmp_path, site, f"{line}\n", "package-vendor")
        assert (found.level, "not looked up" in found.message) == ("error", False), line
    (found,) = find(tmp_path, site, "sgl-kernel\n", "default-wheel")
    assert found.level == "error"


def test_what_nvidia_runs_is_accepted_there(tmp_path: Path) -> None:
    old = "tensorflow-gpu==2.10"  # no wheel for the Python of the base image
    for line in (*CERTAIN, *({*LISTED} - {old}), "sgl-kernel", "xgboost", "some-gpu"):
        assert not [one for one in findings(tmp_path, "mn5", f"{line}\n") if one.level == "error"], line


@pytest.mark.parametrize(("site", "line", "level"), [
    ("lumi-g", "some-gpu", "warning"),
    ("lumi-g", "spacy[cuda12x]", "warning"),
    ("dawn", "some-rocm", "warning"),
    ("mn5", "some-rocm", "warning"),
    ("mn5", "some-xpu", "warning"),
    ("mn5", "thing==1.0+rocm6.2", "error"),
    ("local", "cudf-cu12", "warning"),
    ("local", "some-gpu", "warning"),
])  # fmt: skip
def test_a_name_that_only_hints_is_a_warning(site: str, line: str, level: str, tmp_path: Path) -> None:
    (found,) = find(tmp_path, site, f"{line}\n", "package-vendor")
    assert (found.level, "not looked up" in found.message) == (level, True)


@pytest.mark.parametrize("line", ["some-gpus", "numpy", "requests[socks]", "pillow-simd", "mpi4py", "cupy-rocm-6-4x"])
def test_a_name_without_a_vendor_is_left_alone(line: str, tmp_path: Path) -> None:
    site = "lumi-g" if "rocm" in line else "local"
    assert find(tmp_path, site, f"{line}\n", "package-vendor") == []


def test_a_wheel_for_a_newer_cuda_is_refused(tmp_path: Path) -> None:
    wheel = "https://example.org/thing-1.0+cu130-cp312-cp312-linux_x86_64.whl\n"
    assert [one.level for one in find(tmp_path, "mn5", wheel, "package-cuda", driver="535.86.10")] == ["error"]
    assert find(tmp_path, "mn5", wheel.replace("cu130", "cu126"), "package-cuda") == []


def test_xgboost_without_its_gpu_is_a_warning(tmp_path: Path) -> None:
    (found,) = find(tmp_path, "lumi-g", "xgboost\n", "default-wheel")
    assert found.level == "warning"
    assert find(tmp_path, "mn5", "xgboost\n", "default-wheel") == []


# --- fixes that the site serves ---------------------------------------------------------------------------------------


def test_a_fix_names_only_the_rocm_that_the_driver_serves(tmp_path: Path) -> None:
    for site in ("lumi-g", "frontier"):
        (found,) = find(tmp_path, site, "cupy-cuda12x==13.3.0\n", "package-vendor")
        assert "cupy-rocm-7-0" in found.fix
        assert "cupy-rocm-5-0" not in found.fix


def test_faiss_with_gpus_is_known(tmp_path: Path) -> None:
    for line in ("faiss-gpu==1.14.3\n", "faiss-gpu-cu12\n"):
        assert [one for one in findings(tmp_path, "mn5", line) if one.level != "note"] == []
        (found,) = find(tmp_path, "lumi-g", line, "package-vendor")
        assert found.fix.endswith("; faiss-cpu has the same module, without the GPU")


def test_jaxlib_gets_the_advice_of_jax(tmp_path: Path) -> None:
    for line in ("jax==0.4.20\n", "jaxlib==0.4.20\n"):
        (found,) = find(tmp_path, "lumi-g", line, "default-wheel")
        assert "jax[rocm]" in found.fix


def test_a_companion_gets_a_range_of_its_own(tmp_path: Path) -> None:
    (found,) = find(tmp_path, "lumi-g", "torchvision==0.15.2+cu118\n", "torch-vendor")
    first, last = re.findall(r"0\.\d+\.\d", found.fix)
    assert found.fix == f"use torchvision {first} to {last}, without a build"
    for version in (first, last):
        assert target(tmp_path, "lumi-g", f"torchvision=={version}\n").environment.torch


ASKED = (
    "torch==2.5.1\nvllm\n", "torch==2.5.1\nvllm==0.8.5\n", "torch==2.5.1\nxformers==0.0.30\n", "torch==2.14.0\nvllm\n",
    "torch==2.6.0+cu124\n", "torch==2.6.0+rocm6.2.4\n", "torch==2.6.0+xpu\n", "torch==2.6.0+cpu\n",
    "torch==2.0.1+cu118\n",
    "torchvision==0.15.2+cu118\n", "torch==2.6.0\ntorchvision==0.20.0\n", "torch==2.6.0\ntorchaudio==2.5.0\n",
    "torch==2.12.0\ntorchaudio\n", "torch==99\n", "pytorch\n", "sklearn\nnunpy\n", "torch==2.6.0+cu118\n",
    "torch @ https://example.org/torch.tar.gz\n", "torch==2.6.0+cu124\ntorchvision==0.21.0+cu124\n", "yaml\n",
)  # fmt: skip


@pytest.mark.property
@pytest.mark.parametrize("site", SITES)
def test_no_version_that_a_fix_names_is_refused(site: str, tmp_path: Path) -> None:
    """Whatever `write X` or `use X A to B` names gives no error about that package again."""
    tried = 0
    for text in ASKED:
        for fault in findings(tmp_path, site, text):
            if fault.level != "error":
                continue
            for named in proposals(fault.fix):
                name = re.split(r"[=<>~!]", named)[0]
                rest = [line for line in text.splitlines() if re.split(r"[=<>~! ]", line)[0] != name]
                if (
                    fault.at
                    and fault.at.line
                    and fault.code.startswith(("torch", "name"))
                    and fault.code != "torch-pin"
                ):
                    written = text.splitlines()[fault.at.line - 1]
                    rest = [line for line in rest if line != written]
                again = findings(tmp_path, site, "\n".join([named, *rest]) + "\n")
                wrong = [one for one in again if one.level == "error" and re.match(rf"'{name}\b", one.message)]
                assert not wrong, (text, fault, named, wrong)
                tried += 1
    assert tried > 10


def proposals(fix: str) -> list[str]:
    """The requirements that a fix names as `write X`, or as `use NAME A to B`."""
    if match := re.match(r"use (torch\w*) ([\d.]+) to ([\d.]+)", fix):
        return [f"{match[1]}=={match[2]}", f"{match[1]}=={match[3]}"]
    match = re.match(r"write ([\w.-]+(?:==[\w.]+)?)(?:[,:]|$)", fix)
    return [match[1]] if match and "X.Y.Z" not in fix else []


# --- conda ------------------------------------------------------------------------------------------------------------

EXPORT = """\
name: e
channels: [pytorch, conda-forge]
dependencies:
  - python=3.10
  - pytorch=2.1.0=py3.10_cuda12.1_cudnn8.9.2_0
  - torchtriton=2.1.0=py310
  - pytorch-mutex=1.0=cuda
  - samtools
"""


def test_parts_of_the_pytorch_channel_are_removed_with_it(tmp_path: Path) -> None:
    for site in ("mn5", "local", "lumi-c", "mn5-gpp"):
        found = target(tmp_path, site, EXPORT).environment
        assert "pytorch" not in found.channels, site
        assert not [text for text in found.conda if "torch" in text], site


@pytest.mark.parametrize(("site", "conda", "level"), [("local", "samtools", "warning"), ("mn5", "pytorch", "error")])
def test_two_versions_of_one_package_are_one_finding(site: str, conda: str, level: str, tmp_path: Path) -> None:
    """conda's place: pip replaces; the base image's Python: pip gets both lines."""
    text = f"name: e\ndependencies:\n  - numpy\n  - numpy=1.26\n  - {conda}\n  - pip: [numpy==2.0]\n"
    (found,) = find(tmp_path, site, text, "two-versions")
    assert found.level == level
    for agreed in ("numpy==1.26.4", "numpy>=1.20", "numpy", "numpy~=1.26"):
        assert find(tmp_path, site, text.replace("numpy==2.0", f"'{agreed}'"), "two-versions") == [], agreed


# --- builds from source -----------------------------------------------------------------------------------------------


def test_flash_attention_is_judged_by_site_and_image(tmp_path: Path) -> None:
    text = "torch==2.6.0\nflash-attn==2.7.4\n"
    (found,) = find(tmp_path, "dawn", text, "build-needs")
    assert (found.level, "no build for Intel GPUs" in found.message) == ("error", True)
    (found,) = find(tmp_path, "local", text, "build-needs")
    assert (found.level, "no build for CPUs" in found.message) == ("error", True)
    slim = "dependencies:\n  - python=3.12\n  - pip: [torch==2.6.0, flash-attn==2.7.4]\ncontainer:\n  python: env\n"
    (found,) = find(tmp_path, "mn5", slim, "build-needs")
    assert "python:3.12-slim-bookworm' has no compiler" in found.message
    assert find(tmp_path, "mn5", f"{slim}  base: docker://example.org/cuda:12\n", "build-needs")[0].message.endswith(
        "isolation"
    )


WHEEL = "flash-attn @ https://example.org/flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp312-cp312-linux_x86_64.whl"


@pytest.mark.parametrize(
    ("site", "line", "code", "fix"),
    [
        ("lumi-g", "flash-attn==2.7.4", "build-needs", "build with --backend apptainer, which installs it after torch"),
        ("lumi-g", "flash-attn==2.7.4", "build-needs", "a wheel that was built for AMD GPUs and this torch"),
        ("lumi-g", WHEEL, "package-vendor", "or give the address of a wheel that was built for AMD"),
        ("frontier", WHEEL, "package-vendor", "for AMD there is: built from source with FLASH_ATTENTION_TRITON_AMD"),
        ("mn5", "flash-attn==2.7.4", "build-needs", "if the base image brings its own flash-attn, remove the line"),
    ],
)
def test_flash_attention_has_a_fix_for_vendor_and_backend(
    site: str, line: str, code: str, fix: str, tmp_path: Path
) -> None:
    text = f"dependencies:\n  - python=3.12\n  - pip:\n    - torch==2.6.0\n    - {line}\n"
    (found,) = find(tmp_path, site, text, code)
    assert fix in found.fix


# --- all faults at once -----------------------------------------------------------------------------------------------

BROKEN = """\
name: e
channels: [defaults]
dependencies:
  - python=3.10
  - pytorch=1.5.0
  - cupy=12
  - libgl1-mesa-glx
  - pip: [cudf-cu12, sklearn, nunpy, flash-attn]
"""


def test_a_torch_that_does_not_exist_hides_nothing(tmp_path: Path) -> None:
    codes = {one.code for one in findings(tmp_path, "lumi-g", BROKEN)}
    later = {one.code for one in findings(tmp_path, "lumi-g", BROKEN.replace("1.5.0", "2.6.0")) if one.level != "note"}
    assert codes >= {"torch-unknown"} | later


def test_no_site_is_called_another(tmp_path: Path) -> None:
    for site, line in product(OF_GPUS, ("torch==1.0", "torch==2.6.0+cu124")):
        assert not [one for one in findings(tmp_path, site, f"{line}\n") if "of another site" in one.fix]


# --- files that were saved by mistake ---------------------------------------------------------------------------------

SAVED = {
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n": "git lfs pull",
    "<!DOCTYPE html>\n<html><head></head></html>\n": "download the file itself",
    "\n  <html lang='en'>\n": "download the file itself",
    "Package    Version\n---------- -------\nnumpy      2.0.0\n": "pip freeze",
    "Package    Version  Editable project location\r\n---------- -------  ---\r\nnumpy 2\r\n": "pip freeze",
    "numpy=2.2.6=py312h72c5963_0\npython=3.12.9=h9e4cc4f_1_cpython\n": "conda env export",
    "\n# platform: linux-64\r\n_libgcc_mutex=0.1=conda_forge\r\npip=25.0=pypi_0\r\n": "conda env export",
    "libjpeg-turbo=3.0.0=hd590300_1": "conda env export",
    'List of packages in environment: "/x"\n\n  Name  Version\n': "conda env export",
    '\nList of packages in environment: "/x"\n\n  Name  Version\n': "conda env export",
    '[\n  {\n    "base_url": "https://conda.anaconda.org/conda-forge",\n': "conda env export",
    "# conda environments:\n#\nbase  *  /opt/conda\n": "conda env export",
    '[{"name": "numpy", "version": "2.2.6"}]\n': "pip freeze",
    "Using Python 3.12.3 environment at: x\nPackage Version\n------- -------\nnumpy   2.2.6\n": "pip freeze",
    "Name: numpy\nVersion: 2.2.6\nSummary: x\n": "pip freeze",
    "pandas==2.2.2\n├── numpy [required: >=1.26.0, installed: 2.2.6]\n": "pip freeze",
    "pandas==2.2.2\n  - numpy [required: >=1.26.0, installed: 2.2.6]\n": "pip freeze",
    "Warning!!! Conflicts:\n* a==1\n - b [required: >=2, installed: 1]\n------\na==1\n": "pip freeze",
    "demo v0.1.0\n├── numpy v2.2.6\n": "uv export",
    "Package  Version  Build  Size  Kind  Source\nnumpy  2  py312  8 MiB  conda  x\n": "give the pixi.toml",
    "# packages in environment at /opt/x:\n#\n# Name  Version  Build\nnumpy  1.26  py312_0\n": "conda env export",
}


@pytest.mark.parametrize("suffix", [".txt", ".yml"])
def test_what_was_saved_by_mistake_is_recognised(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"environment{suffix}"
    for text, fix in SAVED.items():
        for data in (text.encode(), text.encode("utf-16")):
            path.write_bytes(data)
            with pytest.raises(ConfigError) as caught:
                load_recipe(path)
            (found,) = caught.value.findings
            assert (found.code, fix in found.fix) == ("recipe-format", True), text


# --- what is printed --------------------------------------------------------------------------------------------------


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    run(words)
    return capsys.readouterr().err


def test_every_printed_finding_has_its_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.yml").write_text("nmae: x\ndependencies:\n  - numpy==\n")
    Path("cupy.txt").write_text("cupy-cuda12x\n")
    for words in (
        ["check", "local", "bad.yml"],
        ["build", "-n", "lumi-g", "cupy.txt"],
        ["plan", "--show", "lumi-g", "cupy.txt"],
        ["plan", "--nope"],
    ):
        err = printed(words, capsys)
        levels = re.findall(r"^(?:error|warning|note)\S*:", err, re.MULTILINE)
        assert levels, words
        assert all("[" in level for level in levels), err


def test_a_file_that_begins_with_a_dash_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-dash.yml").write_text("dependencies: [python=3.12]\n")
    assert "`recipe check local ./-dash.yml`" in printed(["check", "local", "-dash.yml"], capsys)
    assert run(["check", "local", "./-dash.yml"]) == 0


def test_an_address_keeps_its_slashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'https://example.org/env.yml' is no file" in printed(
        ["check", "local", "https://example.org/env.yml"], capsys
    )


# --- git --------------------------------------------------------------------------------------------------------------

GIT = "six @ git+https://example.org/six.git@1.16.0\n"


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("docker://example.org/own:1", ["is not known to have git"]),
        ("docker://python:3.12-alpine", ["is not known to have git"]),
        ("docker://python:3.12-slim", ["has no git"]),
        ("docker://python:3.12", []),
        ("docker://docker.io/library/python:3.12-bookworm", []),
    ],
)
def test_a_base_image_of_ones_own_may_have_no_git(base: str, said: list[str], tmp_path: Path) -> None:
    text = f"dependencies:\n  - python=3.12\n  - pip: ['{GIT.strip()}']\ncontainer:\n  base: {base}\n"
    found = find(tmp_path, "local", text, "build-needs")
    assert [(one.level, one.message.endswith(said[0])) for one in found] == [("warning", True) for _ in said]
    assert find(tmp_path, "local", f"{text}  system: [git]\n", "build-needs") == []
    assert find(tmp_path, "lumi-g", text.partition("container:")[0], "build-needs") == []
