"""Pinned releases: the index that has them, the ROCm and the Python of their wheels, and builds of no use on CPUs."""

from __future__ import annotations

from pathlib import Path

from support.rows import rows

from builder.lock.session import make_unreachable_error
from builder.model.finding import Finding, UnsupportedError
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.checks.closure import make_unknown_finding
from builder.resolve.resolve import resolve

RADEON = "--find-links https://repo.radeon.com/rocm/manylinux/rocm-rel-6.4/"
AMD = "--extra-index-url https://pypi.amd.com/simple"
WHEEL = (
    "https://repo.radeon.com/rocm/manylinux/rocm-rel-6.4.1/tensorflow_rocm-2.18.1-cp312-cp312-manylinux_2_28_x86_64.whl"
)


def find(
    folder: Path, site: str, *pip: str, conda: tuple[str, ...] = ("python=3.12",), base: str = "", backend: str = ""
) -> list[Finding]:
    """The errors and warnings of an environment.yml."""
    text = "name: demo\nchannels: [conda-forge]\ndependencies:\n" + "".join(f"  - {one}\n" for one in conda)
    text += "  - pip:\n" + "".join(f"    - {one}\n" for one in pip) if pip else ""
    (folder / "environment.yml").write_text(text)
    try:
        found = resolve(
            load_recipe(folder / "environment.yml"), load_site(site), context=Context(base=base, backend=backend)
        ).findings
    except UnsupportedError as error:
        found = error.findings
    return [one for one in found if one.level != "note"]


@rows(
    ("pip", "code"),
    [
        ((RADEON, "tensorflow-rocm==2.18.1"), ""),
        ((RADEON, "tensorflow-rocm==2.18.1", "torch==2.6"), "package-cuda"),  # its image has ROCm 6.2.4
        ((f"tensorflow-rocm @ {WHEEL}", "torch==2.6"), "package-cuda"),
        (("tensorflow-rocm==2.18.1",), "default-wheel"),
        (("amd-cupy",), "default-wheel"),
        (("amd-cupy==13.5.1",), "default-wheel"),
        ((AMD, "amd-cupy==13.5.1"), ""),
    ],
)
def test_amds_own_addresses_decide(tmp_path: Path, pip: tuple[str, ...], code: str) -> None:
    assert [one.code for one in find(tmp_path, "lumi-g", *pip)] == ([code] if code else [])


def test_the_base_image_that_the_fix_names_is_accepted(tmp_path: Path) -> None:
    pip = (RADEON, "tensorflow-rocm==2.18.1", "torch==2.6")
    (found,) = find(tmp_path, "lumi-g", *pip)
    base = (found.fix or "").removeprefix("use the base image ")
    assert find(tmp_path, "lumi-g", *pip, base=base) == []


@rows(
    ("line", "python", "newest"),
    [
        ("tensorflow==2.15.1", "3.12", "3.11"),
        ("tensorflow==2.16.*", "3.12", ""),
        ("tensorflow-cpu==2.19.0", "3.13", "3.12"),
        ("tensorflow==2.20.0", "3.13", ""),
    ],
)
def test_a_release_needs_a_python_that_it_has_a_wheel_for(tmp_path: Path, line: str, python: str, newest: str) -> None:
    found = find(tmp_path, "local", line, conda=(f"python={python}",))
    assert [one.fix.partition(",")[0] for one in found if one.fix] == ([f"write python={newest}"] if newest else [])


@rows("site", ["local", "lumi-c", "mn5-gpp"])
def test_builds_for_gpus_only_are_a_warning_on_cpus(tmp_path: Path, site: str) -> None:
    conda = ("python=3.12", "rapids=24.10", "cupy=13.3", "dask-cudf=24.10", "numpy=2.1")
    found = [one for one in find(tmp_path, site, conda=conda) if one.code != "conda-cuda"]
    assert [(one.code, one.level) for one in found] == [("conda-default", "warning")] * 3
    assert [one.code for one in find(tmp_path, site, "vllm==0.8.0")] == ["package-vendor"]
    assert find(tmp_path, site, "vllm==0.13.0+cpu", "bitsandbytes==0.50.2") == []


