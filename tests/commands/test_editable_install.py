"""`pip install -e .` uses sites/ and recipes/ of the checkout, in an environment that has nothing else of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("builder", "hpc_recipe.py", "recipes", "sites", "docs/checks", "pyproject.toml", "README.md")
# pip, hatchling and the dependencies are those of the tests' environment; its own .pth files have no effect here.
LIBRARIES = sysconfig.get_path("purelib")


def run(*words: str | Path, cwd: Path) -> str:
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "PYTHONPATH": LIBRARIES, "PIP_NO_INDEX": "1"}
    done = subprocess.run(list(map(str, words)), cwd=cwd, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the package is made from."""
    for name in SOURCES:
        target = tmp_path / "checkout" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    return tmp_path / "checkout"


def test_an_editable_install_reads_the_checkout(checkout: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    python, recipe = tmp_path / "venv" / "bin" / "python", tmp_path / "venv" / "bin" / "recipe"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "-e", checkout, cwd=tmp_path)
    assert (
        Path(run(python, "-c", "import builder; print(builder.__file__)", cwd=tmp_path).strip()).parents[1] == checkout
    )
    # hatchling also copies what force-include names, as it is now: nothing may read that copy.
    site = (checkout / "sites" / "local.yaml").read_text(encoding="utf-8")
    (checkout / "sites" / "nearby.yaml").write_text(site.replace("name: local", "name: nearby"), encoding="utf-8")
    (checkout / "recipes" / "mine.yml").write_text("# Mine.\nname: mine\ndependencies: [python]\n", encoding="utf-8")
    (checkout / "recipes" / "mnist.yml").unlink()
    listed = [line.split()[0] for line in run(recipe, "sites", cwd=tmp_path).splitlines() if line.strip()]
    assert {"local", "nearby", "lumi-g"} <= set(listed)
    examples = run(recipe, "init", "--list", cwd=tmp_path)
    assert "mine: Mine." in examples
    assert "mnist:" not in examples
