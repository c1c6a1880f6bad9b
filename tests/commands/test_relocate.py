"""relocate.py gives a copied environment its new path: in texts, in what conda has padded, and in links."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from builder.compile.render import TEMPLATES

OLD = "/home/me/env"
ROOM = 255  # conda's placeholder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "conda-meta").mkdir()
    return tmp_path


def relocate(folder: Path, *olds: str, code: int = 0) -> str:
    command = [sys.executable, "-I", "-S", "-B", TEMPLATES / "relocate.py", folder, *(olds or (OLD,))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def note_padded(folder: Path, *paths: str, room: int = ROOM) -> None:
    rows = [{"_path": path, "file_mode": "binary", "prefix_placeholder": "/" + "p" * (room - 1)} for path in paths]
    (folder / "conda-meta" / "one-1-0.json").write_text(json.dumps({"paths_data": {"paths": rows}}))


def padded(*texts: str, room: int = ROOM) -> bytes:
    return (
        b"\x7fELF" + b"".join(os.fsencode(one).ljust(len(one) + room - len(OLD) + 1, b"\0") for one in texts) + b"end"
    )


def test_a_text_has_the_new_path_wherever_it_had_the_old_one(folder: Path) -> None:
    script = folder / "bin" / "tool"
    script.write_text(f"#!{OLD}/bin/python3.11\nhome = '{OLD}'\nother = '{OLD}2/x {OLD}-old'\n")
    script.chmod(0o555)
    assert "1 files had the path /home/me/env" in relocate(folder)
    text = script.read_text()
    assert text == f"#!{folder}/bin/python3.11\nhome = '{folder}'\nother = '{OLD}2/x {OLD}-old'\n"
    assert script.stat().st_mode & 0o777 == 0o555


def test_several_old_paths_are_replaced(folder: Path) -> None:
    (folder / "a").write_text(f"{OLD}/x /opt/first/y\n")
    relocate(folder, OLD, "/opt/first")
    assert (folder / "a").read_text() == f"{folder}/x {folder}/y\n"


@pytest.mark.parametrize("old", [OLD, "/home/a/much/longer/path/that/nothing/here/is/as/long/as/" + "x" * 150])
def test_a_binary_file_keeps_its_length(folder: Path, old: str) -> None:
    note_padded(folder, "bin/program")
    content = b"\x7fELF" + f"{old}/lib".encode().ljust(300, b"\0") + old.encode().ljust(260, b"\0") + b"end"
    (folder / "bin" / "program").write_bytes(content)
    relocate(folder, old)
    found = (folder / "bin" / "program").read_bytes()
    assert len(found) == len(content)
    assert (
        found
        == b"\x7fELF" + f"{folder}/lib".encode().ljust(300, b"\0") + os.fsencode(folder).ljust(260, b"\0") + b"end"
    )


def test_a_binary_file_that_conda_did_not_pad_is_left(folder: Path) -> None:
    (folder / "bin" / "program").write_bytes(padded(f"{OLD}/lib"))
    assert "0 files had" in relocate(folder)
    assert (folder / "bin" / "program").read_bytes() == padded(f"{OLD}/lib")


def test_a_binary_file_without_room_stops_it(folder: Path) -> None:
    note_padded(folder, "bin/program", room=len(OLD))
    (folder / "bin" / "program").write_bytes(padded(f"{OLD}/lib", room=len(OLD)))
    assert "has no room for the path" in relocate(folder, code=1)


def test_a_link_to_the_old_path_leads_to_the_new_one(folder: Path) -> None:
    (folder / "bin" / "python").symlink_to("python3")
    (folder / "bin" / "python3").symlink_to(f"{OLD}/bin/python3.11")
    relocate(folder)
    assert str((folder / "bin" / "python3").readlink()) == f"{folder}/bin/python3.11"
    assert str((folder / "bin" / "python").readlink()) == "python3"


def test_files_with_two_names_stay_one_file(folder: Path) -> None:
    (folder / "bin" / "pip").write_text(f"#!{OLD}/bin/python\n")
    os.link(folder / "bin" / "pip", folder / "bin" / "pip3")
    relocate(folder)
    assert (folder / "bin" / "pip").samefile(folder / "bin" / "pip3")
    assert (folder / "bin" / "pip3").read_text() == f"#!{folder}/bin/python\n"


def test_a_module_that_changed_is_compiled_again(folder: Path) -> None:
    module = folder / "lib" / "where.py"
    module.parent.mkdir()
    module.write_text(f"HERE = '{OLD}'\n")
    subprocess.run([sys.executable, "-m", "compileall", "-q", module.parent], check=True)
    old = next((module.parent / "__pycache__").iterdir())
    relocate(folder)
    assert OLD.encode() not in old.read_bytes()
    assert os.fsencode(folder) in old.read_bytes()
