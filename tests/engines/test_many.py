"""Builds that are partly jobs, on the real two-node Slurm with real Docker and Apptainer."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recipe_program import Done, Room, inside, report_of, stop, until_text
from stand_ins.images import docker, small_debian
from testbed import MN5_BED, MODULES

from builder.sif.sif import list_layers, read_sif

pytestmark = pytest.mark.engines

SMALL = """
name: {name}
dependencies: [pip: [six]]
container:
  smoke: {{imports: [six]}}
"""


# --- steps here, then jobs -------------------------------------------------------------------------------------------


class Mn5:
    """A room with a site whose images are made by Docker here and converted in a job."""

    def __init__(self, room: Room, tar: Path) -> None:
        self.room = room
        self.small = MN5_BED.format(base=small_debian(tar), torch="0").replace('provides: {torch: "0"}', "")
        room.site("small-bed", self.small)
        # Its jobs need an account: it is that of the user's settings.
        room.write("settings/recipe/config.yaml", "account: {small-bed: bsc99, local: other}\n")

    def build(self, site: str, recipe: Path, image: str, *words: str) -> Done:
        settings = str(self.room.folder / "settings")
        more = {"TMPDIR": "/tmp", "MODULEPATH": str(MODULES), "XDG_CONFIG_HOME": settings}
        return self.room.recipe("build", site, recipe, "-o", image, "--submit", *words, **more)


@pytest.fixture(scope="module")
def mn5(rooms: Callable[[str], Room], docker_daemon: str, base_tar: Path) -> Iterator[Mn5]:
    del docker_daemon
    yield Mn5(rooms("mn5"), base_tar)
    for name in docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "recipe/*-small-bed").split():
        docker("image", "rm", name)


def test_what_was_built_here_is_judged_later_with_its_jobs(mn5: Mn5) -> None:
    recipe = mn5.room.write("later.yml", SMALL.format(name="later"))
    done = mn5.build("small-bed", recipe, "later.sif", "--no-wait").expect(0)
    assert (done.out, "[1/3] build-image: done" in done.err) == ("", True)
    scripts = (mn5.room.folder / "later.plan").glob("*.sbatch")
    assert {"#SBATCH --account=bsc99" in path.read_text() for path in scripts} == {True}
    again = mn5.room.recipe("status", "later.sif", "--follow").expect(0)
    assert "build-image" not in again.err
    report = report_of(mn5.room.folder / "later.plan")
    assert [(step["name"], step["status"]) for step in report["steps"]] == [
        ("build-image", "ok"),
        ("convert", "ok"),
        ("smoke", "ok"),
    ]
    # All of it, from the first step here to the verdict.
    assert report["seconds"] >= sum(step["seconds"] for step in report["steps"][:1])


def test_nothing_is_submitted_after_a_step_here_that_failed(mn5: Mn5) -> None:
    text = SMALL.format(name="failing").replace("container:", "container:\n  run: [cp /no/such/file /opt]\n ")
    done = mn5.build("small-bed", mn5.room.write("failing.yml", text), "failing.sif").expect(5)
    assert "cp: cannot stat '/no/such/file'" in done.err
    folder = mn5.room.folder / "failing.plan"
    assert not (folder / "jobs").exists()
    assert [step["status"] for step in report_of(folder)["steps"]] == ["failed", "skipped", "skipped"]
    assert "nothing was submitted" in mn5.room.recipe("status", "failing.sif").expect(2).err
    assert mn5.room.left_behind() == []


def test_a_job_that_is_refused_is_known_before_anything_is_built(mn5: Mn5) -> None:
    recipe = mn5.room.write("refused.yml", SMALL.format(name="refused"))
    done = mn5.build("small-bed", recipe, "refused.sif", "--partition", "nope").expect(2)
    assert "there is no partition 'nope'" in done.err
    assert not (mn5.room.folder / "refused.plan" / "logs").exists()


def test_a_login_node_is_asked_for_a_word_first(mn5: Mn5) -> None:
    name = os.uname().nodename.partition(".")[0]
    text = mn5.small.replace("base_images:", 'build: {login_heavy: "no"}\n    base_images:')
    mn5.room.site("login-bed", text.replace("extends:", f"hostnames: [{name}]\n    extends:"))
    recipe = mn5.room.write("login.yml", SMALL.format(name="login"))
    done = mn5.build("login-bed", recipe, "login.sif").expect(2)
    assert "step 'build-image', which has no job there, is too heavy" in done.err
    assert "--here" in done.err


# --- several sites in one call ---------------------------------------------------------------------------------------

LOCAL = """
    extends: local
    base_images: [{{reference: {base}, python: "3.11", glibc: "2.36", source: [own]}}]
