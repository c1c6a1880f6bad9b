"""The scripts of `recipe module`, run with a stand-in for the engine: which words reach it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.small_images import SIF

from builder.cli.main import run

ENGINE = '#!/bin/sh\nprintf "%s\\n" "$@"\n'  # a stand-in: prints its words
WRAPPER = '#!/bin/sh\necho "wrapped ${0##*/}" "$@"\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an image, and the engine first on PATH."""
    (tmp_path / "engine").mkdir()
    write(tmp_path / "engine" / "apptainer", ENGINE)
    monkeypatch.setenv("PATH", f"{tmp_path / 'engine'}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    (tmp_path / "it's.sif").write_bytes(SIF)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def words_of(program: Path, *words: str, cwd: Path) -> list[str]:
    """What the engine is given; the program is the first on PATH, as after `module load`."""
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run([program.name, *words], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_words_and_binds_reach_the_engine(place: Path) -> None:
    assert run(["module", "local", "it's.sif"]) == 0
    folder, here = place / "it-s-module", place / "a folder"
    here.mkdir()
    found = words_of(folder / "bin" / "python3", "a b", "$HOME", "--", "", cwd=here)
    assert found[0] == "exec"
    assert found[-5:] == ["python3", "a b", "$HOME", "--", ""]
    assert found[-6] == f"{place}/it's.sif"
    assert found[found.index("--pwd") + 1] == str(here)
    assert str(here) in [found[at + 1] for at, word in enumerate(found) if word == "--bind"]
    assert words_of(folder / "bin" / "it-s-exec", "ls", "-l", cwd=here)[-2:] == ["ls", "-l"]


def test_links_to_folder_and_program_are_followed(place: Path) -> None:
    assert run(["module", "local", "it's.sif", "-o", "m"]) == 0
    (place / "current").symlink_to("m")
    (place / "links").mkdir()
    (place / "links" / "python3").symlink_to(place / "current" / "bin" / "python3")
    (place / "project").symlink_to("links")
    for folder in ("current/bin", "links"):
        found = words_of(place / folder / "python3", "-V", cwd=place / "project")
        assert found[-2:] == ["python3", "-V"]
        assert found[found.index("--pwd") + 1] == str(place / "links")


def test_an_installation_has_its_own_wrappers(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("bin/python3", "bin/_debug_shell", "common.sh"):
        (place / "env" / name).parent.mkdir(parents=True, exist_ok=True)
        write(place / "env" / name, WRAPPER)
    assert run(["module", "local", "env", "-o", "m"]) == 0
    assert words_of(place / "m" / "bin" / "python3", "-V", cwd=place) == ["wrapped python3 -V"]
    capsys.readouterr()
    assert run(["module", "local", "env", "-o", "n", "--wrap", "/bin/sh"]) == 2
    assert "is an installation with wrappers of its own" in capsys.readouterr().err


def test_every_fault_of_a_line_leaves_no_folder(place: Path) -> None:
    before = {path.name for path in place.iterdir()}
    for line, code in (
        (["module", "local", "it's.sif", "--name", "../up"], 2),
        (["module", "local", "it's.sif", "--name", "x/1.lua"], 2),
        (["module", "local", "it's.sif", "-o", "it's.sif"], 2),
        (["module", "local", "it's.sif", "--wrap", "bin"], 2),
        (["kernel", "local", "it's.sif", "--name", "a/b"], 2),
        (["kernel", "local", "nothere.sif"], 2),
        (["shell", "local", "it's.sif", "more"], 2),
    ):
        assert run(line) == code, line
        assert {path.name for path in place.iterdir()} == before, line
