"""Environments that people published for these machines, on every site: what becomes of them today, and why."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from support.rows import rows

from builder.model.finding import ConfigError, UnsupportedError, select_errors
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import find_site_files, load_site
from builder.resolve.resolve import resolve

WILD = Path(__file__).parent / "wild"

# LUMI's minimal_pytorch.yml, as its later versions differ from the one in wild/: Python, index, pip's lines.
LUMI = """\
name: minimal_pytorch
channels:
  - conda-forge
dependencies:
  - filelock
  - fsspec
  - jinja2
  - markupsafe
  - mpmath
  - networkx
  - numpy
  - pillow
  - pip
  - python={python}
  - sympy
  - typing-extensions
  - pip:
    - --extra-index-url https://download.pytorch.org/whl/{token}/
{lines}"""


def lumi(python: str, token: str, *lines: str) -> str:
    return LUMI.format(python=python, token=token, lines="".join(f"    - {line}\n" for line in lines))


SEEDS = {
    "lumi-rocm5.6": (WILD / "lumi_minimal_pytorch_rocm5.6.yml").read_text(),
    "lumi-rocm6.0": lumi(
        "3.12.3", "rocm6.0", "pytorch-triton-rocm==3.0.0", "torch==2.4.1+rocm6.0", "torchaudio==2.4.1+rocm6.0",
        "torchvision==0.19.1+rocm6.0",
    ),
    "lumi-rocm6.2": lumi(
        "3.12.8", "rocm6.2", "pytorch-triton-rocm==3.1.0", "torch==2.5.1+rocm6.2", "torchaudio==2.5.1+rocm6.2",
        "torchvision==0.20.1+rocm6.2", "transformers==4.45.2", "datasets==2.19.1", "accelerate==1.3.0",
    ),
    "lumi-rocm7.0": lumi(
        "3.12", "rocm7.0", "triton-rocm==3.6.0", "torch==2.10.0+rocm7.0", "torchaudio==2.10.0+rocm7.0",
        "torchvision==0.25.0+rocm7.0",
    ),
    "tykky": (WILD / "tykky_pytorch_rocm.yml").read_text(),
    "frontier": "--index-url https://download.pytorch.org/whl/rocm6.0\n"
    "torch==2.3.1\ntorchvision==0.18.1\ntorchaudio==2.3.1\n",
    "dawn": "--index-url https://download.pytorch.org/whl/xpu\n"
    "--extra-index-url https://pytorch-extension.intel.com/release-whl/stable/xpu/us/\n"
    "torch==2.8.0\ntorchvision==0.23.0\ntorchaudio==2.8.0\n"
    "intel-extension-for-pytorch==2.8.10+xpu\noneccl_bind_pt==2.8.0+xpu\n",
    "marenostrum": (WILD / "marenostrum" / "requirements.txt").read_text(),
    "nvidia-export": (WILD / "nvidia-export.yml").read_text(),
}  # fmt: skip

COTAINR = "lumi-multitorch-mpich-u24r64f21m43t29-20260225_144743.sif"
PYTHON = "python:3.12-slim-bookworm"
CPE = "cpe:25.09_gnu_ubuntu"
ROCM62 = "lumi-rocm-rocm-6.2.4.sif"
ROCM = "pytorch:rocm6.4.2_ubuntu24.04_py3.12_pytorch_release_2.6.0"
OTHER = "the file pins AMD's build by its local version: nothing can be chosen for another vendor"

# (site, torch and place and base image, or the codes of the refusal, why that is right)
TABLE: dict[str, list[tuple[str, str, str]]] = {
    "lumi-rocm5.6": [
        ("lumi-g", "torch-driver", "KMD 6.3 serves ROCm 6.1 to 7.0; 2.2.2 has rocm5.6 and 5.7 only"),
        ("frontier", "torch-driver", "KMD 30.30 serves ROCm 6.3 to 7.2"),
        *[(site, "torch-vendor", OTHER) for site in ("dawn", "mn5", "local", "lumi-c", "mn5-gpp")],
    ],
    "lumi-rocm6.0": [
        ("lumi-g", "torch-driver", "6.0 is below 6.1; torch 2.4.1 without a build would get rocm6.1"),
        ("frontier", "torch-driver", "2.4.1 has rocm6.0 and 6.1, the driver begins at 6.3"),
        *[(site, "torch-vendor", OTHER) for site in ("dawn", "mn5", "local", "lumi-c", "mn5-gpp")],
    ],
    "lumi-rocm6.2": [
        ("lumi-g", f"2.5.1+rocm6.2 conda {ROCM62}", "6.2 is inside 6.1 to 7.0, and the site has its base image"),
        ("frontier", "2.5.1+rocm6.2 conda cpe:24.11_gnu_ubuntu", "the sources disagree about 6.2: a warning"),
        *[(site, "torch-vendor", OTHER) for site in ("dawn", "mn5", "local", "lumi-c", "mn5-gpp")],
    ],
    "lumi-rocm7.0": [
        ("lumi-g", f"2.10.0+rocm7.0 conda {COTAINR}", "7.0 is the end of the window: with the warning rocm-unsafe"),
        ("frontier", f"2.10.0+rocm7.0 conda {CPE}", "7.0 is inside 6.3 to 7.2; the image with torch 2.6.0 is not it"),
        *[(site, "torch-vendor", OTHER) for site in ("dawn", "mn5", "local", "lumi-c", "mn5-gpp")],
    ],
    "tykky": [
        (
            "lumi-g",
            f"2.6.0+rocm6.2.4 conda {ROCM62}",
            "6.2.4 counts as 6.2; the index of all builds gives way to its own",
        ),
        ("frontier", "2.6.0+rocm6.2.4 conda cpe:24.11_gnu_ubuntu", "6.2 is disputed: a warning"),
        *[(site, "torch-vendor", OTHER) for site in ("dawn", "mn5", "local", "lumi-c", "mn5-gpp")],
    ],
    "frontier": [
        ("frontier", "torch-build", "2.3.1 has rocm5.7 and 6.0; the driver of 2026 begins at 6.3"),
        ("lumi-g", "torch-build", "and LUMI's begins at 6.1"),
        ("mn5", f"2.3.1+cu121 venv {PYTHON}", "NGC has 2.3.0 but no 2.3.1, and no torchaudio; CUDA 12.1 runs on R535"),
        (
            "dawn",
            "2.3.1+cxx11.abi base intel-extension-for-pytorch:2.3.110-xpu",
            "no xpu wheels before 2.5; Intel's image",
        ),
        ("local", f"2.3.1+cpu venv {PYTHON}", "the CPU wheel, from its own index"),
        ("mn5-gpp", f"2.3.1+cpu venv {PYTHON}", "the CPU wheel, from its own index"),
        ("lumi-c", "2.3.1+cpu conda ubuntu:24.04", "the CPU wheel; cotainr's base has no Python"),
    ],
    "dawn": [
        ("dawn", "2.8.0+xpu base intel-extension-for-pytorch:2.8.10-xpu", "the image holds exactly these five"),
        *[
            (site, "package-vendor", "the extension and its oneCCL are for Intel GPUs")
            for site in ("lumi-g", "frontier", "mn5")
        ],
        ("local", f"2.8.0+cpu venv {PYTHON}", "torch is right; the extension's XPU build is warned of"),
        ("mn5-gpp", f"2.8.0+cpu venv {PYTHON}", "torch is right; the extension's XPU build is warned of"),
        ("lumi-c", "2.8.0+cpu conda ubuntu:24.04", "torch is right; the extension's XPU build is warned of"),
    ],
    "marenostrum": [
        ("mn5", "2.8.0a0+5228986c39.nv25.06 base pytorch:25.06-py3", "no torch of its own: NGC's is kept"),
        ("dawn", "2.8.0+xpu base intel-extension-for-pytorch:2.8.10-xpu", "no torch of its own: the image's is kept"),
        ("frontier", f"2.6.0 base {ROCM}", "no torch of its own: the image's is kept"),
        ("lumi-g", f"2.9.1+rocm6.4 conda {COTAINR}", "accelerate needs torch: the newest up to the safe ROCm 6.4"),
        ("local", f"2.14.1+cpu venv {PYTHON}", "accelerate needs torch: the newest that the tables are sure of"),
        ("mn5-gpp", f"2.14.1+cpu venv {PYTHON}", "the same"),
        ("lumi-c", "2.14.1+cpu conda ubuntu:24.04", "the same"),
    ],
    "nvidia-export": [
        ("mn5", f"2.4.1+cu121 conda {PYTHON}", "the highest CUDA of 2.4.1 up to the driver's own 12.2"),
        ("lumi-g", f"2.4.1+rocm6.1 conda {COTAINR}", "the port that LUMI's trainers do by hand: 6.1 is in the window"),
        ("frontier", f"2.4.1+rocm6.1 conda {CPE}", "2.4.1 has rocm6.0 and 6.1, and 6.1 is disputed: a warning"),
        ("dawn", "torch-build", "xpu wheels begin at 2.5, and no image of Intel's has 2.4"),
        ("local", f"2.4.1+cpu conda {PYTHON}", "Python 3.11 by conda; the CPU wheel"),
        ("mn5-gpp", f"2.4.1+cpu conda {PYTHON}", "the same"),
        ("lumi-c", "2.4.1+cpu conda ubuntu:24.04", "the same"),
    ],
}
SITES = ("dawn", "frontier", "local", "lumi-c", "lumi-g", "mn5", "mn5-gpp")  # those of the seeds, and their neighbours
CASES = [(seed, *line) for seed, lines in TABLE.items() for line in lines]


def outcome(seed: str, site: str, folder: Path) -> Target | UnsupportedError:
    file = folder / ("environment.yml" if "dependencies:" in SEEDS[seed] else "requirements.txt")
    file.write_text(SEEDS[seed])
    try:
        return resolve(load_recipe(file), load_site(site), context=Context())
    except UnsupportedError as error:
        return error


def told(answer: Target | UnsupportedError) -> str:
    if isinstance(answer, UnsupportedError):
        return " ".join(sorted({finding.code for finding in select_errors(answer.findings)}))
    torch = answer.environment.torch
    assert torch is not None
    return f"{torch.local} {answer.environment.place} {answer.base.reference.rpartition('/')[2]}"


def test_every_seed_is_written_down_for_every_site() -> None:
    assert set(TABLE) == set(SEEDS)
    for seed, lines in TABLE.items():
        assert sorted(site for site, _, _ in lines) == sorted(SITES), seed
    assert set(SITES) <= set(find_site_files())


@rows(("seed", "site", "expected", "why"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES])
def test_a_seed_becomes(seed: str, site: str, expected: str, why: str, tmp_path: Path) -> None:
    assert told(outcome(seed, site, tmp_path)) == expected, why


def target(seed: str, site: str, folder: Path) -> Target:
    answer = outcome(seed, site, folder)
    assert isinstance(answer, Target)
    return answer


def test_lumis_own_file_of_2026_is_built_with_a_warning(tmp_path: Path) -> None:
    found = target("lumi-rocm7.0", "lumi-g", tmp_path).findings
    assert [finding.code for finding in found if finding.level == "warning"] == ["rocm-unsafe"]


def test_the_wrappers_file_has_its_licence_and_index_mended(tmp_path: Path) -> None:
    built = target("tykky", "lumi-g", tmp_path)
    assert [finding.code for finding in built.findings] == ["channel-defaults", "torch-index", "unpinned"]
    assert built.environment.pip_options == ()
    assert built.environment.torch is not None
    assert built.environment.torch.index == "https://download.pytorch.org/whl/rocm6.2.4"


def test_the_port_of_an_nvidia_export_line_by_line(tmp_path: Path) -> None:
    built = target("nvidia-export", "lumi-g", tmp_path)
    became = {package.asked: package.became for package in built.packages}
    assert became == {
        "python=3.11.9": "python=3.11.9",
        "pytorch=2.4.1=py3.11_cuda12.1_cudnn9.1.0_0": "torch==2.4.1+rocm6.1",
        "torchvision=0.19.1=py311_cu121": "torchvision==0.19.1+rocm6.1",
        "pytorch-cuda=12.1": "-",
        "cuda-cudart=12.1.105=0": "-",
        "cuda-crt-tools=12.1": "-",
        "libcublas=12.1.0.26=0": "-",
        "numpy=1.26.4": "numpy=1.26.4",
        "nvidia-nccl-cu12==2.20.5": "-",
        "triton==3.0.0": "-",
        "accelerate==0.34.2": "accelerate==0.34.2",
        "channel pytorch": "-",
        "channel nvidia": "-",
    }
    assert built.environment.conda == ("python=3.11.9", "numpy=1.26.4", "pip")
    assert built.environment.pip_lines == ("accelerate==0.34.2",)
    assert built.environment.pip_options == ()


# Another driver, nothing else: in a user's own site, or on the command line.

DRIVERS = [
    ("lumi-g", "6.0", "torch==2.3.1", "2.3.1+rocm6.0", "KMD 6.0 serves 5.6 to 6.2, LUMI's until January 2026"),
    ("lumi-g", "6.3.60300-2084815", "torch==2.3.1", "torch-build", "today's"),
    ("lumi-g", "6.4", "torch==2.11.0", "2.11.0+rocm7.2", "KMD 6.4 serves up to 7.2"),
    ("lumi-g", "30.30.2", "torch==2.11.0", "2.11.0+rocm7.2", "KMD 30.30 serves up to 7.2"),
    ("frontier", "6.3.6", "torch==2.3.1", "2.3.1+rocm6.0", "amdgpu 6.3.6 came with ROCm 6.0: Frontier in early 2024"),
    ("frontier", "6.16.13", "torch==2.3.1", "torch-build", "today's"),
    ("frontier", "6.14.14", "torch==2.10.0", "2.10.0+rocm7.1", "KMD 30.10 serves up to 7.1"),
    ("mn5", "535.86.10", "torch==2.11.0", "2.11.0+cu128", "CUDA 12 by minor-version compatibility"),
    ("mn5", "580.65.06", "torch==2.11.0", "2.11.0a0+a6c236b9fd1.nv26.03", "CUDA 13 runs: an NGC image, the newest"),
    ("mn5", "580.65.06", "torch==2.9.1", "2.9.1+cu130", "no NGC image has 2.9.1; 13.0 is the driver's own"),
    ("mn5", "470.57.02", "torch==2.1.2", "2.1.2+cu118", "CUDA 12 needs driver 525"),
    ("mn5", "450.51.06", "torch==2.1.2", "torch-build", "below 450.80.02 even CUDA 11 does not run"),
]


def with_another_driver(site: str, driver: str, folder: Path) -> str:
    gpu = f'  driver: "{driver}"\n  driver_checked: "2026-11-20"\n'
    (folder / "mine.yaml").write_text(f"name: mine\nextends: {site}\ngpu:\n{gpu}")
    return str(folder / "mine.yaml")


@rows(("site", "driver", "line", "expected", "why"), DRIVERS)
def test_a_driver_changes_the_outcome(
    site: str, driver: str, line: str, expected: str, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(f"{line}\n")
    recipe = load_recipe(file)
    by_file = load_site(with_another_driver(site, driver, tmp_path))
    by_option = Context(driver=driver)
    for chosen, context in ((by_file, Context()), (load_site(site), by_option)):
        try:
            found = told(resolve(recipe, chosen, context=context)).split()[0]
        except UnsupportedError as error:
            found = told(error)
        assert found == expected, why


def test_another_driver_needs_another_date(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text('name: mine\nextends: lumi-g\ngpu: {driver: "6.4"}\n')
    with pytest.raises(ConfigError) as caught:
        load_site(str(mine))
    assert [finding.message for finding in caught.value.findings] == ["the driver is given, but not when it was seen"]


def test_windows_given_in_the_file_win_over_the_tables(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("torch==2.10.0\n")
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "name: mine\nextends: lumi-g\n"
        'gpu: {driver: "6.4", driver_checked: "2026-11", rocm: ["6.4", "7.1"], rocm_safe: "7.1"}\n'
    )
    built = resolve(load_recipe(file), load_site(str(mine)), context=Context())
    assert built.environment.torch_lines == ("torch==2.10.0+rocm7.1",)
    assert "rocm-unsafe" not in [finding.code for finding in built.findings]


def test_the_same_driver_changes_nothing() -> None:
    for name in find_site_files():
        site = load_site(name)
        if site.gpu is None or site.gpu.driver is None or site.gpu.other_driver:
            continue
        recipe = load_recipe(WILD / "nvidia-export.yml")
        answers = []
        for driver in ("", site.gpu.driver):
            try:
                answer = resolve(recipe, site, context=Context(driver=driver))
                answers.append(repr(dataclasses.replace(answer, context=Context())))
            except UnsupportedError as error:
                answers.append(repr(error.findings))
        assert answers[0] == answers[1], name
