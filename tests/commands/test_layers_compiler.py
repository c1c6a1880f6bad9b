"""Python files are compiled by processes of the image's Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from builder.layers.bytecode import Compiler, list_sources, name_compiled_file
from builder.layers.wheel_files import PREFIX
from builder.sif.errors import LayeringError
from builder.sif.pack import expand_pieces


def compiled(folder: Path, out: Path, *, workers: int, order: int = 1) -> dict[str, bytes]:
    out.mkdir()
    tag = sys.implementation.cache_tag or ""
    compiler = Compiler(argv=(sys.executable,), version="3", tag=tag)
    pieces = compiler.compile(
        folder, list_sources(folder, below="lib")[::order], prefix=PREFIX, workers=workers, out=out
    )
    assert not list(folder.rglob("*.pyc"))
    expand_pieces(pieces, folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.pyc"))}


def test_compiled_files_are_the_same_wherever_they_are_made(tmp_path: Path) -> None:
    source = Path(subprocess.__file__).parent  # the standard library: code of every kind
    names = sorted(path.name for path in source.glob("*.py"))[:60]
    found = []
    for place, workers, order in (("one", 1, 1), ("a/longer/name", 3, -1)):
        folder = tmp_path / place / "lib"
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_bytes((source / name).read_bytes())
        (folder / "bad.py").write_text("def f[:\n")
        (folder / "tests").mkdir()
        (folder / "tests" / "t.py").write_text("A = 1\n")
        found.append(compiled(tmp_path / place, tmp_path / f"out-{workers}", workers=workers, order=order))
    assert found[0] == found[1]
    assert len(found[0]) == len(names)


def test_a_compiled_file_is_taken_without_its_source(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "m.py").write_text("VALUE = 1\n")
    made = compiled(tmp_path, tmp_path / "out", workers=1)
    assert list(made) == [name_compiled_file("lib/m.py", sys.implementation.cache_tag or "")]
    (tmp_path / "lib" / "m.py").write_text("VALUE = 2\n")  # unchecked: neither time nor content is looked at
    done = subprocess.run(
        [sys.executable, "-c", "import m; print(m.VALUE, m.__file__)"],
        check=True,
        cwd=tmp_path / "lib",
        capture_output=True,
        text=True,
    )
    assert done.stdout.split()[0] == "1"


def test_what_cannot_be_compiled_is_said(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "m.py").write_text("VALUE = 1\n")
    compiler = Compiler(argv=(sys.executable, "-c", "import sys; sys.exit(3)"), version="3.11.9", tag="cpython-311")
    with pytest.raises(LayeringError, match=r"Python 3\.11\.9 could not compile"):
        compiler.compile(tmp_path, ["lib/m.py"], prefix=PREFIX, workers=2, out=tmp_path)
