"""What a program that enters containers by itself (cotainr, tykky) gives them of pip's settings and of caches."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from builder.compile.render import verbatim
from builder.compile.scripts import own_caches
from builder.model.catalog import load_site
from builder.model.reading.load import load_recipe
from builder.model.target import Context
from builder.resolve.target import resolve

SETTINGS = {
    "PIP_INDEX_URL": "https://me:S3CRET@index.example/simple",
    "UV_INDEX": "https://S3CRET@index.example/more",
    "PIP_CACHE_DIR": "/shared/pip",
    "UV_CACHE_DIR": "/shared/uv",
    "CONDA_PKGS_DIRS": "/shared/pkgs",
}


@pytest.mark.parametrize(("pip", "seen"), [("", False), ("  - pip: [six]\n", True)])
def test_security_04_a_login_is_in_sight_only_where_pip_needs_it(tmp_path: Path, pip: str, seen: bool) -> None:
    env = tmp_path / "environment.yml"
    env.write_text(f"name: x\nchannels: [conda-forge]\ndependencies:\n  - python=3.12\n{pip}")
    target = resolve(load_recipe(env), load_site("lumi-g"), context=Context(backend="cotainr"))
    (tmp_path / "engine.sh").write_text(verbatim("engine.sh"))
    lines = ["set -euo pipefail", ". ./engine.sh", "flavour=SINGULARITY", "work=$PWD", *own_caches(target)]
    script = "\n".join([*lines, "through_environment", "env"])
    own = {"PATH": os.environ["PATH"], **SETTINGS}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=own, capture_output=True, text=True, check=True)
    assert ("S3CRET" in done.stdout) is seen
    assert ("SINGULARITYENV_PIP_INDEX_URL=" in done.stdout) is seen
    assert "/shared" not in done.stdout
    assert "PIP_NO_CACHE_DIR=1\n" in done.stdout
