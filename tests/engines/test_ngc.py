"""A base image with its own torch, shaped like NVIDIA's: Docker adds packages, jobs convert and test, torch stays."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recipe_program import TORCH, Done, Room, inside, labels, report_of, run, superblocks
from stand_ins.images import docker, small_debian, stand_in_few_lines, stand_in_ngc_pytorch
from stand_ins.wheels import write_wheel
from testbed import MN5_BED, MODULES

pytestmark = pytest.mark.engines

SITE = """
    extends: mn5-gpp
    runtime: {{zstd: "yes"}}
    base_images:
      - reference: docker://{base}
        python: "3.11"
        provides: {{torch: "{torch}"}}
        glibc: "2.36"
        source: [own]
"""
RECIPE = """
    name: tune
    dependencies:
      - pip: [torch, needs-torch==1.0, tabulate==0.9.0, six]
    container:
      env: {COLOUR: deep blue, PRICE: "5 $HOME"}
      smoke: {imports: [needs_torch, tabulate], workloads: [pi]}
"""
# Digests of all files of the torch distribution that the base image has, but its compiled ones.
DIGESTS = """
import hashlib, importlib.metadata as metadata, json
found = metadata.distribution("torch")
files = [str(path) for path in found.files if not str(path).endswith(".pyc") and found.locate_file(path).exists()]
print(json.dumps({path: hashlib.sha256(found.locate_file(path).read_bytes()).hexdigest() for path in files}))
"""


class Ngc:
    """A room with the site and a folder of wheels."""

    def __init__(self, room: Room, base: str) -> None:
        self.room, self.base = room, base
        version = docker("run", "--rm", base, "python3", "-c", "import torch; print(torch.__version__)").split()[-1]
        self.site = room.site("stand-in-mn5", MN5_BED.format(base=base, torch=version))
        self.wheels = room.folder / "wheels"
        write_wheel(self.wheels, name="needs-torch", version="1.0", requires=["torch>=2"])

    def recipe(self, *words: str | Path, **environment: str) -> Done:
        folders = f"{os.environ.get('PIP_FIND_LINKS', '')} {self.wheels}".strip()
        return self.room.recipe(*words, PIP_FIND_LINKS=folders, **environment)

    def build(self) -> Done:
        """The build of the image that is looked at: Docker here, then the conversion and two smoke tests as jobs."""
        recipe = self.room.write("tune.yml", RECIPE)
        words = ("-o", self.room.folder / "tune.sif", "--account", "bsc99", "--submit", "--nodes", "2")
        # The sockets of torch's data-loader workers lie in TMPDIR, and their paths have at most 107 characters.
        return self.recipe("build", self.site, recipe, *words, TMPDIR="/tmp", MODULEPATH=str(MODULES))


@pytest.fixture(scope="module")
def ngc(rooms: Callable[[str], Room], docker_daemon: str, base_tar: Path) -> Iterator[Ngc]:
    del docker_daemon
    room = rooms("ngc")
    yield Ngc(room, stand_in_ngc_pytorch(base_tar, scratch=room.folder))
    for name in docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "recipe/*-stand-in-mn5").split():
        docker("image", "rm", name)


@pytest.fixture(scope="module")
def done(ngc: Ngc) -> Done:
    """The build."""
    return ngc.build().expect(0)


@pytest.fixture(scope="module")
def built(ngc: Ngc, done: Done) -> Path:
    """The image."""
    del done
    return ngc.room.folder / "tune.sif"


def test_docker_here_then_conversion_and_smoke_as_jobs(ngc: Ngc, done: Done, built: Path) -> None:
    assert "[1/4] build-image: done" in done.err
    assert "[2/4] convert: done" in done.err
    convert, smoke, nodes = re.findall(r"^job (\d+): ", done.err, re.MULTILINE)
    assert f"job {smoke}: smoke, after {convert}\n" in done.err
    assert f"job {nodes}: smoke-nodes, after {convert}\n" in done.err
    report = report_of(built.with_name("tune.plan"))
    assert (report["status"], [step["status"] for step in report["steps"]]) == ("passed", ["ok"] * 4)
    assert [step["name"] for step in report["steps"]] == ["build-image", "convert", "smoke", "smoke-nodes"]
    assert report["steps"][0]["log"] == "logs/build-image.log"
    assert {"docker", "sbatch"} <= set(report["versions"])
    assert report["proof"]["torch"]
    assert report["smoke"]["nodes/pi"]["world"] == 2
    assert ngc.build().expect(0).err.startswith("nothing to do")
    assert ngc.room.left_behind() == []


def test_packages_join_the_torch_of_the_base_image(ngc: Ngc, built: Path) -> None:
    script = "import needs_torch, tabulate, torch; print(torch.__version__, torch.__file__)"
    version, file = inside(built, "python3", "-c", script).split()[-2:]
    assert version.startswith(TORCH)
    assert file.startswith("/usr/local/lib/python3.11/")
    assert "/opt/env" not in inside(built, "sh", "-c", "echo $PATH; ls -d /opt/*")
    assert ngc.room.left_behind() == []


def test_its_torch_is_byte_for_byte_the_same(ngc: Ngc, built: Path) -> None:
    before = json.loads(docker("run", "--rm", "--entrypoint", "python3", ngc.base, "-c", DIGESTS))
    after = json.loads(inside(built, "python3", "-c", DIGESTS))
    assert len(before) > 2000
    assert after == before


def test_the_constraints_of_the_base_image_hold(built: Path) -> None:
    # For pip they hold by PIP_CONSTRAINT; uv, which installs, is told.
    assert inside(built, "python3", "-c", "import six; print(six.__version__)").split()[-1] == "1.16.0"


@pytest.mark.parametrize("way", ["exec", "run"])
def test_variables_hold_in_an_image_that_docker_made(built: Path, way: str) -> None:
    names = ("COLOUR", "PRICE", "PYTHONNOUSERSITE", "PIP_CONSTRAINT")
    lines = run(["apptainer", way, built, "printenv", *names]).expect(0).out.splitlines()
    banner = ["== stand-in for PyTorch of NGC =="] if way == "run" else []
    assert lines == [*banner, "deep blue", "5 $HOME", "1", "/etc/pip/constraint.txt"]


def test_labels_come_through_docker(built: Path, ngc: Ngc) -> None:
    found = labels(built)
    assert (found["recipe.name"], found["recipe.site"]) == ("tune", "stand-in-mn5")
    assert found["org.opencontainers.image.base.name"] == ngc.base


def test_another_torch_is_refused_before_anything_is_built(ngc: Ngc) -> None:
    text = RECIPE.replace("[torch,", "[torch==2.12.0,").replace("container:", "container:\n      python: base")
    done = ngc.recipe("build", ngc.site, ngc.room.write("other.yml", text), "-o", ngc.room.folder / "other.sif").expect(
        3
    )
    assert "'torch==2.12.0' is requested" in done.err
    assert f"has torch {TORCH}" in done.err
    assert not (ngc.room.folder / "other.plan").exists()


def test_a_command_that_damages_torch_ends_the_build(ngc: Ngc, base_tar: Path) -> None:
    base = stand_in_few_lines(base_tar, scratch=ngc.room.folder)
    site = ngc.room.site("few-mn5", MN5_BED.format(base=base, torch=TORCH))
    write_wheel(ngc.wheels, name="torch", version="9.9.9")
    pip = "python3 -m pip install --break-system-packages --no-deps --force-reinstall --no-index"
    recipe = ngc.room.write(
        "damage.yml",
        f"""
        name: damage
        dependencies:
          - pip: [tabulate==0.9.0, torch]
        container:
          run: ["PIP_CONSTRAINT= {pip} torch==9.9.9"]
        """,
    )
    # The image is not what was planned: the code of a failed proof.
    done = ngc.recipe("build", site, recipe, "-o", ngc.room.folder / "damage.sif").expect(6)
    assert "torch of the base image was replaced" in done.err
    assert "9.9.9 now" in done.err
    assert not (ngc.room.folder / "damage.sif").exists()
    assert ngc.room.left_behind() == []


def test_a_command_that_fails_under_docker_is_cited(ngc: Ngc) -> None:
    text = RECIPE.replace("container:", "container:\n      run: [cp /no/such/file /opt]")
    recipe = ngc.room.write("failing.yml", text)
    done = ngc.recipe("build", ngc.site, recipe, "-o", ngc.room.folder / "failing.sif").expect(5)
    assert "cp: cannot stat '/no/such/file'" in done.err
    assert ngc.room.left_behind() == []


def test_an_archive_is_converted_by_hand_elsewhere(
    rooms: Callable[[str], Room], docker_daemon: str, base_tar: Path
) -> None:
    """As for MareNostrum 5: built where Docker is, copied, converted where Docker is not."""
    del docker_daemon
    room = rooms("by-hand")
    site = room.site(
        "stand-in-gpp", SITE.format(base=small_debian(base_tar), torch="0").replace('provides: {torch: "0"}', "")
    )
    plan, there = room.folder / "kit", room.folder / "there"
    recipe = room.write("hand.yml", "name: hand\ndependencies: [{pip: [six==1.16.0]}]\n")
    room.recipe("plan", site, recipe, "-o", plan).expect(0)
    run(["bash", plan / "1-build-image.sh"], env=room.environment()).expect(0)
    plan.rename(there)
    without_docker = room.environment(DOCKER_HOST="unix:///nowhere", RECIPE_TMPDIR=str(room.tmp))
    run(["bash", there / "2-convert.sh"], env=without_docker, cwd=room.folder).expect(0)
    image = there / "hand-stand-in-gpp.sif"
    assert inside(image, "python3", "-c", "import six; print(six.__version__)") == "1.16.0\n"
    assert "Compression zstd" in superblocks(image)[0]
    assert room.left_behind() == []
    docker("image", "rm", *docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "recipe/hand-*").split())