@rows("backend", ["cotainr", "tykky", "layers"])
@rows("line", ["torch-scatter", "flash-attn", "deepspeed", "horovod"])
def test_no_fix_names_a_backend_that_cannot_compile(tmp_path: Path, backend: str, line: str) -> None:
    found = find(tmp_path, "lumi-g", "torch==2.6.0", line, backend=backend)
    fixes = [one.fix or "" for one in found if one.code in ("build-needs", "layers-fakeroot")]
    assert fixes
    assert not [fix for fix in fixes if "build with --backend layers, which" in fix or "use --backend" in fix]


@rows("site", ["local", "mn5", "lumi-c"])
def test_wheels_are_named_for_the_torch_that_is_asked_for(tmp_path: Path, site: str) -> None:
    found = find(tmp_path, site, "torch==2.6.0", "torch-scatter", conda=("python=3.14",))
    assert {one.code for one in found} >= {"torch-python", "build-needs"}
    assert ["torch-2.6.0+" in one.fix for one in found if one.code == "build-needs"] == [True]


def test_what_was_not_looked_up_names_no_option_of_locks() -> None:
    reason = make_unreachable_error("an index", "https://download.pytorch.org/whl/cpu/: no answer").findings[0]
    assert "--offline" in reason.fix
    fix = make_unknown_finding("the packages", reason).fix
    assert fix == (
        "check where it can be reached, or set https_proxy (check it if it is set), "
        "or RECIPE_TORCH_INDEX to a mirror of PyTorch's wheels"
    )


@rows("spec", ["jaxlib=0.4.31=cuda126py312_0", "tensorflow=2.17.0=cuda120py312_0", "cupy=13.3=cuda_0"])
def test_no_build_string_is_named_where_each_is_refused(tmp_path: Path, spec: str) -> None:
    found = find(tmp_path, "lumi-g", conda=("python=3.12", spec))
    assert [(one.code, one.fix.startswith("for AMD there is: ")) for one in found] == [("conda-default", True)]
    name = spec.partition("=")[0]
    assert [one.code for one in find(tmp_path, "dawn", conda=("python=3.12", spec))] == ["conda-default"], name


def test_operators_compiled_at_run_time_need_a_compiler(tmp_path: Path) -> None:
    found = find(tmp_path, "local", "torch==2.8.0", "deepspeed==0.17.5")
    assert "by a compiler, which 'docker://docker.io/library/python:3.12-slim-bookworm' does not have" in found[0].fix
    (found,) = [one for one in find(tmp_path, "mn5", "pycuda==2025.1") if one.code == "build-needs"]
    assert found.fix.startswith("choose a base image with nvcc (docker://nvcr.io/nvidia/pytorch:")


@rows(
    ("site", "python", "line", "said"),
    [
        ("local", "3.13", "numba==0.59.1", "the newest one that it has is for Python 3.12"),
        ("local", "3.13", "numba==0.59", "the newest one that it has is for Python 3.12"),
        ("local", "3.12", "numba==0.59.1", ""),
        ("local", "3.13", "numba==0.61.0", ""),
        ("lumi-g", "3.12", "jax[rocm]==0.7.0", "the index has no plug-in for it between 0.5.0 and 0.9.1"),
        ("lumi-g", "3.12", "jax[rocm]==0.9.0", "the index has no plug-in for it between 0.5.0 and 0.9.1"),
        ("lumi-g", "3.12", "jax[rocm]==0.5.0", ""),
    ],
)
def test_a_release_that_cannot_be_installed_is_refused(
    tmp_path: Path, site: str, python: str, line: str, said: str
) -> None:
    path = tmp_path / "x.yml"
    path.write_text(f"dependencies:\n  - python={python}\n  - pip: ['{line}']\n", encoding="utf-8")
    try:
        found = resolve(load_recipe(path), load_site(site), context=Context(tool="recipe 0.0.0")).findings
    except UnsupportedError as error:
        found = error.findings
    told = [finding.message for finding in found if finding.code == "default-wheel"]
    assert len(told) == bool(said)
    assert not said or said in told[0]
