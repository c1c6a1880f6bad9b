"""What is judged of packages that no line of a recipe names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builder.layers.conda_solver import CondaPackage
from builder.model.lock import PipFile
from builder.model.target import Context, Target
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.checks.closure import judge_closure, judge_conda, list_served_torch, make_torch_limits
from builder.resolve.resolve import resolve

BASE = "docker://docker.io/library/python:3.12-slim-bookworm"


def target(tmp_path: Path, text: str, *, site: str = "mn5", name: str = "requirements.txt") -> Target:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return resolve(load_recipe(tmp_path / name), load_site(site), context=Context(base=BASE))


def file(name: str, version: str = "1.0", *, wheel: bool = True) -> PipFile:
    return PipFile(name=name, version=version, kind="wheel" if wheel else "sdist", url=f"https://x.y/{name}")


def codes(found: Target, *files: PipFile) -> list[tuple[str, str]]:
    requirers = {one.name: ("user",) for one in files}
    judged = judge_closure(found, files, requirers=lambda: requirers)
    assert all("(required by user)" in one.message for one in judged if one.code in ("default-wheel", "package-vendor"))
    return [(one.code, one.level) for one in judged]


def test_served_releases_become_a_constraint(tmp_path: Path) -> None:
    served = list_served_torch(target(tmp_path, "numpy\n"))
    assert "2.8.0" in served
    assert "2.15.0" not in served
    assert make_torch_limits(["2.6.0", "2.8.0"]) == ("torch>=2.6.0,<=2.8.0,!=2.7.0,!=2.7.1",)
    assert make_torch_limits([]) == ()


@pytest.mark.parametrize(
    ("site", "brought", "expected"),
    [
        ("mn5", (file("jax"), file("jaxlib")), [("default-wheel", "error")]),
        ("mn5", (file("jax"), file("jaxlib"), file("jax-cuda12-plugin")), []),
        ("frontier", (file("cupy-cuda12x"),), [("package-vendor", "error")]),
        ("mn5", (file("cudf-cu13"),), [("driver-disputed", "warning")]),
        ("mn5", (file("nvidia-cublas-cu12"), file("numpy")), []),
        ("local", (file("jax"), file("tensorflow"), file("onnxruntime")), []),
    ],
)
def test_what_a_package_requires_is_judged_as_a_line(
    site: str, brought: tuple[PipFile, ...], expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    found = target(tmp_path, "user==1.0\n", site=site)
    assert codes(found, file("user"), *brought) == expected


@pytest.mark.parametrize(("plugin", "wrong"), [("jax-rocm7-plugin", True), ("jax-rocm60-plugin", False)])
def test_a_plugin_for_another_rocm_than_that_of_the_image(plugin: str, wrong: bool, tmp_path: Path) -> None:
    found = target(tmp_path, "user==1.0\n", site="frontier")
    found = replace(found, base=replace(found.base, rocm="6.4.2"))
    assert codes(found, file("user"), file(plugin)) == ([("package-cuda", "error")] if wrong else [])


def test_a_line_of_the_recipe_is_not_judged_twice(tmp_path: Path) -> None:
    found = target(tmp_path, "jax==0.8.0\n", site="local")
    assert codes(found, file("jax", "0.8.0")) == []


def test_cpu_in_the_recipe_allows_a_framework_without_a_gpu(tmp_path: Path) -> None:
    text = "name: x\ndependencies: [pip: [user]]\ncontainer: {gpu: [nvidia, cpu]}\n"
    assert codes(target(tmp_path, text, name="x.yml"), file("user"), file("jax"), file("onnxruntime")) == []


def test_a_package_without_a_wheel_is_built_from_source(tmp_path: Path) -> None:
    found = target(tmp_path, "user==1.0\n")
    assert codes(found, file("user"), file("odd", wheel=False)) == [("build-needs", "warning")]


@pytest.mark.parametrize(
    ("site", "build", "refused"),
    [("frontier", "cpu_mkl_py312", True), ("mn5", "cpu_mkl_py312", True), ("mn5", "cuda126_py312", False)],
)
def test_a_torch_that_conda_brings(site: str, build: str, refused: bool, tmp_path: Path) -> None:
    text = "name: x\nchannels: [conda-forge]\ndependencies: [python=3.12, fairscale, ffmpeg]\n"
    found = target(tmp_path, text, site=site, name="x.yml")

    def package(name: str, build: str, *depends: str) -> CondaPackage:
        return CondaPackage(
            name=name, version="1.0", build=build, subdir="linux-64", url="", sha256="", md5="", size=0,
            depends=depends, license="",
        )  # fmt: skip

    told = judge_conda(found, [package("fairscale", "py_0", "pytorch >=2"), package("pytorch", build)])
    assert [one.code for one in told] == (["conda-default"] if refused else [])
    assert all("fairscale of conda requires conda's pytorch 1.0" in one.message for one in told)


def test_a_torch_that_was_looked_up_is_planned(tmp_path: Path) -> None:
    plain = target(tmp_path, "user==1.0\n", site="frontier")
    context = replace(plain.context, brought=("torch==2.8.0",))
    found = resolve(plain.recipe, plain.site, context=context)
    assert (plain.environment.torch_lines, found.environment.torch_lines) == ((), ("torch==2.8.0+rocm6.4",))
    assert [code for code, _ in codes(found, file("user"), file("torch", "2.8.0+rocm6.4"))] == ["torch-brought"]
    named = target(tmp_path, "torch==2.7.1\nuser==1.0\n", site="frontier")
    again = resolve(named.recipe, named.site, context=context)
    assert again.environment.torch_lines == named.environment.torch_lines
