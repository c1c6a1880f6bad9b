"""Which build of torch is chosen next to the recipe's other lines and indexes."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.model.finding import ConfigError, UnsupportedError
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve


@pytest.mark.parametrize(
    ("lines", "site", "expected"),
    [
        ("torch==2.6.0\nxformers\n", "mn5", "2.6.0+cu126"),  # its wheel needs CUDA 12, as torch's on the default index
        ("torch==2.6.0\nvllm\n", "mn5", "2.6.0+cu126"),
        ("--extra-index-url https://download.pytorch.org/whl/cu124\ntorch==2.6.0\nxformers\n", "mn5", "2.6.0+cu124"),
        ("torchvision==0.24.0\n", "mn5", "2.9.0+cu128"),  # no image has it
        # an index of PyTorch's is obeyed, and what fits it is taken: 2.14 has no cu128, 2.8 no cu118
        ("--extra-index-url https://download.pytorch.org/whl/cu128\ntorch\n", "mn5", "2.11.0+cu128"),
        ("--index-url https://download.pytorch.org/whl/cu118\ntorch\n", "mn5", "2.7.1+cu118"),
        ("--index-url https://download.pytorch.org/whl/cu129\ntorch==2.9.1\n", "mn5", "2.9.1+cu129"),
        ("torch==2.9.1\n", "mn5", "2.9.1+cu128"),  # no document announces cu129
        ("torch==2.10.0+cu129\n", "mn5", "2.10.0+cu129"),
        ("torch==2.13.0\ntorchaudio==2.11.0\n", "mn5", "2.13.0+cu126"),
        ("torch==1.13.1\ntorchaudio\n", "local", "1.13.1+cpu"),
        ("torch==1.12.1+cu113\ntorchvision==0.13.1+cu113\n", "local", "1.12.1+cpu"),
        ("torch<2\n", "lumi-c", "1.13.1+cpu"),
        ("torch==2.6.0+cu124\ntorchvision==0.21.0+cu124\n", "local", "2.6.0+cpu"),
    ],
)
def test_the_build_that_fits_the_other_lines(lines: str, site: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(lines, encoding="utf-8")
    context = Context(base="docker://docker.io/library/python:3.12-slim-bookworm" if "xformers" in lines else "")
    found = resolve(load_recipe(tmp_path / "requirements.txt"), load_site(site), context=context)
    assert found.environment.torch is not None
    assert found.environment.torch.local == expected


def find_torch(lines: str, site: str, folder: Path, *, driver: str = "") -> Target:
    (folder / "requirements.txt").write_text(lines, encoding="utf-8")
    return resolve(load_recipe(folder / "requirements.txt"), load_site(site), context=Context(driver=driver))


@pytest.mark.parametrize(
    ("lines", "site", "driver", "expected"),
    [
        ("torch\n", "mn5", "", "docker://nvcr.io/nvidia/pytorch:25.06-py3"),
        ("torch\n", "mn5", "595.71.05", "docker://nvcr.io/nvidia/pytorch:26.09-py3"),
        ("torch<2.6\n", "mn5", "", "docker://nvcr.io/nvidia/pytorch:24.10-py3"),
        ("torch==2.3.0\n", "mn5", "", "docker://nvcr.io/nvidia/pytorch:24.03-py3"),
        ("torch\n", "dawn", "", "docker://intel/intel-extension-for-pytorch:2.8.10-xpu"),
    ],
)
def test_an_open_torch_takes_the_newest_image(
    lines: str, site: str, driver: str, expected: str, tmp_path: Path
) -> None:
    assert find_torch(lines, site, tmp_path, driver=driver).base.reference == expected


@pytest.mark.parametrize(
    ("lines", "site", "expected"),
    [
        ("torch==2.14.0\ntorchvision==0.29.1\n", "mn5", ("torch==2.14.0+cu126", "torchvision==0.29.1+cu126")),
        ("torch==2.14.1\ntorchvision==0.29.2\n", "local", ("torch==2.14.1+cpu", "torchvision==0.29.2+cpu")),
        ("torchvision==0.15.0\n", "local", ("torch==2.0.0+cpu", "torchvision==0.15.0+cpu")),
        ("torch\ntorchaudio==2.11.0\n", "local", ("torch==2.14.1+cpu", "torchaudio==2.11.0+cpu")),
    ],
)
def test_companions_of_several_releases(lines: str, site: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    assert find_torch(lines, site, tmp_path).environment.torch_lines == expected


def test_the_line_of_pytorch_org_for_conda_is_taken(tmp_path: Path) -> None:
    text = "dependencies: [python=3.10, pytorch=2.0.0, torchvision=0.15.0, torchaudio=2.0.0, pytorch-cuda=11.8]\n"
    (tmp_path / "environment.yml").write_text("channels: [pytorch, conda-forge]\n" + text, encoding="utf-8")
    found = resolve(load_recipe(tmp_path / "environment.yml"), load_site("mn5"), context=Context())
    assert found.environment.torch_lines == (
        "torch==2.0.0+cu118",
        "torchvision==0.15.0+cu118",
        "torchaudio==2.0.1+cu118",
    )


@pytest.mark.parametrize(
    ("lines", "site", "driver", "code", "message"),
    [
        ("torch==2.15.0\n", "mn5", "535.86.10", "torch-build", "serves none of its builds (builds: cu130, cu132)"),
        ("torch==2.0.1+cu117\n", "mn5", "", "gpu-target", "no kernels for sm_90"),
        ("torch==2.10.0+rocm7.0\n", "lumi-g", "6.2", "torch-driver", "serves ROCm 6.0, 6.1, 6.2, 6.3, 6.4"),
        ("torch==2.11.0\n", "lumi-g", "6.3.60302", "torch-build", "it serves ROCm 6.1"),
        ("torch==2.14.1\ntorchvision==0.29.2\n", "mn5", "535.86.10", "torch-companion", "has no build for cu126"),
    ],
)
def test_what_has_no_build_is_refused(
    lines: str, site: str, driver: str, code: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError) as caught:
        find_torch(lines, site, tmp_path, driver=driver)
    assert [message in one.message for one in caught.value.findings if one.code == code] == [True]


@pytest.mark.parametrize(
    ("driver", "lines", "expected"),
    [
        ("6.3.60303", "torch==2.11.0\n", "2.11.0+rocm7.2"),  # ROCm 7.2 lists 6.3.3, and not 6.3.0
        ("6.4", "torch==2.6.0\n", "2.6.0+rocm6.2.4"),
        ("30.20", "torch==2.9.1\n", "2.9.1+rocm6.4"),
        ("31.30", "torch==2.14.1\n", "2.14.1+rocm7.14"),
    ],
)
def test_the_windows_of_amds_drivers(driver: str, lines: str, expected: str, tmp_path: Path) -> None:
    torch = find_torch(lines, "lumi-g", tmp_path, driver=driver).environment.torch
    assert torch is not None
    assert torch.local == expected


def test_a_nightly_index_is_a_warning(tmp_path: Path) -> None:
    found = find_torch("--pre\n--index-url https://download.pytorch.org/whl/nightly/cu128\ntorch\n", "mn5", tmp_path)
    (told,) = (one for one in found.findings if one.code == "torch-index")
    assert (told.level, "nightly builds" in told.message) == ("warning", True)


def test_a_torchvision_of_no_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torchvision==99\n", encoding="utf-8")
    with pytest.raises(UnsupportedError) as caught:
        resolve(load_recipe(tmp_path / "requirements.txt"), load_site("mn5"), context=Context())
    assert "torch-companion" in [finding.code for finding in caught.value.findings]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("numpy>=1.20\nnumpy<2\n", "numpy>=1.20,<2"),
        ("pyOpenSSL==23.2.0\npyOpenSSL>=23.1.0\n", "pyopenssl==23.2.0"),
        ("dask[array]>=2024\ndask[complete]<2026 ; python_version < '4'\n", "dask[array]>=2024"),
        ("numpy>=2\nnumpy<2\n", ""),
        ("numpy==2.1\nnumpy<2\n", ""),
        ("numpy==2.1\nnumpy==2.2\n", ""),
        ("numpy~=2.1\nnumpy!=2.2\n", ""),
    ],
)
def test_two_lines_of_one_package_are_joined(lines: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(lines, encoding="utf-8")
    if expected:
        assert load_recipe(tmp_path / "requirements.txt").pip[0].text == expected
        return
    with pytest.raises(ConfigError) as caught:
        load_recipe(tmp_path / "requirements.txt")
    assert [finding.code for finding in caught.value.findings] == ["pip-twice"]


def test_a_key_that_conda_ignores_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "x.yml"
    path.write_text("dependencies: [numpy]\nallow-pypi-requests: true\n", encoding="utf-8")
    assert [(one.code, one.level) for one in load_recipe(path).warnings] == [("unknown-key", "warning")]
    path.write_text("dependancies: [numpy]\n", encoding="utf-8")
    with pytest.raises(ConfigError):
        load_recipe(path)


def test_a_post_release_requires_the_torch_of_its_release(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("vllm==0.8.5.post1\n", encoding="utf-8")
    found = resolve(load_recipe(tmp_path / "requirements.txt"), load_site("mn5"), context=Context())
    assert found.environment.torch is not None
    assert found.environment.torch.local == "2.6.0+cu126"


@pytest.mark.parametrize("line", ["tensorflow-gpu", "py-xgboost-gpu=2", "tensorflow=2.17=*cuda*"])
def test_a_cuda_build_of_conda_needs_a_gpu(line: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yml"
    path.write_text(f"channels: [conda-forge]\ndependencies: [python=3.11, '{line}']\n", encoding="utf-8")
    with pytest.raises(UnsupportedError) as caught:
        resolve(load_recipe(path), load_site("local"), context=Context())
    assert [finding.code for finding in caught.value.findings if finding.level == "error"] == ["conda-build"]


@pytest.mark.parametrize(("line", "refused"), [("jax[rocm]==0.9.0", True), ("jax[rocm]==0.5.0", False)])
def test_a_jax_for_another_rocm_is_refused(line: str, refused: bool, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(f"{line}\n", encoding="utf-8")
    recipe, site = load_recipe(tmp_path / "requirements.txt"), load_site("frontier")
    if not refused:
        resolve(recipe, site, context=Context())
        return
    with pytest.raises(UnsupportedError) as caught:
        resolve(recipe, site, context=Context())
    assert "'jax[rocm]==0.9.0' needs ROCm 7" in caught.value.findings[-1].message


@pytest.mark.parametrize(
    ("lines", "expected", "told"),
    [
        ("pytorch=2.5.1, pytorch-cuda=12.4", "2.5.1+cu124", ""),
        ("'pytorch=2.6.0=*cuda126*'", "2.6.0+cu126", ""),
        ("pytorch=2.6.0, cuda-version=12.1", "2.6.0+cu118", "torch 2.6.0 has no build for CUDA 12.1"),
        ("pytorch, cuda-version=13.0", "2.14.1+cu126", "does not serve CUDA 13.0"),
    ],
)
def test_the_cuda_that_conda_is_asked_for(lines: str, expected: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_text(
        f"channels: [conda-forge]\ndependencies: [python=3.11, {lines}]\n", encoding="utf-8"
    )
    found = resolve(load_recipe(tmp_path / "x.yml"), load_site("mn5"), context=Context(driver="535.86.10"))
    assert found.environment.torch is not None
    assert found.environment.torch.local == expected
    fixes = [one.fix for one in found.findings if one.code == "torch-index"]
    assert len(fixes) == bool(told)
    assert told in "".join(fixes)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("torch==2.1.0.post2+cxx11.abi", "is Intel's own CXX11 build"),
        (
            "torch @ https://repo.radeon.com/rocm/rocm-rel-6.2/torch-2.3.0%2Brocm6.2-cp310-cp310-linux_x86_64.whl",
            "AMD's",
        ),
    ],
)
def test_whose_build_it_is(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        find_torch(f"{line}\n", "dawn", tmp_path)
    assert message in caught.value.findings[0].message
    assert caught.value.findings[0].fix.startswith("use torch 2.")
