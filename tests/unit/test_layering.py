"""The backend `layers`: what it refuses, where another one takes over, what a lock becomes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from builder.compile.plan import compile_plan
from builder.model.catalog import load_site
from builder.model.finding import UnsupportedError
from builder.model.reading.load import load_recipe
from builder.model.recipe import Recipe
from builder.model.site import Site
from builder.model.target import Context
from builder.resolve.target import resolve


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


def test_a_runtime_that_nobody_saw_do_it_is_a_warning(tmp_path: Path) -> None:
    plan = compile_plan(resolve(pip_only(tmp_path), site_with("unknown"), context=Context()))
    assert [(finding.code, finding.level) for finding in plan.findings] == [("layers-unproven", "warning")]


def test_conda_takes_the_next_backend_unless_layers_were_asked_for(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, "name: x\nchannels: [conda-forge]\ndependencies: [python=3.12, gdal=3.11]\n")
    target = resolve(recipe, site_with("yes"), context=Context())
    assert target.backend == "apptainer"
    assert "layers-flat" in {finding.code for finding in target.findings}
    with pytest.raises(UnsupportedError) as caught:
        compile_plan(resolve(recipe, site_with("yes"), context=Context(backend="layers")))
    assert [finding.code for finding in caught.value.findings if finding.level == "error"] == ["layers-conda"]
