"""Definition files without user namespaces and fakeroot, as on LUMI: %post in Debian's proot, the engine a stand-in."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import engine
from recipe_program import QUICK, Done, Room, inside, labels, report_of

pytestmark = pytest.mark.engines

STAND_IN = Path(__file__).parent / "stand_ins" / "singularity-with-proot-stand-in"
SITE = """
    extends: lumi-c
    # LUMI's modules and its /tmp are not here.
    build:
      backend_modules: {{cotainr: [], tykky: [], apptainer: []}}
      login_heavy: "yes"
      tmpdir: {tmp}
      cachedir: {cache}
    base_images:
      - reference: {base}
        python: "3.11"
        glibc: "2.36"
        source: [own]
"""
# openssh-client adds a group, and gives a program to it by its name.
RECIPE = """
    name: tools
    dependencies:
      - pip: [six==1.16.0]
    container:
      system: [openssh-client, less]
      files: {words.txt: /opt/words.txt}
      run: ["test -x /usr/bin/ssh-agent", "python -c 'import six' && touch /opt/ran"]
      smoke: {imports: [six]}
"""


class Lumi:
    """A room with a site like LUMI, and the stand-in under the name of its engine."""

    def __init__(self, room: Room, base: Path) -> None:
        self.room = room
        self.site = room.site("stand-in-lumi", SITE.format(base=base, tmp=room.tmp, cache=room.folder / "cache"))
        room.write("words.txt", "some words\n")
        (room.folder / "bin").mkdir()
        (room.folder / "bin" / "singularity").symlink_to(STAND_IN)
        self.environment = {"PATH": f"{room.folder}/bin:{os.environ['PATH']}", **QUICK}

    def build(self, name: str, *words: str, **environment: str) -> Done:
        recipe = self.room.write(f"{name}.yml", RECIPE)
        image = self.room.folder / f"{name}.sif"
        line = ["build", self.site, recipe, "-o", image, *words]
        return self.room.recipe(*line, **self.environment | environment)


@pytest.fixture(scope="module")
def lumi(rooms: Callable[[str], Room], base_sif: Path) -> Lumi:
    engine("proot")
    return Lumi(rooms("proot"), base_sif)


def test_cotainr_names_the_backend_that_can(lumi: Lumi) -> None:
    done = lumi.build("refused").expect(3)
    assert "cotainr, the backend for 'stand-in-lumi', does not support container.system" in done.err
    assert "build with --backend apptainer" in done.err


def test_system_packages_files_and_commands_in_proot(lumi: Lumi) -> None:
    done = lumi.build("tools", "--backend", "apptainer")
    assert done.code == 0, (lumi.room.folder / "tools.plan/logs/build-image.log").read_text()
    image = lumi.room.folder / "tools.sif"
    assert report_of(image.with_suffix(".plan"))["status"] == "passed"
    assert inside(image, "cat", "/opt/words.txt") == "some words\n"
    assert inside(image, "less", "--version").startswith("less ")
    assert (
        inside(
            image,
            "sh",
            "-c",
            "ls /opt/ran; ls /usr/sbin/*.recipe 2>/dev/null; head -c 4 /usr/sbin/groupadd | tail -c 3",
        )
        == "/opt/ran\nELF"
    )
    assert inside(image, "python3", "-c", "import six; print(six.__version__)") == "1.16.0\n"
    assert labels(image)
    assert lumi.room.left_behind() == []


def test_a_missing_proot_is_named(lumi: Lumi) -> None:
    own = lumi.room.folder / "without"
    own.mkdir()
    for folder in os.environ["PATH"].split(":"):
        for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if program.name != "proot" and not (own / program.name).exists():
                (own / program.name).symlink_to(program)
    (own / "singularity").unlink(missing_ok=True)
    (own / "singularity").symlink_to(STAND_IN)
    done = lumi.build("missing", "--backend", "apptainer", PATH=str(own)).expect(5)
    assert "there is no proot on PATH" in done.err
    assert not (lumi.room.folder / "missing.sif").exists()
