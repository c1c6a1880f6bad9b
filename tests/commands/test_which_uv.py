"""Which uv is called: a stand-in that is first on PATH writes down that it was."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from builder.layers import uv
from builder.layers.uv import find_own_uv, find_uv, require_uv
from builder.lock.session import find_uv_program
from builder.model.finding import ToolError
from builder.sif.errors import LayeringError
from builder.system.scratch import make_step_environment


@pytest.fixture
def said(tmp_path: Path) -> Path:
    """Where the stand-ins write that they were called."""
    return tmp_path / "called"


def stand_in(folder: Path, said: Path, version: str) -> Path:
    folder.mkdir()
    program = folder / "uv"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >>{said}\necho "uv {version}"\n')
    program.chmod(0o755)
    return program


def test_the_first_on_path_is_not_called(tmp_path: Path, said: Path) -> None:
    first = stand_in(tmp_path / "bin", said, "0.4.0")
    path = f"{first.parent}{os.pathsep}{os.environ['PATH']}"
    assert find_own_uv() == str(Path(sys.executable).with_name("uv"))
    assert find_uv({"PATH": path}) == find_uv_program({"PATH": path}) == find_own_uv()
    assert make_step_environment({"PATH": path}, scratch=tmp_path)["RECIPE_UV"] == find_own_uv()
    assert not said.exists()


def test_one_that_the_user_names_comes_first(tmp_path: Path, said: Path) -> None:
    named = stand_in(tmp_path / "named", said, "0.13.8 (x86_64-unknown-linux-gnu)")
    assert find_uv({"PATH": "/usr/bin", "RECIPE_UV": str(named)}) == str(named)
    assert find_uv({"PATH": "/usr/bin", "RECIPE_UV": "/no/such/uv"}) == find_own_uv()


@pytest.mark.parametrize("version", ["0.4.0", "0.13.7", "0.14.0", "1.0.0", "of my own"])
def test_by_hand_one_of_another_series_is_refused(
    tmp_path: Path, said: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    program = stand_in(tmp_path / "bin", said, version)
    monkeypatch.setattr(uv, "find_own_uv", lambda: "")  # as where nothing of ours is installed
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.delenv("RECIPE_UV", raising=False)
    with pytest.raises(LayeringError, match=r"this requires uv 0\.13\.8 or newer, below 0\.14") as refused:
        require_uv()
    assert str(program) in str(refused.value)
    assert "RECIPE_UV" in refused.value.fix
    with pytest.raises(ToolError):
        find_uv_program(os.environ)
    assert said.read_text().splitlines() == [f"{program} --version"]  # and it was asked for nothing else


def test_by_hand_one_of_the_series_is_taken(tmp_path: Path, said: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = stand_in(tmp_path / "bin", said, "0.13.20")
    monkeypatch.setattr(uv, "find_own_uv", lambda: "")
    monkeypatch.delenv("RECIPE_UV", raising=False)
    assert find_uv({"PATH": str(program.parent)}) == str(program)


def test_images_layers_and_the_tool_itself_name_one_series() -> None:
    top = Path(__file__).parents[2]
    least, below = (".".join(map(str, version)) for version in (uv.LEAST, uv.BELOW))
    assert f'"uv>={least},<{below}"' in (top / "pyproject.toml").read_text()
    assert f"\nUV_VERSION={least}\n" in (top / "builder/data/templates/install.sh").read_text()
