"""The real cotainr builds from our script; of what it needs, Miniforge alone cannot be reached and has a stand-in."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import needed
from recipe_program import QUICK, Done, Room, inside, labels, report_of, run, stop, until_text
from scripted_plans import OLD
from stand_ins.wheels import write_wheel

pytestmark = pytest.mark.engines

SITE = """
    extends: lumi-c
    # LUMI's modules and its /tmp are not here.
    build:
      backend_modules: {{cotainr: [], tykky: []}}
      login_heavy: "yes"  # what this machine would otherwise be taken for: LUMI's base image and sbatch are here
      tmpdir: {tmp}
      cachedir: {cache}
    base_images:
      - reference: {base}
        glibc: "2.36"
        source: [own]
"""
RECIPE = """
    name: tables
    channels: [conda-forge]
    dependencies:
      - python=3.11
      - pip: [six==1.16.0, tabulate==0.9.0]
    variables: {COLOUR: deep blue}
    container:
      smoke: {imports: [six, tabulate]}
"""


class Lumi:
    """A room with a site like LUMI and cotainr on PATH."""

    def __init__(self, room: Room, base: Path, *, miniforge: bool = True) -> None:
        self.room = room
        self.site = room.site("stand-in-lumi", SITE.format(base=base, tmp=room.tmp, cache=room.folder / "cache"))
        cotainr = Path(needed("RECIPE_TEST_COTAINR"))
        wrapper = Path(__file__).parent / "stand_ins" / "cotainr_with_miniforge_stand_in.py"
        words = [str(cotainr.with_name("python")), str(wrapper)] if miniforge else [str(cotainr)]
        program = room.write("bin/cotainr", f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)
        self.path = f"{program.parent}:{os.environ['PATH']}"
        self.environment = {"PATH": self.path, **QUICK}

    def build(self, name: str, text: str, *words: str, **environment: str) -> Done:
        recipe = self.room.write(f"{name}.yml", text)
        image = self.room.folder / f"{name}.sif"
        return self.room.recipe("build", self.site, recipe, "-o", image, *words, **self.environment | environment)


@pytest.fixture(scope="module")
def lumi(rooms: Callable[[str], Room], small_sif: Path) -> Lumi:
    return Lumi(rooms("lumi"), small_sif)


@pytest.fixture(scope="module")
def built(lumi: Lumi) -> Path:
    """The image, made where an older one lies, and where a killed build has left cotainr's draft of one.

    cotainr asks about a file in its way, and a build has nobody to answer.
    """
    image, plan = lumi.room.folder / "tables.sif", lumi.room.folder / "tables.plan"
    image.write_bytes(OLD)
    lumi.room.recipe("plan", lumi.site, lumi.room.write("tables.yml", RECIPE), "-o", plan).expect(0)
    (plan / "tables-stand-in-lumi.sif.part.sif").write_text("left behind")
    lumi.build("tables", RECIPE, "--accept-licenses", "--force").expect(0)
    return image


def test_a_licence_that_is_not_accepted_stops_the_build(lumi: Lumi) -> None:
    done = lumi.build("refused", RECIPE).expect(5)
    assert "a licence has to be accepted first" in done.err
    assert "--accept-licenses" in done.err
    assert not (lumi.room.folder / "refused.sif").exists()
    assert report_of(lumi.room.folder / "refused.plan")["status"] == "failed"
    assert lumi.room.left_behind() == []


def test_cotainr_builds_the_image(lumi: Lumi, built: Path) -> None:
    report = report_of(built.with_name("tables.plan"))
    assert (report["status"], [step["status"] for step in report["steps"]]) == ("passed", ["ok", "ok", "ok"])
    assert report["versions"]["cotainr"].startswith("cotainr 2025.")
    assert labels(built)["cotainr.version"] == "2025.7.1"
    assert lumi.room.left_behind() == []


def test_the_environment_is_active_when_the_image_is_entered(built: Path) -> None:
    script = "import six, sys, tabulate; print(six.__version__, sys.prefix)"
    assert inside(built, "python3", "-c", script) == "1.16.0 /opt/cotainr/conda/envs/conda_container_env\n"


def test_the_run_scripts_bring_the_variables(lumi: Lumi, built: Path) -> None:
    plan = built.with_name("tables.plan")
    script = ". run/container.sh; in_image printenv COLOUR PYTHONNOUSERSITE"
    done = run(["bash", "-euc", script], cwd=plan, env=lumi.room.environment())
    assert done.expect(0).out == "deep blue\n1\n"


def test_the_log_holds_lines_and_no_frames(lumi: Lumi, built: Path) -> None:
    log = lumi.room.log(built.with_name("tables.plan"))
    assert len(log) < 20_000
    assert "\x1b" not in log
    assert log.count("Installing Conda environment") <= 2
    assert "Building container image" in log


def test_an_image_that_exists_is_not_replaced_unasked(lumi: Lumi, built: Path) -> None:
    before = built.stat().st_ino
    done = lumi.build("tables", RECIPE.replace("six==1.16.0", "six==1.17.0"), "--accept-licenses").expect(2)
    assert "exists" in done.err
    assert built.stat().st_ino == before


def test_a_package_that_does_not_exist_is_named(lumi: Lumi) -> None:
    text = RECIPE.replace("tabulate==0.9.0", "tabulate==77.7")
    done = lumi.build("missing", text, "--accept-licenses").expect(5)
    assert "tabulate==77.7" in done.err
    assert lumi.room.left_behind() == []


def test_sigterm_leaves_nothing(lumi: Lumi) -> None:
    recipe = lumi.room.write("stopped.yml", RECIPE)
    image = lumi.room.folder / "stopped.sif"
    process = lumi.room.start("build", lumi.site, recipe, "-o", image, "--accept-licenses", **lumi.environment)
    log = lumi.room.folder / "stopped.plan" / "logs" / "build-image.log"
    until_text(log, "Installing Conda environment", process=process)
    stop(process, signal.SIGTERM, whole_group=False).expect(143)
    assert not image.exists()
    assert lumi.room.left_behind() == []


def test_without_the_internet_cotainr_is_explained(room: Room, small_sif: Path) -> None:
    """The real download, whose server cannot be reached: a proxy that does not exist makes it fail at once."""
    lumi = Lumi(room, small_sif, miniforge=False)
    recipe = room.write("tables.yml", RECIPE)
    words = ("build", lumi.site, recipe, "-o", room.folder / "x.sif", "--accept-licenses")
    done = room.recipe(*words, **lumi.environment, https_proxy="http://127.0.0.1:9").expect(5)
    assert "could not reach a server" in done.err
    assert room.left_behind() == []


# the image is asked for its torch, also without a smoke test

TORCH = """
    name: wrong
    channels: [conda-forge]
    dependencies:
      - python=3.11
      - pip: [torch==2.8.0]
