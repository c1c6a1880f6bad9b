"""How long Python itself takes: measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.matrix import ROOT

from builder.parse.recipe import load_recipe

REAL = ROOT / "tests" / "unit" / "wild" / "tykky_pytorch_rocm.yml"
SPEED = """
import sys, time
from pathlib import Path
from builder.parse.site import load_site, find_site_files
from builder.model.finding import BuilderError
from builder.parse.recipe import load_recipe
from builder.model.target import Context
from builder.resolve.resolve import resolve
recipe, sites = load_recipe(Path(sys.argv[1])), [load_site(name) for name in find_site_files()]
for _ in range(5):
    started = time.process_time()
    for site in sites:
        try:
            resolve(recipe, site, context=Context())
        except BuilderError:
            pass
    print(time.process_time() - started)
"""


@pytest.mark.parametrize("recipe", ["recipes/mnist.yml", "tests/recipes/full.yml"])
def test_all_checks_over_all_sites_take_less_than_50_ms(recipe: str) -> None:
    """The processor's time, on a machine that others use as well; tests/benchmarks/run.py has the rest."""
    done = subprocess.run(
        [sys.executable, "-c", SPEED, str(ROOT / recipe)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert min(float(line) for line in done.stdout.split()) < 0.05


def test_loading_is_quick_and_imports_little() -> None:
    load_recipe(REAL)
    best = min(_seconds() for _ in range(5))
    assert best < 0.05
    code = "import builder.parse.recipe, sys; print(sorted({'click', 'rich', 'jinja2'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def _seconds() -> float:
    started = time.perf_counter()
    load_recipe(REAL)
    return time.perf_counter() - started


def test_a_dry_run_loads_no_templates_and_no_pool(tmp_path: Path) -> None:
    (tmp_path / "env.yml").write_text("name: x\ndependencies: [python=3.12]\n")
    rare = {"jinja2", "concurrent.futures", "tempfile", "secrets", "rich", "urllib.request"}
    code = (
        "import sys; from builder.cli.main import run; sys.argv[1:] = ['build', '-n', 'local', 'env.yml'];"
        f"run(); print(sorted({rare!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout
