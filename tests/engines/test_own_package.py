"""A package in the folder of a recipe is copied and installed by every backend that can."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from recipe_program import Room, inside, listing, run
from stand_ins.images import docker, small_debian

pytestmark = pytest.mark.engines

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "own-thing"
version = "VERSION"
dependencies = ["six==1.16.0"]
[project.optional-dependencies]
more = ["toolz==0.12.1"]
[tool.setuptools]
packages = ["own_thing"]
"""
SHOWN = "import own_thing, six; print(own_thing.WORD, six.__version__)"


def write_project(room: Room, *, word: str, version: str = "1.0") -> None:
    room.write("pyproject.toml", PROJECT.replace("VERSION", version))
    room.write("own_thing/__init__.py", f"WORD = {word!r}\n")
    room.write(".env", "TOKEN=x\n")  # secrets stay here


def build(room: Room, line: str, *, backend: str, base: Path | str) -> Path:
    recipe = room.write("requirements.txt", f"{line}\n")
    image = room.folder / "own.sif"
    words = ("build", "local", recipe, "--backend", backend, "--base", base, "-o", image, "--no-smoke", "--force")
    cache = {"RECIPE_CACHE_DIR": str(room.folder / "cache")}
    done = room.recipe(*words, **cache, **{key: os.environ[key] for key in ("PIP_FIND_LINKS",) if key in os.environ})
    done.expect(0)
    return image


@pytest.mark.parametrize("backend", ["layers", "apptainer"])
@pytest.mark.parametrize("line", ["-e .", ".[more]"])
def test_the_folder_of_the_recipe_is_installed(room: Room, base_sif: Path, backend: str, line: str) -> None:
    write_project(room, word="first")
    image = build(room, line, backend=backend, base=base_sif)
    assert inside(image, "python3", "-c", SHOWN).strip() == "first 1.16.0"
    if "more" in line:
        assert inside(image, "python3", "-c", "import toolz; print(toolz.__version__)").strip() == "0.12.1"
    paths = listing(image)
    assert not [path for path in paths if path.startswith("/opt/recipe/build")]
    assert not [path for path in paths if path.endswith("/.env")]
    # the same version with another content is another image
    write_project(room, word="second")
    image = build(room, line, backend=backend, base=base_sif)
    assert inside(image, "python3", "-c", SHOWN).strip() == "second 1.16.0"


def test_docker_installs_the_folder_too(room: Room, docker_daemon: str, base_tar: Path) -> None:
    del docker_daemon
    base = "stand-in/own-package:1"
    docker("tag", small_debian(base_tar), base)
    try:
        write_project(room, word="first")
        image = build(room, "-e .", backend="docker", base=f"docker://{base}")
        assert inside(image, "python3", "-c", SHOWN).strip() == "first 1.16.0"
    finally:
        ours = run(["docker", "images", "--quiet", "recipe/test-docker-installs-the-folder-too*"]).out.split()
        run(["docker", "rmi", "--force", *dict.fromkeys(ours), base])


def test_a_project_that_holds_its_own_image_is_built_once(room: Room, base_sif: Path) -> None:
    room.write("project/pyproject.toml", PROJECT.replace("VERSION", "1.0"))
    room.write("project/own_thing/__init__.py", "WORD = 'first'\n")
    recipe, image = room.write("project/requirements.txt", "-e .\n"), room.folder / "project" / "own.sif"
    words = ("build", "local", recipe, "--base", base_sif, "-o", image)
    room.recipe(*words).expect(0)
    room.write("project/own_thing.egg-info/PKG-INFO", "")
    room.write("project/own_thing/__pycache__/made.pyc", "")
    assert "nothing to do" in room.recipe(*words).expect(0).err
    assert not list((room.folder / "project" / "own.plan" / "image" / "local").rglob("own.*"))
    room.write("project/own_thing/__init__.py", "WORD = 'second'\n")
    assert "output-exists" in room.recipe(*words).expect(2).err


@pytest.mark.parametrize("backend", ["layers", "apptainer"])
def test_a_version_from_git_is_the_one_in_the_image(room: Room, base_sif: Path, backend: str) -> None:
    text = PROJECT.replace('version = "VERSION"', 'dynamic = ["version"]').replace(
        '"setuptools"', '"setuptools-scm>=8"'
    )
    room.write("pyproject.toml", f"{text}[tool.setuptools_scm]\n")
    room.write("own_thing/__init__.py", "WORD = 'tagged'\n")
    for words in (
        ("init", "-q"),
        ("remote", "add", "origin", "https://bob:hunter2@git.example/x.git"),
        ("add", "-A"),
        ("-c", "user.name=me", "-c", "user.email=me@x.example", "commit", "-q", "-m", "first"),
        ("tag", "v2.3"),
    ):
        run(["git", "-C", room.folder, *words]).expect(0)
    image = build(room, ".", backend=backend, base=base_sif)
    asked = "from importlib.metadata import version; print(version('own-thing'))"
    assert inside(image, "python3", "-c", asked).strip() == "2.3"
    (copied,) = (room.folder / "own.plan" / "image" / "local").iterdir()
    assert not (copied / ".git").exists()
    assert "hunter2" not in "".join(path.read_text(errors="replace") for path in copied.rglob("*") if path.is_file())
