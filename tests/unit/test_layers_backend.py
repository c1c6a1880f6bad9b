"""The backend `layers`: what it refuses, what a conda environment and a lock become."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from builder.compile.compile import compile_plan
from builder.layers.conda_solver import CondaPackage
from builder.model.finding import UnsupportedError
from builder.model.lock import BaseLock, Lock
from builder.model.recipe import Recipe
from builder.model.site import Site
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.locked import make_lock_request
from builder.resolve.resolve import resolve


def recipe_of(tmp_path: Path, text: str) -> Recipe:
    path = tmp_path / "environment.yml"
    path.write_text(text, encoding="utf-8")
    return load_recipe(path, shown="environment.yml")


def pip_only(tmp_path: Path) -> Recipe:
    return recipe_of(tmp_path, "name: x\ndependencies: [{pip: [six==1.16.0]}]\n")


def site_with(layers: str) -> Site:
    local = load_site("local")
    return replace(local, runtime=replace(local.runtime, layers=layers))  # type: ignore[arg-type]


def test_layers_are_the_default_here(tmp_path: Path) -> None:
    plan = compile_plan(resolve(pip_only(tmp_path), site_with("yes"), context=Context()))
    assert plan.backend == "layers"
    assert plan.findings == ()
    document = json.loads(next(file.text for file in plan.files if file.path == "layers.json"))
    assert (document["place"], document["machine"], document["zstd"]) == ("venv", "x86_64", True)


def test_a_runtime_that_mounts_no_layers_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as caught:
        compile_plan(resolve(pip_only(tmp_path), site_with("no"), context=Context()))
    assert [finding.code for finding in caught.value.findings] == ["layers-runtime"]


def test_an_untested_runtime_is_a_warning(tmp_path: Path) -> None:
    plan = compile_plan(resolve(pip_only(tmp_path), site_with("unknown"), context=Context()))
    assert [(finding.code, finding.level) for finding in plan.findings] == [("layers-unproven", "warning")]


def test_what_a_conda_solver_is_asked_for_is_in_the_description(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "name: x\nchannels: [conda-forge]\ndependencies: [python=3.12, gdal=3.11]\n")
    plan = compile_plan(resolve(recipe, site_with("yes"), context=Context()))
    assert plan.backend == "layers"
    texts = {file.path: file.text for file in plan.files}
    document = json.loads(texts["layers.json"])
    assert (document["place"], document["python"]) == ("conda", "")
    assert document["conda"] == {
        "channels": ["conda-forge", "nodefaults"],
        "cuda": "",
        "packages": [],
        "platform": "linux-64",
        "specs": ["python=3.12", "gdal=3.11"],
    }
    # Nothing in a container reads these.
    assert not {"image/environment.yml", "image/conda-explicit.txt", "image/cuda-version"} & set(texts)
    pip = compile_plan(resolve(pip_only(tmp_path), site_with("yes"), context=Context()))
    assert json.loads(next(file.text for file in pip.files if file.path == "layers.json"))["conda"] == {}


def test_the_packages_of_a_lock_are_in_the_description(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "name: x\nchannels: [conda-forge]\ndependencies: [python=3.12, gdal=3.11]\n")
    target = resolve(recipe, site_with("yes"), context=Context())
    package = CondaPackage(
        name="gdal", version="3.11", build="h1", subdir="linux-64", url="https://x/linux-64/gdal-3.11-h1.conda",
        sha256="a" * 64, depends=("python",),
    )  # fmt: skip
    base = BaseLock(reference=target.base.reference)
    lock = Lock(site="local", recipe="", tool="", asked=make_lock_request(target), base=base, conda=(package,))
    plan = compile_plan(resolve(recipe, site_with("yes"), context=Context(lock=lock)))
    document = json.loads(next(file.text for file in plan.files if file.path == "layers.json"))
    (row,) = document["conda"]["packages"]
    assert (row["name"], row["sha256"], row["depends"]) == ("gdal", "a" * 64, ["python"])
