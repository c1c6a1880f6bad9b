"""`private_folder` of engine.sh, as the scripts call it; with a second user: tests/users/test_private_folders.py."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from builder.compile.render import read_template

# What the user owns is another user's.
FOREIGN = r'stat() { command stat "$@" | sed -E "s/^$UID( |$)/4711\1/"; }; '
MADE = "set -u; . ./engine.sh; {before}private_folder {words} && echo place=$place"


def script(folder: Path, words: str, *, before: str = "") -> tuple[int, str]:
    (folder / "engine.sh").write_text(read_template("engine.sh"))
    done = subprocess.run(
        ["bash", "-c", MADE.format(before=before, words=words)],
        cwd=folder, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(name="top")
def own_place(tmp_path: Path) -> Path:
    (tmp_path / "top").mkdir(0o700)
    return tmp_path / "top"


@pytest.mark.parametrize("shared", ["", "shared"])
@pytest.mark.parametrize("bits", [0o700, 0o755, 0o1777])
def test_security_11_a_script_refuses_a_folder_of_another_user(
    tmp_path: Path, top: Path, bits: int, shared: str
) -> None:
    top.chmod(bits)
    code, said = script(tmp_path, f"{top} folder '?' {shared}", before=FOREIGN)
    assert (code, "belongs to" in said) == (1, True), said
    code, said = script(tmp_path, f"{top / 'new'} folder '?' {shared}", before=FOREIGN)
    assert (code, "belongs to" in said) == (1, True), said
    wanted = 1 if bits == 0o1777 and not shared else 0
    assert script(tmp_path, f"{top} folder '?' {shared}")[0] == wanted


def test_security_11_a_script_refuses_a_link_of_another_user(tmp_path: Path, top: Path) -> None:
    (top / "link").symlink_to("/tmp")
    assert script(tmp_path, f"{top / 'link'} folder '?' shared") == (0, "place=/tmp\n")
    code, said = script(tmp_path, f"{top / 'link'} folder '?' shared", before=FOREIGN)
    assert (code, "is a link of uid 4711" in said) == (1, True), said


@pytest.mark.parametrize("shared", ["", "shared"])
@pytest.mark.parametrize("bits", [0o770, 0o707, 0o777, 0o702])
def test_security_11_a_script_refuses_a_folder_that_others_can_write(
    tmp_path: Path, top: Path, bits: int, shared: str
) -> None:
    top.chmod(bits)
    code, said = script(tmp_path, f"{top} folder '?' {shared}")
    assert (code, f"run chmod -R go-w {top}" in said) == (1, True), said
    if bits & 0o002:
        code, said = script(tmp_path, f"{top / 'new'} folder '?' {shared}")
        assert (code, "can be written by others" in said) == (1, True), said


@pytest.mark.parametrize("umask", ["0", "022", "077"])
def test_security_11_a_script_makes_what_is_missing_for_its_user_alone(tmp_path: Path, top: Path, umask: str) -> None:
    code, said = script(tmp_path, f"{top}/a/b folder '?'", before=f"umask {umask}; ")
    assert (code, said) == (0, f"place={top}/a/b\n")
    assert {oct(path.stat().st_mode & 0o7777) for path in (top / "a", top / "a" / "b")} == {"0o700"}