"""


def test_the_question_is_asked_by_hand(lumi: Lumi, built: Path) -> None:
    """From the plan folder, without the tool."""
    proof = built.with_name("tables.plan") / "proof.json"
    proof.unlink()
    done = run(["bash", proof.with_name("2-verify.sh")], env=lumi.room.environment()).expect(0)
    assert "the recipe has no torch" in done.out
    assert json.loads(proof.read_text())["faults"] == []


def test_another_torch_ends_the_build_with_exit_code_6(lumi: Lumi) -> None:
    """The stand-in for the CPU wheel says of itself that it is built for CUDA."""
    text = "from types import SimpleNamespace as N\n__version__ = '2.8.0+cpu'\nversion = N(cuda='12.8')\n"
    wheels = lumi.room.folder / "wheels"
    write_wheel(wheels, name="torch", version="2.8.0+cpu", text=text)
    environment = {"PIP_FIND_LINKS": str(wheels), "PIP_NO_CACHE_DIR": "1", "RECIPE_TORCH_INDEX": "default"}
    done = lumi.build("wrong", TORCH, "--accept-licenses", "--no-smoke", **environment).expect(6)
    report = report_of(lumi.room.folder / "wrong.plan")
    assert "the image is not what was planned" in done.err
    assert "torch 2.8.0+cpu is built for a GPU (cuda), a CPU build was planned" in done.err
    statuses = {step["name"]: step["status"] for step in report["steps"]}
    assert report["status"] == "smoke-failed"
    assert statuses == {"build-image": "ok", "verify": "failed", "smoke": "skipped"}
    image = lumi.room.folder / "wrong.sif"
    assert not image.exists()
    assert image.with_name("wrong.sif.failed").exists()
    assert lumi.room.left_behind() == []
    # It is not passed by: the later steps are not begun without its proof.
    again = lumi.build("wrong", TORCH, "--from", "smoke", RECIPE_TORCH_INDEX="default")
    assert "step 'verify' is skipped, and its product" in again.expect(2).err
