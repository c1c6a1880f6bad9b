"""The pictures of README and docs show what the program prints and how the code is built."""

from __future__ import annotations

import re
import shutil
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.own_code import FLOORS, PACKAGE
from support.pictures import floors, terminal

from builder.cli.main import run
from builder.cli.streams import fit

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 108


@pytest.fixture
def update_golden(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--update-golden", default=False))


def held(name: str, drawn: str, *, update: bool) -> None:
    path = PICTURES / name
    if update:
        path.write_text(drawn, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == drawn, "make golden draws it again"


def test_the_picture_of_check_is_what_check_prints(
    update_golden: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in ("output", "check"):
        monkeypatch.setattr(f"builder.cli.{module}.get_screen_width", lambda **_: COLUMNS)
    shutil.copy(ROOT / "recipes" / "mnist.yml", tmp_path)
    shutil.copy(ROOT / "recipes" / "mnist-local.yml", tmp_path)
    lines = ["$ recipe check mnist.yml"]
    assert run(["check", "mnist.yml"]) == 0
    printed = capsys.readouterr()
    lines += (printed.out + printed.err).splitlines()
    lines += ["", "$ recipe check lumi-g mnist-local.yml"]
    assert run(["check", "lumi-g", "mnist-local.yml"]) == 3
    printed = capsys.readouterr()
    lines += (printed.out + printed.err).splitlines()
    shown = [part for line in lines for part in fit(line, width=COLUMNS)]
    held("check.svg", terminal(shown, title="recipe check of one file on sixteen sites"), update=update_golden)


def test_the_picture_of_a_build_is_its_transcript(update_golden: bool) -> None:
    lines = (PICTURES / "build.txt").read_text(encoding="utf-8").splitlines()
    held("build.svg", terminal(lines, title="recipe build on two cores without a GPU"), update=update_golden)


def test_the_picture_of_the_floors_has_every_floor(update_golden: bool) -> None:
    rows = re.findall(r"^      (\w+)/ +(\S.*)$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    duties = {name: duty.partition("; ")[0].partition(" (")[0] for name, duty in rows}
    named = [(name, duties[name]) for name in reversed(FLOORS)]
    held("floors.svg", floors(named, title="The floors of the code: imports go downwards"), update=update_golden)
    assert {name for name in duties if (PACKAGE / name).is_dir()} == {*FLOORS, "data"}


@pytest.mark.parametrize("name", ["check", "build", "floors"])
def test_a_picture_is_text_for_light_and_dark(name: str) -> None:
    text = (PICTURES / f"{name}.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    words = " ".join(unescape("".join(node.itertext())) for node in root.iter() if node.tag.endswith("text"))
    assert len(words.split()) > 20
    assert "prefers-color-scheme: dark" in text
    assert "<image" not in text
