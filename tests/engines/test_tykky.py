"""Tykky builds a folder of wrappers: our call against the options of LUMI's release, our script with a stand-in."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_program import Done, Room, report_of, run
from stand_ins.tykky_options import SINCE_0_5, parser_0_4_2

pytestmark = pytest.mark.engines

SITE = """
    extends: lumi-c
    # LUMI's modules and its /tmp are not here.
    build:
      backends: [tykky, cotainr]
      backend_modules: {{cotainr: [], tykky: []}}
      tmpdir: {tmp}
      cachedir: {cache}
"""
RECIPE = """
    name: tables
    channels: [conda-forge]
    dependencies:
      - python=3.11
      - pip: [six==1.16.0]
    variables: {COLOUR: deep blue}
    container:
      run:
        - echo "made $COLOUR" >$env_root/made.txt
      smoke: {imports: [six]}
"""
STAND_IN = Path(__file__).parent / "stand_ins" / "conda-containerize-stand-in"


class Tykky:
    """A room with a site like LUMI and conda-containerize on PATH."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.site = room.site("stand-in-lumi", SITE.format(tmp=room.tmp, cache=room.folder / "cache"))
        programs = room.folder / "programs"
        programs.mkdir()
        (programs / "conda-containerize").symlink_to(STAND_IN)
        self.path = f"{programs}:{os.environ['PATH']}"

    def build(self, name: str, text: str, *words: str, path: str = "") -> Done:
        recipe = self.room.write(f"{name}.yml", text)
        output = self.room.folder / name
        return self.room.recipe("build", self.site, recipe, "-o", output, *words, PATH=f"{path}{self.path}")


@pytest.fixture(scope="module")
def tykky(rooms: Callable[[str], Room]) -> Tykky:
    return Tykky(rooms("tykky"))


@pytest.fixture(scope="module")
def built(tykky: Tykky) -> Path:
    tykky.build("tables", RECIPE).expect(0)
    return tykky.room.folder / "tables"


def test_our_call_is_one_that_release_0_4_2_takes(built: Path) -> None:
    called = json.loads((built / "share" / "called.json").read_text())
    taken = vars(parser_0_4_2().parse_args(called))
    assert taken == {
        "command": "new",
        "prefix": "tables-stand-in-lumi.part",
        "mamba": True,
        "post_install": "post-install.sh",
        "pre_install": None,
        "environ": None,
        "wrapper_paths": None,
        "requirement": None,
        "env_file": "environment.yml",
    }


@pytest.mark.parametrize("option", SINCE_0_5)
def test_the_parser_refuses_what_only_0_5_knows(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser_0_4_2().parse_args(["new", "--mamba", option, "environment.yml"])
    assert f"unrecognized arguments: {option}" in capsys.readouterr().err


def test_the_folder_is_the_product(tykky: Tykky, built: Path) -> None:
    report = report_of(built.with_name("tables.plan"))
    assert (report["status"], [step["status"] for step in report["steps"]]) == ("passed", ["ok", "ok", "ok"])
    assert report["image"] == str(built)
    assert {path.name for path in built.iterdir()} >= {"bin", "_bin", "common.sh", "container.sif", "img.sqfs", "share"}
    assert tykky.room.left_behind() == []


def test_the_recipes_own_commands_run_after_the_installation(built: Path) -> None:
    assert (built / "_inst" / "made.txt").read_text() == "made \n"


def test_the_run_scripts_find_the_folder(tykky: Tykky, built: Path) -> None:
    script = ". run/container.sh; in_image python3 -c 'import os, six; print(six.__version__, os.environ[\"COLOUR\"])'"
    environment = tykky.room.environment(RECIPE_IMAGE=str(built))
    done = run(["bash", "-euc", script], cwd=built.with_name("tables.plan"), env=environment)
    assert done.expect(0).out == "1.16.0 deep blue\n"


def test_force_replaces_the_folder(tykky: Tykky, built: Path) -> None:
    other = RECIPE.replace("1.16.0", "1.17.0").replace("tables", "others")
    tykky.build("others", other.replace("1.17.0", "1.15.0")).expect(0)
    done = tykky.build("others", other).expect(2)
    assert "exists" in done.err
    tykky.build("others", other, "--force").expect(0)
    python = built.with_name("others") / "bin" / "python3"
    assert run([python, "-c", "import six; print(six.__version__)"]).expect(0).out == "1.17.0\n"
    assert tykky.room.left_behind() == []


ADDED = RECIPE.replace("six==1.16.0]", "six==1.17.0, packaging==25.0]").replace(
    "      smoke:", '        - echo "again" >>$env_root/made.txt\n      smoke:'
)


def test_an_update_adds_packages_and_commands(tykky: Tykky) -> None:
    folder = tykky.room.folder / "updated"
    tykky.build("updated", RECIPE).expect(0)
    (folder / "_inst" / "kept.txt").write_text("of the first build")
    tykky.build("updated", ADDED, "--update", path=f"{folder}/bin:").expect(0)
    called = json.loads((folder / "share" / "called.json").read_text())
    taken = {name: value for name, value in vars(parser_0_4_2().parse_args(called)).items() if value}
    assert taken == {
        "command": "update",
        "post_install": "post-install.sh",
        "requirement": "requirements.txt",
        "dir": "tables-stand-in-lumi.part",
    }
    code = "import six, packaging; print(six.__version__, packaging.__version__)"
    assert run([folder / "bin" / "python3", "-c", code]).expect(0).out == "1.17.0 25.0\n"
    assert (folder / "_inst" / "made.txt").read_text() == "made \nagain\n"
    assert (folder / "_inst" / "kept.txt").exists()
    assert "nothing to do" in tykky.build("updated", ADDED, "--update").expect(0).err
    assert tykky.room.left_behind() == []
    # What pip cannot do is refused, and nothing changes.
    done = tykky.build("updated", RECIPE, "--update").expect(2)
    assert "pip removes nothing (packaging); a command of container.run that has run was changed or removed" in done.err
    assert "--force" in done.err
    done = tykky.build("updated", ADDED.replace("python=3.11", "python=3.12"), "--update").expect(2)
    assert "the conda part changed (- python=3.11, + python=3.12)" in done.err


def test_an_update_that_fails_leaves_the_installation(tykky: Tykky, built: Path) -> None:
    before = (built / "share" / "called.json").read_text()
    wrong = RECIPE.replace("six==1.16.0", "six==1.16.0, no-such-thing-here==1")
    tykky.build("tables", wrong, "--update").expect(5)
    assert (built / "share" / "called.json").read_text() == before
    assert run([built / "bin" / "python3", "-c", "import six"]).expect(0).out == ""


def test_an_update_of_what_recipe_did_not_build_is_refused(tykky: Tykky) -> None:
    (tykky.room.folder / "foreign" / "bin").mkdir(parents=True)
    assert "does not say what it was made of" in tykky.build("foreign", RECIPE, "--update").expect(2).err


def test_an_installation_on_path_is_explained(tykky: Tykky, built: Path) -> None:
    done = tykky.build("conflict", RECIPE, path=f"{built}/bin:").expect(5)
    assert f"an installation of Tykky is on PATH, and it makes no other one then: ['{built}']" in done.err
    assert not (tykky.room.folder / "conflict").exists()
    assert tykky.room.left_behind() == []


def test_a_command_that_fails_leaves_no_folder(tykky: Tykky) -> None:
    done = tykky.build("failing", RECIPE.replace("echo", "false && echo")).expect(5)
    assert "command 1 of container.run failed" in done.err
    assert not (tykky.room.folder / "failing").exists()
    assert tykky.room.left_behind() == []
