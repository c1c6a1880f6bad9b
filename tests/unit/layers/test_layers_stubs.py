"""What an image says of its packages becomes names of files and lines that uv reads: only what is a name does."""

from __future__ import annotations

from pathlib import Path

from support.rows import rows

from builder.layers.wheels import write_stubs
from builder.lock.base_lock import normalize_packages

ODD = ("../out", "a/b", "a\n-r /etc/hosts", "a\r-i x", "a b", "a#b", "", "-r", "a\u2028b", "a" * 5000)


@rows("name", ODD)
def test_security_02_a_package_of_an_image_names_no_file_and_no_line(name: str, tmp_path: Path) -> None:
    names = {name: "1.0", str(tmp_path / "out"): "1.0", "numpy": "1.26"}
    assert normalize_packages(names) == {"numpy": "1.26"}
    (tmp_path / "a").mkdir()
    (line,) = write_stubs(tmp_path / "stubs", names)
    assert line.startswith("numpy @ file://")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["numpy-1.26-py3-none-any.whl"]


@rows("version", ["1/../../out", "1\n-r /etc/hosts", "", "1 ; x"])
def test_security_02_a_version_of_an_image_names_no_file_and_no_line(version: str, tmp_path: Path) -> None:
    assert normalize_packages({"x": version}) == {}
    assert write_stubs(tmp_path / "stubs", {"x": version}) == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
