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
    for _ in range(1_000_000):
        pass
    begun = time.process_time()
    for site in sites:
        try:
            resolve(recipe, site, context=Context())
        except BuilderError:
            pass
    print(begun - started, time.process_time() - begun)
"""


@pytest.mark.parametrize("recipe", ["recipes/mnist.yml", "tests/recipes/full.yml"])
def test_all_checks_over_all_sites_take_milliseconds(recipe: str) -> None:
    """In units of a loop of a million turns, which takes 20 ms of an ordinary processor's time."""
    done = subprocess.run(
        [sys.executable, "-c", SPEED, str(ROOT / recipe)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loops, checks = zip(*(map(float, line.split()) for line in done.stdout.splitlines()), strict=True)
    assert min(checks) < 4 * min(loops)


def test_loading_is_quick_and_imports_little() -> None:
    load_recipe(REAL)
    assert min(_seconds() for _ in range(5)) < 0.05  # 1.5 ms on an ordinary machine
    code = "import builder.parse.recipe, sys; print(sorted({'click', 'rich', 'jinja2'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def _seconds() -> float:
    started = time.process_time()
    load_recipe(REAL)
    return time.process_time() - started


def test_a_dry_run_loads_no_templates_and_no_pool(tmp_path: Path) -> None:
    (tmp_path / "env.yml").write_text("name: x\ndependencies: [python=3.12]\n")
    rare = {"jinja2", "concurrent.futures", "tempfile", "secrets", "rich", "urllib.request"}
    rare |= {f"builder.execute.{name}" for name in ("docker_daemon", "doctor_readings", "image_scan", "judgement")}
    code = (
        "import sys; from builder.cli.main import run; sys.argv[1:] = ['build', '-n', 'local', 'env.yml'];"
        f"run(); print(sorted({rare!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout
