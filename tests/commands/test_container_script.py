"""run/container.sh sourced by hand: an error is a message in the user's own shell, never its end."""

from __future__ import annotations

import os
import pty
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.matrix import bare_target
from support.rows import rows

from builder.compile.launch.container_scripts import make_container_script

RUNTIME = '#!/bin/sh\n[ "$1" = exec ] && printf "%s\\n" "$@"\n'  # a stand-in: prints its words


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "container.sh").write_text(make_container_script(bare_target("mn5")))
    (tmp_path / "bin").mkdir()
    for name in ("bash", "sh"):
        (tmp_path / "bin" / name).symlink_to(f"/bin/{name}")
    return tmp_path


def typed(folder: Path, shell: list[str], lines: str, **environment: str) -> str:
    """What an interactive shell at a terminal prints."""
    terminal, theirs = pty.openpty()
    with subprocess.Popen(
        shell, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs,
        env={"PATH": str(folder / "bin"), "HOME": str(folder), "PS1": "", **environment},
    ) as process:  # fmt: skip
        os.close(theirs)
        os.write(terminal, f"{lines}\nexit 0\n".encode())
        told = b""
        while True:
            try:
                part = os.read(terminal, 4096)
            except OSError:  # the other end is closed
                break
            told += part
        assert process.wait(60) == 0
    os.close(terminal)
    return told.decode()


@rows(
    ("shell", "message"),
    [
        (
            "bash --norc --noprofile -i",
            "neither singularity nor apptainer is installed: first run module load",
        ),
        ("sh -i", "run/container.sh is for bash"),
    ],
)
def test_a_shell_of_the_users_outlives_a_missing_runtime(folder: Path, shell: str, message: str) -> None:
    told = typed(folder, shell.split(), ". ./run/container.sh\necho still-$((40 + 2))-here")
    assert f"recipe: error: {message}" in told
    assert "still-42-here" in told


def test_a_script_ends_with_it(folder: Path) -> None:
    done = subprocess.run(
        ["/bin/bash", "-euc", ". run/container.sh; echo went on"], cwd=folder, env={"PATH": str(folder / "bin")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")


def test_a_users_own_paths_are_bound(folder: Path) -> None:
    (folder / "bin" / "singularity").write_text(RUNTIME)
    (folder / "bin" / "singularity").chmod(0o755)
    shell = ["bash", "--norc", "--noprofile", "-i"]
    told = typed(folder, shell, ". run/container.sh\nin_image nvidia-smi", RECIPE_BINDS="/a,/b:/c:ro")
    words = told.split()
    assert words[words.index("/a,/b:/c:ro") - 1] == "--bind"


def test_tykkys_wrappers_get_the_users_binds_once(folder: Path) -> None:
    target = replace(bare_target("lumi-g"), backend="tykky")
    (folder / "run" / "container.sh").write_text(make_container_script(target))
    lines = "set -eu; . run/container.sh; . run/container.sh; echo ${CW_EXTRA_BIND_MOUNTS-unset} ${digits[*]}"

    def read(**environment: str) -> str:
        words = ["/bin/bash", "-c", lines]
        return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout

    assert read() == "unset\n"
    assert read(RECIPE_BINDS="/a,/b:/c:ro", RECIPE_MNIST="/digits") == "/a,/b:/c:ro,/digits --data /digits\n"
    assert read(RECIPE_BINDS="/a", CW_EXTRA_BIND_MOUNTS="/mine") == "/mine,/a\n"
