"""An unpacked conda package is looked at before it is linked: its list of files, and its links."""

from __future__ import annotations

import json
from pathlib import Path

from support.rows import rows

from builder.layers.conda_worker import find_fault


def package(folder: Path, *names: str, **links: str) -> Path:
    (folder / "info").mkdir()
    for name, target in links.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)
    rows = [{"_path": name} for name in (*names, *links)]
    (folder / "info" / "paths.json").write_text(json.dumps({"paths": rows}))
    return folder


@rows(
    "name",
    [
        "/etc/passwd", "..", "../x", "a/../../x", "a/..", "a\nb", "a\x1b[2Jb", "a\\..\\b", "\\x", "a\u2028b",
        "lib/../../../../home/me/.bashrc",
    ],
)  # fmt: skip
def test_security_08_a_package_names_no_file_outside(tmp_path: Path, name: str) -> None:
    assert find_fault(package(tmp_path, "share/sound.txt", name)).startswith("it names the file")


@rows(
    ("name", "target"),
    [("x", "/etc/passwd"), ("x", ".."), ("x", "../y"), ("a/x", "../../y"), ("a/x", "b/../../../y"), ("a/x", "../..")],
)
def test_security_08_no_link_of_a_package_leads_out(tmp_path: Path, name: str, target: str) -> None:
    assert "leads out of the environment" in find_fault(package(tmp_path, "share/sound.txt", **{name: target}))


def test_a_sound_package_is_linked(tmp_path: Path) -> None:
    names = ("bin/python3.12", "lib/a b", "share/..x", "x..")
    assert find_fault(package(tmp_path, *names, **{"lib/x.so": "x.so.1", "lib/y/z": "../../bin/z"})) == ""