"""
SIX = "name: six\ndependencies: [pip: [six==1.16.0]]\ncontainer: {smoke: {imports: [six]}}\n"
SLEEP = "name: slow\ncontainer: {run: [echo begun; sleep 300]}\n"


@pytest.fixture
def pair(room: Room, base_sif: Path) -> Room:
    """A room with two sites that start from one image, and one whose base image cannot be reached."""
    for name in ("one", "two"):
        room.site(name, LOCAL.format(base=base_sif))
    room.site("bad", LOCAL.format(base="docker://127.0.0.1:1/nothing:1"))
    return room


def test_parallel_sites_share_layers_and_survive_a_failure(pair: Room) -> None:
    cache = str(pair.folder / "cache")
    words = ("build", "one", "bad", "two", pair.write("six.yml", SIX), "-o", "out", "--jobs", "3")
    done = pair.recipe(*words, RECIPE_CACHE_DIR=cache).expect(5)
    assert done.out.splitlines() == ["out/six-one.sif", "out/six-two.sif"]
    table = {line.split()[0]: line for line in done.err.splitlines()[-3:]}
    assert [" passed " in table["one"], " failed " in table["bad"], " passed " in table["two"]] == [True] * 3
    assert all(re.search(f"^{name}  +\\[", done.err, re.MULTILINE) for name in ("one", "two"))
    out = pair.folder / "out"
    assert [report_of(out / f"six-{name}.plan")["status"] for name in ("one", "two")] == ["passed"] * 2
    assert report_of(out / "six-bad.plan")["status"] == "failed"
    for name in ("one", "two"):
        assert inside(out / f"six-{name}.sif", "python", "-c", "import six; print(six.__version__)") == "1.16.0\n"
    # Both install the same into the same base: one of them made the layer, the other one waited for it. What says
    # which site an image is for is each one's own.
    images = [out / f"six-{name}.sif" for name in ("one", "two")]
    assert [[layer.title for layer in list_layers(one, read_sif(one))] for one in images] == [
        ["packages", "recipe"]
    ] * 2
    assert len(list((Path(cache) / "layers-1" / "layers").glob("*.sqfs"))) == 1 + 2
    again = pair.recipe("build", "one", "two", pair.folder / "six.yml", "-o", "out", RECIPE_CACHE_DIR=cache).expect(0)
    assert (again.err.count("nothing to do:"), again.out) == (2, done.out)
    assert pair.left_behind() == []


def test_ctrl_c_ends_all_of_them_and_leaves_nothing(pair: Room) -> None:
    words = ("build", "one", "two", pair.write("slow.yml", SLEEP), "--backend", "apptainer", "--jobs", "2")
    process = pair.start(*words)
    for name in ("one", "two"):
        until_text(pair.folder / f"slow-{name}.plan" / "logs" / "build-image.log", "begun", process=process)
    done = stop(process, signal.SIGINT, whole_group=True).expect(130)
    assert re.findall(r"^(one|two) +stopped ", done.out, re.MULTILINE) == ["one", "two"]
    assert [report_of(pair.folder / f"slow-{name}.plan")["status"] for name in ("one", "two")] == ["interrupted"] * 2
    assert not list(pair.folder.glob("*.sif.*"))
    assert not list(pair.folder.glob("*.sif"))
    assert pair.left_behind() == []


def test_one_at_a_time_when_asked(pair: Room) -> None:
    words = ("build", "one", "two", pair.write("slow.yml", SLEEP), "--backend", "apptainer", "--jobs", "1")
    process = pair.start(*words)
    until_text(pair.folder / "slow-one.plan" / "logs" / "build-image.log", "begun", process=process)
    done = stop(process, signal.SIGTERM, whole_group=False).expect(143)
    assert re.findall(r"^(one|two) +stopped ", done.out, re.MULTILINE) == ["one", "two"]
    assert not (pair.folder / "slow-two.plan").exists()
    assert pair.left_behind() == []
