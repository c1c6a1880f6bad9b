"""A pixi.toml, or the [tool.pixi] of a pyproject.toml, as the environment file."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rows import rows

from builder.cli.main import run
from builder.model.recipe import InputChoice, Recipe
from builder.parse.recipe import load_recipe

WORKSPACE = """[workspace]
name = "sim"
channels = ["nvidia", { channel = "conda-forge", priority = 2 }]
platforms = ["linux-64", "linux-aarch64"]

[dependencies]
python = "3.12.*"
numpy = ">=1.26, <3"
hdf5 = { version = ">=1.14", build = "mpi_openmpi*", channel = "conda-forge" }

[pypi-dependencies]
torch = "==2.6.0"
einops = { version = "*", extras = ["x"], env-markers = "sys_platform == 'linux'" }
mine = { path = ".", editable = true }
other = { git = "https://x.org/other", rev = "abc" }

[target.linux-64.dependencies]
mkl = "*"
[target.linux-64.pypi-dependencies]
only = "==1"
[target.osx-arm64.dependencies]
not-here = "*"

[feature.plots]
channels = ["bioconda"]
[feature.plots.dependencies]
matplotlib = "*"
numpy = ">=2"
[feature.plots.activation.env]
MPLBACKEND = "Agg"
[feature.test.dependencies]
pytest = "*"

[environments]
plots = ["plots"]
lean = { features = ["test"], no-default-feature = true }
"""


def load(folder: Path, text: str = WORKSPACE, name: str = "pixi.toml", **chosen: str) -> Recipe:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    (folder / "setup.py").touch()  # so that the folder is a package
    return load_recipe(path, choice=InputChoice(**chosen))  # type: ignore[arg-type]


def conda(recipe: Recipe) -> list[str]:
    return [spec.text for spec in recipe.conda]


def test_the_default_environment_is_read(tmp_path: Path) -> None:
    recipe = load(tmp_path)
    assert (recipe.name, recipe.channels) == ("sim", ("conda-forge", "nvidia"))
    plain = ["python 3.12.*", "numpy >=1.26,<3", "conda-forge::hdf5 >=1.14 mpi_openmpi*"]
    assert conda(recipe) == [*plain, "mkl"]
    assert [line.text for line in recipe.pip] == [
        "torch==2.6.0",
        'einops[x] ; sys_platform == "linux"',
        "-e .",
        "other @ git+https://x.org/other@abc",
        "only==1",
    ]
    assert [line.name for line in recipe.pip] == ["torch", "einops", "mine", "other", "only"]
    assert [spec.line for spec in recipe.conda] == [7, 8, 9, 18]


def test_each_processor_has_its_own_packages(tmp_path: Path) -> None:
    recipe = load(tmp_path)
    other = recipe.select_processor("aarch64")
    assert "mkl" in conda(recipe.select_processor("x86_64"))
    assert "mkl" not in conda(other)
    assert "only==1" not in [line.text for line in other.pip]
    assert recipe.digest == other.digest
    same = load(tmp_path, WORKSPACE.replace("linux-64.", "linux."))
    assert (dict(same.by_processor), "mkl" in conda(same)) == ({}, True)


def test_an_environment_has_its_features_and_the_default_one(tmp_path: Path) -> None:
    recipe = load(tmp_path, environment="plots")
    assert (recipe.name, recipe.variables) == ("sim-plots", {"MPLBACKEND": "Agg"})
    assert recipe.channels == ("conda-forge", "bioconda", "nvidia")
    assert conda(recipe)[:2] == ["matplotlib", "numpy >=2,>=1.26,<3"]
    assert recipe.options == ("--environment", "plots")
    assert recipe.select_processor("aarch64").options == recipe.options


def test_an_environment_may_leave_the_default_feature_out(tmp_path: Path) -> None:
    recipe = load(tmp_path, environment="lean")
    assert (conda(recipe), recipe.pip) == (["pytest"], ())


def test_system_requirements_and_scripts_are_said_to_be_unused(tmp_path: Path) -> None:
    text = WORKSPACE + '[system-requirements]\ncuda = "12"\n[activation]\nscripts = ["x.sh"]\n'
    found = {
        (finding.code, finding.level, finding.at.line if finding.at else 0) for finding in load(tmp_path, text).warnings
    }
    assert {
        ("pixi-system", "note", WORKSPACE.count("\n") + 1),
        ("pixi-activation", "warning", WORKSPACE.count("\n") + 4),
    } <= found


PROJECT = """[project]
name = "app"
requires-python = ">=3.11"
dependencies = ["einops"]
[project.optional-dependencies]
plots = ["seaborn"]
[dependency-groups]
test = ["pytest", { include-group = "lint" }]
lint = ["ruff"]
[tool.pixi.workspace]
channels = ["conda-forge"]
platforms = ["linux-64"]
[tool.pixi.dependencies]
numpy = "*"
[tool.pixi.environments]
all = ["plots", "test"]
"""


@rows(
    ("environment", "pip", "name"),
    [("", ["einops"], "app"), ("all", ["seaborn", "pytest", "ruff", "einops"], "app-all")],
)
def test_tool_pixi_adds_to_the_project(tmp_path: Path, environment: str, pip: list[str], name: str) -> None:
    recipe = load(tmp_path, PROJECT, name="pyproject.toml", environment=environment)
    assert (recipe.name, [line.text for line in recipe.pip]) == (name, pip)
    assert conda(recipe) == ["python>=3.11", "numpy"]


def test_a_pixi_project_may_be_read_as_a_plain_one(tmp_path: Path) -> None:
    recipe = load(tmp_path, PROJECT, name="pyproject.toml", kind="pyproject")
    assert (conda(recipe), [line.text for line in recipe.pip], recipe.channels) == (["python>=3.11"], ["einops"], ())


def test_sites_of_two_processors_have_what_is_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    load(tmp_path, WORKSPACE.replace('mine = { path = ".", editable = true }\n', ""))
    assert run(["check", "lumi-g", "jupiter", "pixi.toml", "--explain"]) in (0, 3)
    lumi, jupiter = capsys.readouterr().out.split("\njupiter:")
    assert "mkl" in lumi
    assert "mkl" not in jupiter
