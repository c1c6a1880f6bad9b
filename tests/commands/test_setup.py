"""The scripts of tests/testbed/ where something of the machine is in their way."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[1] / "testbed"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("script", ["test.sh unit", "demo.sh", "base-image.sh"])
def test_fault_08_a_clone_that_cannot_be_written_is_named_once_with_what_to_do(tmp_path: Path, script: str) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(SETUP, clone / "tests" / "testbed")
    clone.chmod(0o555)
    name, *words = script.split()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", str(clone / "tests" / "testbed" / name), *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines() == [
        f"error: the state folder {clone}/.dev cannot be written",
        "  fix: name a folder of your own: RECIPE_DEV_HOME=/path",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root's own umask is set for all of its scripts")
@pytest.mark.parametrize("umask", [0o007, 0o027, 0o077, 0o022])
def test_fault_03_a_base_image_is_unpacked_with_its_own_rights(tmp_path: Path, umask: int) -> None:
    """Stand-ins pack a small tree and show what the engine is given; stamps of before have both made again."""
    tree, state, tools = tmp_path / "tree", tmp_path / "state", tmp_path / "tools"
    for folder in (tree / "usr", state / "base", state / "logs", tools):
        folder.mkdir(parents=True)
    (tree / "usr" / "file").touch()
    (tree / "usr").chmod(0o755)
    (tree / "usr" / "file").chmod(0o644)
    (state / "base" / "debian-python.tar").write_text("of other packages\n")
    (state / "base" / "debian-python.sif").write_text("broken\n")
    (state / "base" / "packing").write_text("-comp zstd -Xcompression-level 3 -b 128K\n")
    bootstrap = f'for word; do case $word in */part.tar) tar -cf "$word" -C {tree} . ;; esac; done'
    engine = 'stat -c "%a %n" "$6" "$6/usr" "$6/usr/file" >"$5"'
    for name, work in (("mmdebstrap", bootstrap), ("apptainer", engine)):
        (tools / name).write_text(f"#!/bin/sh\n{work}\n")
        (tools / name).chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(tmp_path), "RECIPE_DEV_HOME": str(state)}
    for _ in range(2):
        done = subprocess.run(
            ["bash", SETUP / "base-image.sh"], env=environment, capture_output=True, text=True, check=False, umask=umask
        )
        assert done.returncode == 0, done.stderr
    modes = [line.split()[0] for line in (state / "base" / "debian-python.sif").read_text().splitlines()]
    assert modes == ["755", "755", "644"]
