"""Real engines for the tests of this folder. What is missing makes a test fail, never be skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recipe_program import EXAMPLE, TINY, Built, Room, build, program, run


def needed(name: str) -> str:
    """A variable that setup/test.sh exports."""
    value = os.environ.get(name, "")
    if not value:
        pytest.fail(f"{name} is not set: run the tests with `make test`", pytrace=False)
    return value


def engine(name: str) -> Path:
    """A program that setup/engines.sh installs."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"there is no {name} on PATH: run setup/engines.sh, or `make test`", pytrace=False)
    return Path(found)


@pytest.fixture(scope="session")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Room]]:
    """Rooms for builds; they go with the session, since images are large."""
    if not program().exists():
        pytest.fail(f"there is no {program()}: install the package into this environment", pytrace=False)
    for name in ("apptainer", "singularity", "unsquashfs"):
        engine(name)
    folder = tmp_path_factory.mktemp("rooms")
    yield lambda name: Room(folder / name)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def room(rooms: Callable[[str], Room], request: pytest.FixtureRequest) -> Room:
    """A room of the test's own."""
    return rooms(request.node.name.partition("[")[0])


@pytest.fixture(scope="session")
def base_sif() -> Path:
    """Debian with Python 3.11 as a SIF."""
    return Path(needed("RECIPE_TEST_BASE_SIF"))


@pytest.fixture(scope="session")
def base_tar() -> Path:
    """The same as a root file system."""
    return Path(needed("RECIPE_TEST_BASE_TAR"))


@pytest.fixture(scope="session")
def registry() -> str:
    """HOST:PORT of a registry on the loopback address."""
    return needed("RECIPE_TEST_REGISTRY")


@pytest.fixture(scope="session")
def docker_daemon() -> str:
    """The address of a Docker daemon that answers."""
    engine("docker")
    address = needed("DOCKER_HOST")
    answer = run(["docker", "version", "--format", "{{.Server.Version}}"])
    if answer.code:
        pytest.fail(f"no Docker daemon answers at {address}: setup/docker.sh start", pytrace=False)
    return address


@pytest.fixture(scope="session")
def digits(rooms: Callable[[str], Room], base_sif: Path) -> Built:
    """The example recipe, with torch, built and trained in."""
    return build(rooms("digits"), EXAMPLE, base_sif)


@pytest.fixture(scope="session")
def tiny(rooms: Callable[[str], Room], base_sif: Path) -> Built:
    """A recipe that uses every key and needs no torch, built by a user whose files nobody else may read."""
    room = rooms("tiny")
    room.write("notes.txt", "hello\n")
    return build(room, room.write("tiny.yml", TINY), base_sif, umask=0o077)
