"""Variables and modules for other Pythons of this machine: recipe prints and returns the same with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = Path(sys.executable).with_name("recipe")
FOREIGN = ("builder", "click", "yaml", "jinja2", "rich", "typing", "docker")
LINE = ("check", "lumi-g", "env.txt", "--format", "json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FOREIGN:
        path = tmp_path / "modules" / name / "__init__.py"
        path.parent.mkdir(parents=True)
        path.write_text(f"raise RuntimeError('another {name}')\n")
    (tmp_path / "env.txt").write_text("numpy==1.26.4\n")
    return tmp_path


def start(*words: str, folder: Path, **variables: str) -> tuple[int, str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    kept |= {"PYTHONDONTWRITEBYTECODE": "1", "XDG_CONFIG_HOME": str(folder / "config")}
    done = subprocess.run(
        [str(RECIPE), *words], env=kept | variables, cwd=folder, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYTHONPATH", "{0}/modules"),
        ("PYTHONPATH", "/nothere:{0}/modules:"),
        ("PYTHONINSPECT", "1"),
        ("PYTHONSTARTUP", "/nothere"),
        ("PYTHONSAFEPATH", "1"),
        ("PYTHONOPTIMIZE", "2"),
        ("PYTHONWARNINGS", "error"),
        ("PYTHONNOUSERSITE", "1"),
    ],
)
def test_a_variable_of_python_changes_nothing(folder: Path, name: str, value: str) -> None:
    variables = {name: value.format(folder)}
    for words in (LINE, ("check", "--help"), ("check", "nosite", "env.txt")):
        assert start(*words, folder=folder, **variables) == start(*words, folder=folder)


def test_recipe_is_found_where_pythonpath_alone_has_it(folder: Path) -> None:
    top = Path(__file__).parents[2]
    plain = start(*LINE, folder=folder)
    both = f"{folder}/modules:{top}"
    assert start(*LINE, folder=folder, PYTHONPATH=both) == plain
    assert start(*LINE, folder=folder, PYTHONPATH=both, PYTHONINSPECT="1") == plain


def test_layers_are_made_by_a_python_without_variables() -> None:
    from builder.sif.programs import clean_environment

    with pytest.MonkeyPatch.context() as patch:
        for name in ("PYTHONPATH", "PYTHONINSPECT", "PYTHONOPTIMIZE", "PYTHONHOME", "PYTHONPYCACHEPREFIX"):
            patch.setenv(name, "1")
        patch.setenv("PYTHONUSERBASE", "/own")
        found = {name: value for name, value in clean_environment().items() if name.startswith("PYTHON")}
    assert found | {"PYTHONDONTWRITEBYTECODE": "1"} == {"PYTHONUSERBASE": "/own", "PYTHONDONTWRITEBYTECODE": "1"}
