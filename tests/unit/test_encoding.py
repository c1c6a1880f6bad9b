"""Paths whose bytes are not UTF-8: what writes is refused before anything is done."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from builder.cli.main import run

ODD = os.fsdecode(b"a\xff")
LINES = (
    ("build", "local", "mnist.yml", "-o", f"{ODD}.sif"),
    ("build", "local", "mnist.yml", f"--output={ODD}.sif"),
    ("build", "local", "mnist.yml", f"-o{ODD}.sif", "-n"),
    ("build", "local", f"{ODD}.yml"),
    ("build", "local", "--", f"{ODD}.yml"),
    ("plan", "local", "mnist.yml", "-o", ODD),
    ("plan", "local", "mnist.yml", "-o", f"link/{ODD}"),
    ("plan", "local", "mnist.yml", "-o", "link/x"),
    ("smoke", "local", f"{ODD}.sif"),
    ("run", "local", f"{ODD}.sif", "--", "true"),
    ("convert", "local", f"{ODD}.tar"),
    ("lock", "local", f"{ODD}.yml"),
    ("fetch", "local", f"{ODD}.yml"),
    ("init", "-o", f"{ODD}.yml"),
)


@pytest.fixture
def place(tmp_path: Path, recipes: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("mnist.yml", f"{ODD}.yml", f"{ODD}.sif", f"{ODD}.tar"):
        shutil.copy(recipes / "mnist.yml", name)
    Path(ODD).mkdir()
    Path("link").symlink_to(ODD)
    return tmp_path


def refused(place: Path, capsys: pytest.CaptureFixture[str], *words: str) -> None:
    before = sorted(place.rglob("*"))
    assert run(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "a\\xff" in err
    assert "is not UTF-8 text" in err
    assert "fix: " in err
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("words", LINES, ids=lambda words: " ".join(words).replace(ODD, "ODD"))
def test_a_path_that_is_not_utf_8_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    refused(place, capsys, *words)


def test_a_working_folder_that_is_not_utf_8_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ODD)
    refused(place, capsys, "build", "local", str(place / "mnist.yml"))
    refused(place, capsys, "check", "local", str(place / "mnist.yml"))  # it says what a build would say
    assert run(["explain", "no-space"]) == 0  # it only reads


@pytest.mark.parametrize("name", ["TMPDIR", "RECIPE_TMPDIR", "RECIPE_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_variable_that_is_not_utf_8_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, str(place / ODD))
    refused(place, capsys, "build", "local", "mnist.yml")


@pytest.mark.parametrize("words", [("smoke", "local", "a.sif"), ("run", "local", "a.sif", "--", "true")])
@pytest.mark.parametrize("name", ["t:m", "t,m"])
def test_a_temporary_folder_that_no_container_gets_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], name: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(place / name))
    assert run(list(words)) == 2
    assert "contains a colon or a comma" in capsys.readouterr().err
