"""Sites and example recipes are found in a checkout, in the wheel, and in the wheel of the source distribution."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from builder.parse.site import find_data_folder

ROOT = Path(__file__).parents[2]
FOLDERS = ("recipes", "sites")
SHOW = """
from builder.parse.site import find_data_folder
print(*sorted(path.name for name in ("recipes", "sites") for path in find_data_folder(name).iterdir()))
"""


def run(*words: str | Path, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def names() -> list[str]:
    return sorted(path.name for folder in FOLDERS for path in (ROOT / folder).iterdir())


def test_a_checkout_has_them_beside_the_package() -> None:
    assert [find_data_folder(name) for name in FOLDERS] == [ROOT / name for name in FOLDERS]
    assert len(names()) > 10


@pytest.mark.parametrize("start", ["checkout", "sdist"])
def test_the_wheel_has_them_inside(start: str, tmp_path: Path) -> None:
    source = ROOT
    if start == "sdist":
        run("-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path / "sdist", cwd=ROOT)
        with tarfile.open(next((tmp_path / "sdist").iterdir())) as archive:
            archive.extractall(tmp_path / "unpacked")
        source = next((tmp_path / "unpacked").iterdir())
    run("-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "wheel", cwd=source)
    with zipfile.ZipFile(next((tmp_path / "wheel").iterdir())) as wheel:
        wheel.extractall(tmp_path / "installed")
    whole = f"{tmp_path / 'installed'}{os.pathsep}{os.pathsep.join(sys.path)}"  # what it needs is installed here
    found = run("-S", "-c", SHOW, cwd=tmp_path, PYTHONPATH=whole).split()
    assert found == names()
