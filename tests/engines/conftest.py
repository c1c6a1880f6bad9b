"""Real engines for the tests of this folder. What is missing makes a test fail, never be skipped."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from disks import Disk, mounted_disks
from recipe_program import EXAMPLE, TINY, Built, Done, Room, build, find_links, program, run
from smoke_program import Smoke, write_easy_digits
from stand_ins.images import write_small_tar

TORCH = "torch==2.13.0"
WITHOUT_DYNAMO = Path(__file__).parent / "stand_ins" / "torch_without_dynamo.py"
# With `-n` any file is one worker's, which makes what its tests share once. Those that take longest begin first, those
# that wait for jobs among those that compute.
LONG = (
    "test_jobs",
    "test_smoke_workload",
    "test_full_disk",
    "test_ngc",
    "test_killed",
    "test_smoke_command",
    "test_smoke_suite",
    "test_layers_conda",
    "test_same_bytes",
    "test_launch_suite",
    "test_report_page",
    "test_origin_backends",
    "test_isolation",
    "test_cotainr",
    "test_arrays",
    "test_origin",
    "test_full_cache",
    "test_launch_lines",
    "test_killed_conda",
    "test_injection",
    "test_many",
    "test_local",
    "test_faults",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The files of tests that `-n` gives to workers, in the order in which they are collected."""
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.partition("::")[0]

    config.option.loadscopereorder = False  # theirs would begin with the most tests
    return Files(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first."""
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


@pytest.fixture(scope="session", autouse=True)
def own_slurm() -> Iterator[None]:
    """A Slurm of this worker's own, so that no job waits for another worker's; shared where there are fewer."""
    first = os.environ.get("SLURM_CONF")
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    with pytest.MonkeyPatch.context() as patch:
        if first is not None:
            folder = Path(first).parent
            others = (folder.with_name(f"{folder.name}-{number}") for number in range(2, 10))
            running = [folder, *(other for other in others if (other / "slurmctld.pid").exists())]
            patch.setenv("SLURM_CONF", str(running[worker % len(running)] / Path(first).name))
        yield


@pytest.fixture(scope="session", autouse=True)
def heeded() -> Iterator[None]:
    """Programs are started with SIGINT as a terminal's have it: what a shell starts with `&` inherits it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def shared(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A folder of all workers of this session; the last one that leaves removes it."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / f"shared-{name}"
    with folder.with_suffix(".users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        folder.mkdir(exist_ok=True)  # not before: another worker may be removing it
        yield folder
        with suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Layers of an earlier session prove nothing about this one."""
    with shared(tmp_path_factory, "cache") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECIPE_CACHE_DIR", str(folder))
        yield


def needed(name: str) -> str:
    """A variable that tests/testbed/test.sh exports."""
    value = os.environ.get(name, "")
    if not value:
        pytest.fail(f"{name} is not set: run the tests with `make test`", pytrace=False)
    return value


def engine(name: str) -> Path:
    """A program that tests/testbed/engines.sh installs."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"there is no {name} on PATH: run tests/testbed/engines.sh, or `make test`", pytrace=False)
    return Path(found)


@pytest.fixture(scope="session")
def folder_of_rooms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this worker's rooms are."""
    return tmp_path_factory.mktemp("rooms")


@pytest.fixture(scope="module", autouse=True)
def rooms_of_module(folder_of_rooms: Path) -> Iterator[None]:
    """Images are large and may lie in memory: what a file's tests have built is removed after them."""
    yield
    for path in folder_of_rooms.iterdir():
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def rooms(folder_of_rooms: Path) -> Callable[[str], Room]:
    """Rooms for the builds of one file of tests."""
    if not program().exists():
        pytest.fail(f"there is no {program()}: install the package into this environment", pytrace=False)
    for name in ("apptainer", "singularity", "unsquashfs"):
        engine(name)
    return lambda name: Room(folder_of_rooms / name)


@pytest.fixture
def room(rooms: Callable[[str], Room], request: pytest.FixtureRequest) -> Iterator[Room]:
    """A room of the test's own, removed with it."""
    made = rooms(request.node.name.partition("[")[0])
    yield made
    shutil.rmtree(made.folder, ignore_errors=True)


@pytest.fixture
def disks(rooms: Callable[[str], Room], request: pytest.FixtureRequest) -> Iterator[Callable[[int], Disk]]:
    """Make small disks: see disks.py."""
    for name in ("fuse2fs", "fusermount3"):
        engine(name)
    parameters = request.node.callspec.id if hasattr(request.node, "callspec") else ""
    with mounted_disks(rooms(request.node.name.partition("[")[0]), parameters) as make:
        yield make


@pytest.fixture(scope="session")
def base_sif() -> Path:
    """Debian with Python 3.11 as a SIF."""
    return Path(needed("RECIPE_TEST_BASE_SIF"))


@pytest.fixture(scope="session")
def base_tar() -> Path:
    """The same as a root file system."""
    return Path(needed("RECIPE_TEST_BASE_TAR"))


@pytest.fixture(scope="session")
def small_sif(tmp_path_factory: pytest.TempPathFactory, base_tar: Path) -> Iterator[Path]:
    """Debian with Python alone, a quarter of the files: for builds that unpack and pack all of their base image."""
    with shared(tmp_path_factory, "small") as folder, folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        image, tree = folder / "small.sif", folder / "tree"
        if not image.exists():
            tar = write_small_tar(base_tar, folder / "small.tar")
            tree.mkdir()
            run(["tar", "--extract", "--exclude=./dev/*", "--directory", tree, "--file", tar]).expect(0)
            packing = ("--mksquashfs-args", "-comp zstd -Xcompression-level 3 -b 128K")  # as the other one is
            run(["apptainer", "build", *packing, folder / "part.sif", tree]).expect(0)
            (folder / "part.sif").rename(image)
            tar.unlink()
            shutil.rmtree(tree)
        fcntl.flock(lock, fcntl.LOCK_UN)
        yield image


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
        pytest.fail(f"no Docker daemon answers at {address}: tests/testbed/docker.sh start", pytrace=False)
    return address


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory, base_sif: Path) -> Iterator[Built]:
    """The example recipe, with torch, built and trained in: once for all workers, who do not write there."""
    with shared(tmp_path_factory, "digits") as folder:
        room = Room(folder)
        done = build_once(room, lambda: build(room, EXAMPLE, base_sif))
        yield Built(room=room, recipe=EXAMPLE, image=folder / "x.sif", plan=folder / "x.plan", done=done)


def build_once(room: Room, make: Callable[[], Built]) -> Done:
    """Build in a room that all workers share, unless one of them has: how it ended."""
    said = room.folder / "said.json"
    with room.folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not said.exists():
            made = make()
            assert room.left_behind() == []
            said.write_text(json.dumps(vars(made.done)), encoding="utf-8")
    return Done(**json.loads(said.read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def first_tiny(tmp_path_factory: pytest.TempPathFactory, base_sif: Path) -> Iterator[Built]:
    """A recipe that uses every key and needs no torch, built by a user whose files nobody else may read.

    It is built once for all workers, who do not write there.
    """
    with shared(tmp_path_factory, "tiny") as folder:
        room = Room(folder)

        def make() -> Built:
            room.write("notes.txt", "hello\n")
            return build(room, room.write("tiny.yml", TINY), base_sif, umask=0o077)

        done = build_once(room, make)
        yield Built(room=room, recipe=folder / "tiny.yml", image=folder / "x.sif", plan=folder / "x.plan", done=done)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, first_tiny: Built) -> Built:
    """A copy of it, of this worker's own."""
    own = tmp_path_factory.mktemp("tiny")
    shutil.copytree(first_tiny.room.folder, own, symlinks=True, dirs_exist_ok=True)
    return Built(
        room=Room(own), recipe=own / "tiny.yml", image=own / "x.sif", plan=own / "x.plan", done=first_tiny.done
    )


@pytest.fixture(scope="session")
def torch_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Python with torch: SMOKE_TORCH_PYTHON, that of the tests, else one made with uv, once for all workers."""
    for candidate in (os.environ.get("SMOKE_TORCH_PYTHON"), sys.executable):
        if candidate and run([candidate, "-c", "import torch"]).code == 0:
            yield candidate
            return
    with shared(tmp_path_factory, "torch") as folder:
        python = folder / "bin" / "python"
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "whole").exists():
                run([sys.executable, "-m", "venv", "--without-pip", "--clear", folder]).expect(0)
                links = [word for link in find_links() for word in ("--find-links", link)]
                uv = Path(sys.executable).with_name("uv")
                run([uv, "pip", "install", "-q", "--python", python, *links, TORCH]).expect(0)
                # Looking for garbage after each 700 objects is a quarter of what importing torch takes.
                (packages,) = folder.glob("lib/python*/site-packages")
                (packages / "collect-rarely.pth").write_text("import gc; gc.set_threshold(100_000, 50, 100)\n")
                shutil.copy(WITHOUT_DYNAMO, packages)
                (packages / "without-dynamo.pth").write_text(f"import {WITHOUT_DYNAMO.stem}\n")
                # uv compiles nothing and the workload writes nothing (-B): each rank would compile torch anew.
                writing = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
                run([python, "-c", f"import {WITHOUT_DYNAMO.stem}, torch.distributed.run"], env=writing).expect(0)
                (folder / "whole").touch()
        yield str(python)


@pytest.fixture(scope="session")
def easy_digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits that a training of two short epochs learns: for tests of what is around a training."""
    return write_easy_digits(tmp_path_factory.mktemp("easy") / "digits")


@pytest.fixture
def smoke(torch_python: str, tmp_path: Path) -> Iterator[Smoke]:
    """The workload, whose processes end with the test."""
    made = Smoke(torch_python, tmp_path)
    yield made
    made.end()
