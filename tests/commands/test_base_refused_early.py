"""What a build would refuse of a base image file, `check`, `plan` and `build -n` refuse; each command in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.file_trees import image_of, pack

from builder.layers.base_facts import read_base_facts, read_base_programs
from builder.layers.cache import Store

ROOT = Path(__file__).parents[2]
LIBC = "GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36."
LINES = (("build", "-n"), ("plan",), ("check",), ("lock",))


def make_base(folder: Path, *, python: str = "3.11", libc: str = LIBC) -> Path:
    """A SIF with a Python behind links, as distributions have it."""
    tree = folder / "tree"
    files = {"usr/lib/x86_64-linux-gnu/libc.so.6": libc, f"opt/py/bin/python{python}": "program"}
    files[".singularity.d/env/10-docker2singularity.sh"] = 'export PATH="/opt/py/bin:/usr/bin"\n'
    for name, text in files.items():
        if text:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
    (tree / "opt/py/bin/python3").symlink_to(f"python{python}")
    (tree / "usr/lib").mkdir(exist_ok=True, parents=True)
    (tree / "lib").symlink_to("usr/lib")
    return image_of(folder / "base.sif", pack(tree, folder / "base.sqfs", "-comp", "gzip", "-all-root"))


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RECIPE_CACHE_DIR": str(folder / "cache")}
    argv = [sys.executable, "-m", "builder.cli.main", *words]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)


def write(folder: Path, *, python: str, more: str = "") -> None:
    text = f"name: x\ndependencies:\n  - python={python}\n  - pip: [six==1.17.0]\n{more}"
    (folder / "x.yml").write_text(text)


@pytest.mark.parametrize("words", LINES)
@pytest.mark.parametrize("how", ["--base", "recipe"])
def test_another_python_than_the_base_images(words: tuple[str, ...], how: str, tmp_path: Path) -> None:
    make_base(tmp_path)
    write(tmp_path, python="3.13", more="container: {base: ./base.sif}\n" if how == "recipe" else "")
    line = [*words, "local", "x.yml", *(["--base", "base.sif"] if how == "--base" else [])]
    done = run(tmp_path, *line)
    said = done.stdout + done.stderr
    assert done.returncode == 3, said
    assert "[base-python]" in said
    assert "the recipe requires Python 3.13, the base image has 3.11" in said
    assert f"at:  {'--base' if how == '--base' else 'x.yml: container.base'}" in said
    assert "fix: write python=3.11, or use a base image with Python 3.13" in said
    assert not (tmp_path / "x-local.plan").exists()
    write(tmp_path, python="3.11", more="container: {base: ./base.sif}\n" if how == "recipe" else "")
    assert "[base-python]" not in (cured := run(tmp_path, *line)).stdout + cured.stderr
    assert cured.returncode in (0, 4)  # 4: no engine is here


@pytest.mark.parametrize("words", LINES)
def test_a_base_image_without_glibc_gets_no_layers(words: tuple[str, ...], tmp_path: Path) -> None:
    make_base(tmp_path, libc="")
    write(tmp_path, python="3.11")
    done = run(tmp_path, *words, "local", "x.yml", "--base", "base.sif", "--backend", "layers")
    said = done.stdout + done.stderr
    assert done.returncode == 3, said
    assert "[base-glibc]" in said
    assert "the base image has no glibc for x86_64" in said
    assert "fix: build with --backend apptainer" in said
    cured = run(tmp_path, *words, "local", "x.yml", "--base", "base.sif", "--backend", "apptainer")
    assert "[base-glibc]" not in cured.stdout + cured.stderr


def test_a_base_that_is_not_here_is_no_fault_of_a_plan(tmp_path: Path) -> None:
    write(tmp_path, python="3.13")
    for words in (("plan",), ("check",)):
        done = run(tmp_path, *words, "lumi-g", "x.yml")
        assert done.returncode == 0, done.stderr


def test_what_installs_python_first_decides(tmp_path: Path) -> None:
    """A package of the distribution may bring the Python that the base image lacks; layers are made before it."""
    make_base(tmp_path)
    write(tmp_path, python="3.13", more="container: {system: [python3.13]}\n")
    for backend, code in (("apptainer", 0), ("layers", 3)):
        done = run(tmp_path, "check", "local", "x.yml", "--base", "base.sif", "--backend", backend)
        assert done.returncode == code, done.stdout + done.stderr


def test_the_few_files_say_the_same_as_the_whole_image(tmp_path: Path) -> None:
    image = make_base(tmp_path)
    few, whole = read_base_programs(image), read_base_facts(image, store=Store(tmp_path / "cache"))
    assert (few.python, few.minor, few.glibc, few.machine) == ("/opt/py/bin/python3.11", "3.11", "2.36", whole.machine)
    assert (few.python, few.minor, few.glibc) == (whole.python, whole.minor, whole.glibc)


@pytest.mark.parametrize("backend", ["layers", "apptainer"])
@pytest.mark.parametrize("part", ["superblock", "tail"])
def test_a_damaged_base_image_is_refused_early(part: str, backend: str, tmp_path: Path) -> None:
    base = make_base(tmp_path)
    content = bytearray(base.read_bytes())
    start = content.find(b"hsqs")
    size = int.from_bytes(content[start + 40 : start + 48], "little")
    begin, end = (start, start + 96) if part == "superblock" else (start + size // 2, start + size)
    content[begin:end] = bytes([255 if part == "superblock" else 0]) * (end - begin)
    base.write_bytes(content)
    write(tmp_path, python="3.11")
    done = run(tmp_path, "build", "-n", "local", "x.yml", "--base", "base.sif", "--backend", backend)
    assert done.returncode == 2, done.stderr
    assert "its root file system is damaged: " in done.stderr


@pytest.mark.parametrize("words", LINES)
def test_a_base_image_for_another_processor_is_named_first(words: tuple[str, ...], tmp_path: Path) -> None:
    make_base(tmp_path)  # for x86_64
    write(tmp_path, python="3.11")
    done = run(tmp_path, *words, "isambard-ai", "x.yml", "--base", "base.sif")
    said = done.stdout + done.stderr
    assert done.returncode == 3, said
    assert "error[base-processor]" in said
    assert "[other-processor]" not in said
    assert not list(tmp_path.glob("*.lock*"))


@pytest.mark.parametrize("words", LINES)
def test_docker_does_not_start_from_a_sif(words: tuple[str, ...], tmp_path: Path) -> None:
    make_base(tmp_path)
    write(tmp_path, python="3.11")
    done = run(tmp_path, *words, "mn5", "x.yml", "--backend", "docker", "--base", "base.sif")
    assert done.returncode == 3, done.stderr
    assert "error[docker-base]" in done.stdout + done.stderr
    assert not list(tmp_path.glob("*.lock*"))
