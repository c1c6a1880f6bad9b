"""engine.sh copies the packages that a lock names, and nothing else, to the inputs of a build and nowhere else."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from builder.compile.render import read_template

CONTENT = b"a package"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def copied(folder: Path, row: str, *, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run locked_packages in a plan folder whose list holds this row."""
    (folder / "image").mkdir()
    (folder / "image" / "conda-local.txt").write_text(row)
    (folder / "engine.sh").write_text(read_template("engine.sh"))
    (folder / "inputs" / "conda").mkdir(parents=True, exist_ok=True)
    script = f". ./engine.sh; inputs=$PWD/inputs; {before} locked_packages"
    return subprocess.run(["bash", "-euc", script], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    path = tmp_path / "x-1-0.conda"
    path.write_bytes(CONTENT)
    return path


def test_a_locked_package_is_copied(tmp_path: Path, package: Path) -> None:
    done = copied(tmp_path, f"{DIGEST}\tnoarch/x-1-0.conda\t{package}\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "inputs/conda/noarch/x-1-0.conda").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "target", ["../../victim", "a/../../../victim", "{folder}/victim", "../victim", "a/..", "a/b/c", "a/b$(id)"]
)
def test_security_05_nothing_is_copied_outside_the_inputs(tmp_path: Path, package: Path, target: str) -> None:
    done = copied(tmp_path, f"{DIGEST}\t{target.format(folder=tmp_path)}\t{package}\n")
    assert "names no file of a channel" in done.stderr
    assert done.returncode == 1
    assert not (tmp_path / "victim").exists()
    assert not [*(tmp_path / "inputs" / "conda").rglob("*")]


def test_security_05_the_digest_is_compared_before_anything_is_copied(tmp_path: Path, package: Path) -> None:
    done = copied(tmp_path, f"{'0' * 64}\tnoarch/x-1-0.conda\t{package}\n")
    assert "is not the one that was locked" in done.stderr
    assert done.returncode == 1
    assert not [*(tmp_path / "inputs" / "conda").rglob("*")]


def test_security_05_a_package_that_changes_while_it_is_copied_is_refused(tmp_path: Path, package: Path) -> None:
    changing = 'cp() { command cp "$@"; echo more >>"${!#}"; };'
    done = copied(tmp_path, f"{DIGEST}\tnoarch/x-1-0.conda\t{package}\n", before=changing)
    assert "is not the one that was locked" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize("source", ["x-1-0.conda", "-x", "../x-1-0.conda", ""])
def test_security_05_a_source_is_an_absolute_path(tmp_path: Path, package: Path, source: str) -> None:
    done = copied(tmp_path, f"{DIGEST}\tnoarch/{package.name}\t{source}\n")
    assert "names no file of this machine" in done.stderr
    assert done.returncode == 1


def test_security_05_a_link_at_the_target_is_replaced(tmp_path: Path, package: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    place = tmp_path / "inputs/conda/noarch/x-1-0.conda"
    place.parent.mkdir(parents=True)
    place.symlink_to(victim)
    done = copied(tmp_path, f"{DIGEST}\tnoarch/x-1-0.conda\t{package}\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert victim.read_text() == "mine"
    assert place.read_bytes() == CONTENT
    assert not place.is_symlink()
