"""What takes the place of another vendor's package, and when it does not; what conda is told; doubts of drivers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.version import Version
from support.rows import rows

from builder.cli.output import format_finding
from builder.compile.compile import compile_plan
from builder.model.finding import BuilderError, Finding
from builder.model.plan import Plan
from builder.model.target import Context, Target
from builder.parse.gpu_tables import load_package_table
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve

ROCM_7 = next(image.reference for image in load_site("lumi-g").base_images if image.rocm == "7.0")
NGC = "docker://nvcr.io/nvidia/pytorch:25.06-py3"
Resolve = Callable[..., Target]


@pytest.fixture
def target(tmp_path: Path) -> Resolve:
    def go(site: str, *lines: str, python: str = "3.12", conda: str = "", own_site: str = "", **context: str) -> Target:
        path = tmp_path / "environment.yml"
        pip = "".join(f"    - '{line}'\n" for line in lines)
        text = f"name: demo\nchannels: [conda-forge]\ndependencies:\n  - python={python}\n"
        text += "".join(f"  - {name}\n" for name in conda.split())
        path.write_text(text + (f"  - pip:\n{pip}" if lines else ""))
        if own_site:
            (tmp_path / f"{site}.yaml").write_text(f"name: {site}\n{own_site}")
            site = str(tmp_path / f"{site}.yaml")
        return resolve(load_recipe(path, shown="demo"), load_site(site), context=Context(**context))

    return go


def said(findings: tuple[Finding, ...], code: str) -> list[str]:
    return ["\n".join(format_finding(finding)) for finding in findings if finding.code == code]


REPLACED = [
    # site, base image, Python, asked, became, level
    ("lumi-g", "", "3.12", "jax[cuda12]==0.5.0", "jax[rocm]==0.5.0", "warning"),
    ("frontier", "", "3.11", "jax[cuda12,k8s]==0.5.0", "jax[k8s,rocm]==0.5.0", "warning"),
    ("lumi-g", ROCM_7, "3.12", "jax[cuda13]>=0.9,<0.9.2", "jax[rocm]==0.9.1", "warning"),
    ("lumi-g", ROCM_7, "3.11", "jax[cuda13]>=0.9", "jax[rocm7-local]==0.10.2", "warning"),
    ("lumi-g", ROCM_7, "3.12", "jax[cuda12]>=0.10", "jax[rocm7-local]==0.12.0", "warning"),
    ("lumi-g", ROCM_7, "3.12", "cupy-cuda12x==14.1.0", "cupy-rocm-7-0==14.1.0", "note"),
    ("lumi-g", ROCM_7, "3.12", "cupy-cuda12x>=13,<14.1", "cupy-rocm-7-0==14.0.1", "note"),
    ("lumi-g", ROCM_7, "3.12", "cupy-cuda11x", "cupy-rocm-7-0==14.2.0", "note"),
    ("mn5", "", "3.12", "cupy-rocm-7-0==14.1.0", "cupy-cuda12x[ctk]==14.1.0", "note"),
    ("mn5", "", "3.12", "jax[rocm]==0.6.2", "jax[cuda12]==0.6.2", "note"),
    ("mn5", "", "3.12", "cupy>=14.1", "cupy-cuda12x[ctk]>=14.1", "note"),
    ("mn5", NGC, "3.12", "cupy==13.6.0", "cupy-cuda12x==13.6.0", "note"),
    ("lumi-g", ROCM_7, "3.12", "cupy", "cupy-rocm-7-0==14.2.0", "note"),
    ("local", "", "3.12", "jax[rocm]==0.6.2", "jax==0.6.2", "note"),
    ("local", "", "3.12", "onnxruntime-gpu>=1.20", "onnxruntime>=1.20", "note"),
    ("local", "", "3.12", "onnxruntime-migraphx==1.24.4", "onnxruntime==1.24.4", "note"),
    ("local", "", "3.11", "tensorflow-rocm==2.14.0.600", "tensorflow==2.14.0", "note"),
]


@rows(("site", "base", "python", "asked", "became", "level"), REPLACED)
def test_a_counterpart_takes_its_place(
    target: Resolve, site: str, base: str, python: str, asked: str, became: str, level: str
) -> None:
    found = target(site, asked, python=python, base=base)
    assert found.environment.pip_lines == (became,)
    (told,) = [package for package in found.packages if package.asked == asked]
    assert told.became == became
    assert told.why.startswith("its counterpart ")
    (finding,) = [finding for finding in found.findings if finding.code == "package-counterpart"]
    assert (finding.level, finding.at and finding.at.line) == (level, 6)
    assert f"it is replaced by '{became}'" in finding.message
    assert not [finding for finding in found.findings if finding.code in ("package-vendor", "default-wheel")]


REFUSED = [
    ("lumi-g", "", "3.12", "cupy-cuda12x==14.1.0"),  # the image brings ROCm 6.4
    ("lumi-g", ROCM_7, "3.12", "cupy-cuda12x==13.6.0"),  # no such release of the counterpart
    ("lumi-g", ROCM_7, "3.12", "cupy-cuda12x<14"),
    ("lumi-g", ROCM_7, "3.14", "cupy-cuda12x==14.1.0"),  # no file for that Python
    ("lumi-g", "docker://example.org/own:1", "3.12", "cupy-cuda12x==14.1.0"),  # who knows what it brings
    ("lumi-g", ROCM_7, "3.12", "jax[cuda12]==0.5.0"),  # its plug-in is for ROCm 6
    ("lumi-g", "", "3.12", "jax[cuda12]==0.6.2"),  # its plug-in was never published
    ("lumi-g", "", "3.11", "tensorflow[and-cuda]==2.14.0"),  # ROCm 6.0 lies outside the driver's window
    ("lumi-g", "", "3.12", "onnxruntime-gpu==1.22.0"),  # a program asks for its provider by name
    ("dawn", "", "3.12", "onnxruntime-gpu==1.22.0"),
    ("dawn", "", "3.12", "cupy-cuda12x==14.1.0"),
]


@rows(("site", "base", "python", "asked"), REFUSED)
def test_where_nothing_corresponds_the_counterpart_is_only_named(
    target: Resolve, site: str, base: str, python: str, asked: str
) -> None:
    with pytest.raises(BuilderError) as caught:
        target(site, asked, python=python, base=base)
    assert "package-vendor" in [finding.code for finding in caught.value.findings]


def test_a_driver_that_does_not_run_the_counterpart(target: Resolve) -> None:
    with pytest.raises(BuilderError) as caught:
        target("mn5", "jax[rocm]==0.6.2", driver="470.57.02")
    assert "package-vendor" in [finding.code for finding in caught.value.findings]


def test_the_rows_name_packages_that_the_markers_know() -> None:
    table = load_package_table()
    for row in table.counterparts:
        assert row.versions == tuple(sorted(row.versions, key=Version)), row
        assert not row.rocm or row.vendor == "amd", row
        assert not row.cuda or row.vendor == "nvidia", row
        assert not (row.gains and row.becomes != "jax"), row
        # What is replaced is somebody else's, by the markers.
        names = [marker for marker in table.markers if marker.kind == "pip" and marker.vendor != row.vendor]
        forms = [form.rstrip("*") for marker in names for form in marker.pattern.split()]
        assert [form for form in forms if form in row.name or row.name in form], row


# conda


def overrides(plan: Plan) -> set[str]:
    return {
        line.split("#")[0].strip()
        for file in plan.files
        for line in file.text.splitlines()
        if "CONDA_OVERRIDE_CUDA=" in line
    }


def test_conda_is_told_the_sites_cuda_and_it_is_said(target: Resolve) -> None:
    found = target("mn5", conda="jax=0.6.2")
    assert said(found.findings, "conda-cuda")[0].startswith(
        "note: conda's solver uses CUDA 12.2, which the driver of 'mn5'"
    )
    assert next(file.text for file in compile_plan(found).files if file.path == "image/cuda-version") == "12.2\n"


def test_conda_gets_another_driver_too(target: Resolve) -> None:
    found = target("mn5", conda="jax=0.6.2", driver="580.65.06")
    assert "conda's solver uses CUDA 13.0" in said(found.findings, "conda-cuda")[0]


def test_an_unknown_driver_is_a_warning(target: Resolve) -> None:
    own = "extends: mn5\ngpu: {driver: unknown, cuda_native: unknown}\n"
    found = target("mine", conda="jax=0.6.2", own_site=own)
    assert said(found.findings, "conda-cuda")[0].startswith(
        "warning: the CUDA that the driver of 'mine' serves is unknown"
    )


def test_without_packages_of_condas_nothing_is_said(target: Resolve) -> None:
    assert said(target("mn5", "numpy==2.2.0").findings, "conda-cuda") == []
    assert said(target("frontier", conda="numpy=2.2").findings, "conda-cuda") == []


def test_cotainr_is_told_as_well(target: Resolve) -> None:
    own = "extends: mn5\nbuild: {backends: [cotainr]}\n"
    plan = compile_plan(target("mine", conda="numpy=2.2", own_site=own))
    assert overrides(plan) == {"export CONDA_OVERRIDE_CUDA=12.2"}
    assert overrides(compile_plan(target("lumi-g", conda="numpy=2.2"))) == {"export CONDA_OVERRIDE_CUDA="}


# what the tables are not certain of in a driver


@rows(
    ("site", "driver", "doubt"),
    [
        ("lumi-g", "30.20", "the driver 30.20 are not certain: the ROCm it serves: older than 7.1"),
        ("lumi-g", "6.4", ""),
        ("lumi-g", "30.10", ""),
        ("frontier", "6.14.14", "the driver 6.14.14 are not certain: which ROCm brought it: rocm_kmd"),
        ("lumi-g", "6.3", ""),
        ("lumi-g", "30.30", ""),
        ("mn5", "535.86.10", ""),
        ("mn5", "580.65.06", ""),
    ],
)
def test_an_uncertain_driver_is_said(target: Resolve, site: str, driver: str, doubt: str) -> None:
    told = said(target(site, "torch==2.8.0", driver=driver).findings, "table-unsure")
    found = [text for text in told if "the driver" in text]
    assert doubt in "".join(found)
    assert bool(found) == bool(doubt)


def test_an_uncertain_driver_is_said_with_the_refusal(target: Resolve) -> None:
    with pytest.raises(BuilderError) as caught:
        target("lumi-g", "torch==2.8.0", driver="31.30")
    assert [finding.code for finding in caught.value.findings] == ["torch-build", "table-unsure"]


def test_without_torch_no_driver_decides(target: Resolve) -> None:
    assert said(target("lumi-g", "six==1.16.0", driver="30.20").findings, "table-unsure") == []
