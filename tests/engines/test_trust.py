"""What an image is trusted for: files with the digests of the recipe, modules as they were written, its own Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_program import Done, Room, inside

pytestmark = pytest.mark.engines

SITE = "/opt/env/lib/python3.11/site-packages"
WRONG = f"sha256:{'0' * 64}"


def build(room: Room, base: Path, recipe: str, *more: str, **environment: str) -> Done:
    path = room.write("demo.yml" if "dependencies" in recipe else "demo.txt", recipe)
    words = ("build", "local", path, "--base", base, "-o", room.folder / "x.sif", *more)
    return room.recipe(*words, RECIPE_CACHE_DIR=str(room.folder / "cache"), **environment)


def write_recipe(*lines: str, pip: str = "six==1.16.0") -> str:
    return "\n".join([f"dependencies:\n  - pip: [{pip}]\ncontainer:", *(f"  {line}" for line in lines)]) + "\n"


@pytest.mark.parametrize("backend", ["layers", "apptainer"])
def test_a_wrong_digest_makes_no_image(backend: str, rooms: Callable[[str], Room], base_sif: Path) -> None:
    room = rooms(f"digest-{backend}")
    done = build(room, base_sif, f"six==1.16.0 --hash={WRONG}\n", "--backend", backend).expect(5)
    said = " ".join(done.err.split())
    assert "six" in said
    assert "0" * 64 in said
    assert "8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254" in said
    assert not (room.folder / "x.sif").exists()
    assert WRONG in room.recipe("lock", "local", room.folder / "demo.txt", "--base", base_sif).expect(3).err


@pytest.mark.parametrize("backend", ["layers", "apptainer"])
def test_python_imports_the_source_that_is_in_the_image(
    backend: str, rooms: Callable[[str], Room], small_sif: Path
) -> None:
    room = rooms(f"sources-{backend}")
    room.write("own.py", "__version__ = 'own'\n")
    look = "python3 -c 'import six; print(six.__version__)' >/opt/seen"
    run = f'run: ["{look}", "sed -i s/own/run/ {SITE}/six.py", "{look}2"]'
    recipe = write_recipe(f"files: {{own.py: {SITE}/six.py}}", run)
    build(room, small_sif, recipe, "--backend", backend, "--no-smoke").expect(0)
    image = room.folder / "x.sif"
    assert inside(image, "cat", "/opt/seen", "/opt/seen2") == "own\nrun\n"
    assert inside(image, "python3", "-c", "import six; print(six.__version__)") == "run\n"


@pytest.mark.parametrize("name", ["RECIPE_IMAGE", "RECIPE_BINDS", "PYTHONPATH", "APPTAINERENV_PYTHONPATH"])
def test_a_module_of_this_machine_proves_nothing(name: str, rooms: Callable[[str], Room], small_sif: Path) -> None:
    room = rooms(f"machine-{name.lower()}")
    place = str(Path(room.write("own/attr.py", "")).parent)
    values = {"RECIPE_IMAGE": "/other.sif", "RECIPE_BINDS": f"{place}:{SITE}"}
    recipe = write_recipe("smoke: {imports: [six, attr]}")
    done = build(room, small_sif, recipe, **{name: values.get(name, place)}).expect(6)
    assert "import attr: ModuleNotFoundError" in " ".join(done.err.split())


def test_mpi4py_without_an_mpi_is_no_tested_image(rooms: Callable[[str], Room], base_sif: Path) -> None:
    done = build(rooms("no-mpi"), base_sif, write_recipe(pip="mpi4py==4.1.1")).expect(6)
    assert "import mpi4py.MPI" in done.err
    assert "add mpich to the pip packages" in done.err
