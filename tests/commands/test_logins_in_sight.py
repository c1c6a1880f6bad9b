"""What a program that enters containers by itself (cotainr, tykky) gives them of pip's settings and of caches."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from pathlib import Path

import pytest
from support.matrix import recipes, target_plan

from builder.compile.render import read_template
from builder.compile.step_scripts import isolate_caches
from builder.model.target import Context
from builder.parse.recipe import load_recipe
from builder.parse.site import load_site
from builder.resolve.resolve import resolve

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
    (tmp_path / "engine.sh").write_text(read_template("engine.sh"))
    lines = ["set -euo pipefail", ". ./engine.sh", "flavour=SINGULARITY", "work=$PWD", *isolate_caches(target)]
    script = "\n".join([*lines, "through_environment", "env"])
    own = {"PATH": os.environ["PATH"], **SETTINGS}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=own, capture_output=True, text=True, check=True)
    assert ("S3CRET" in done.stdout) is seen
    assert ("SINGULARITYENV_PIP_INDEX_URL=" in done.stdout) is seen
    assert "/shared" not in done.stdout
    assert "PIP_NO_CACHE_DIR=1\n" in done.stdout


BUILD = """
. ./engine.sh
flavour=APPTAINER work=$PWD/work
mkdir "$work"
inside_build
printf '%s\\n' "${build_binds[@]}"
env
"""


def test_security_04_a_build_sees_no_login_and_writes_no_cache_of_others(tmp_path: Path) -> None:
    (tmp_path / "engine.sh").write_text(read_template("engine.sh"))
    own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "RECIPE_CACHE_DIR": str(tmp_path / "cache"), **SETTINGS}
    own |= {"UV_FIND_LINKS": "https://me:S3CRET@files.example/", "UV_DEFAULT_INDEX": "https://S3CRET@index.example/x"}
    done = subprocess.run(
        ["bash", "-euc", BUILD], cwd=tmp_path, env=own, capture_output=True, text=True, check=True, umask=0o022
    )
    binds = [line.split(":") for line in done.stdout.splitlines() if line.startswith(f"{tmp_path}/") and ":/" in line]
    seen = {inside: (Path(outside), rest) for outside, inside, *rest in binds}
    assert {inside for inside, (_, rest) in seen.items() if rest != ["ro"]} == {
        "/tmp",
        "/var/tmp",
        "/dev/shm",
        "/mnt/cache",
        "/mnt/answer",
    }
    work = tmp_path / "work"
    assert seen["/mnt/uv"][0] == tmp_path / "cache" / "uv"
    assert all(outside.is_relative_to(work) for inside, (outside, _) in seen.items() if inside != "/mnt/uv")
    shown = [outside / path.relative_to(outside) for outside, _ in seen.values() for path in outside.rglob("*")]
    files = {path: path.read_text() for path in shown if path.is_file()}
    assert "UV_DEFAULT_INDEX=https://index.example/x" in files[work / "inputs" / "settings"]
    assert [path for path, text in files.items() if "S3CRET" in text] == []
    inside = [line for line in done.stdout.splitlines() if line.startswith(("APPTAINERENV_", "SINGULARITYENV_"))]
    assert "APPTAINERENV_RECIPE_SETTINGS=/mnt/settings" in inside
    assert "S3CRET" not in "".join(inside)
    private = work / "given.private"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert "S3CRET" in (private / "settings").read_text()


def test_security_04_docker_shows_a_login_and_a_cache_to_installers_alone() -> None:
    caches = []
    for stem in ("finetune", "full"):
        plan = target_plan(recipes()[stem][0], site="local", backend="docker")
        text = next(file.text for file in plan.files if "Dockerfile" in file.path)
        runs = [line for line in text.replace("\\\n", " ").splitlines() if line.startswith("RUN ")]
        assert runs
        for line in runs:
            part = line.split("install.sh ")[1].split()[0] if "install.sh " in line else ""
            assert ("id=settings" in line) is (part in ("torch", "packages", "tools")), line
            assert "type=cache" not in line or part in ("torch", "packages"), line
            assert "from=tools" not in line or part in ("torch", "packages"), line
        caches.append(re.findall(r"id=(recipe-uv-[0-9a-f]{32}),", text))
    assert all(caches)
    assert not set(caches[0]) & set(caches[1])
