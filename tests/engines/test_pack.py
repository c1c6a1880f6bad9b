"""What mksquashfs makes of files that are given to it in one piece: the same bytes as of files on disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from builder.layers.bytecode import Compiler, list_sources
from builder.sif.errors import LayeringError
from builder.sif.pack import Packer, Piece, find_packer, move_below

pytestmark = pytest.mark.engines

NAMES = (
    "__pycache__/m.pyc",
    'with space/__pycache__/q"uote.pyc',
    "with space/back\\slash.pyc",
    "there/own.pyc",
    "empty.pyc",
)
# Asks for the field that later versions ask for, and hands the rest to the real one.
LATER = """#!/usr/bin/env python3
import os, pathlib, subprocess, sys
words = sys.argv[1:]
if "-pf" in words:
    at = words.index("-pf") + 1
    head, mark, data = pathlib.Path(words[at]).read_bytes().partition(b"# START OF DATA")
    lines = head.splitlines()
    if any(b" R " in line and not line.endswith(b" 0") for line in lines if b" 0 0 1 " in line):
        sys.exit("Not enough or invalid arguments in inline read pseudo file definition")
    rows = [line.removesuffix(b" 0") if b" R " in line else line for line in lines]
    words[at] += ".earlier"
    pathlib.Path(words[at]).write_bytes(b"\\n".join(rows) + b"\\n" + mark + data)
os.execv(REAL, [REAL, *words])
"""


def tree_and_pieces(folder: Path) -> tuple[Path, list[Piece]]:
    tree = folder / "tree"
    (tree / "there").mkdir(parents=True)
    (tree / "there" / "m.py").write_text("A = 1\n" * 1000)
    (tree / "there" / "own.pyc").write_bytes(b"a wheel's own")
    source, offset, pieces = folder / "source", 0, []
    with source.open("wb") as file:
        for number, name in enumerate(NAMES[:-1]):
            content = os.urandom(10 ** (number + 2)) + name.encode() * 99
            file.write(content)
            pieces.append(Piece(path=name, source=source, offset=offset, size=len(content)))
            offset += len(content)
    return tree, [*pieces, Piece(path=NAMES[-1], source=source, offset=0, size=0)]


def packed(packer: Packer, tree: Path, target: Path, pieces: Sequence[Piece]) -> bytes:
    packer.pack([tree], target, pieces=pieces)
    return target.read_bytes()


def test_pieces_are_packed_as_files_are(tmp_path: Path) -> None:
    packer = find_packer(zstd=True, time=315532800)
    assert packer.form is not None, "this mksquashfs takes no contents: the tests need 4.5 or newer"
    tree, pieces = tree_and_pieces(tmp_path)
    found = packed(packer, tree, tmp_path / "a.sqfs", pieces[::-1])
    assert not list(tree.rglob("m.pyc"))
    later = tmp_path / "mksquashfs_stand_in"
    later.write_text(LATER.replace("REAL", repr(packer.program)))
    later.chmod(0o755)
    assert replace(packer, program=str(later)).form == " 0"
    assert packed(replace(packer, program=str(later)), tree, tmp_path / "b.sqfs", pieces) == found
    old = replace(packer)
    vars(old)["form"] = None  # as of 4.4: the pieces become files first
    assert packed(old, tree, tmp_path / "c.sqfs", pieces) == found
    assert (tree / "with space" / "back\\slash.pyc").is_file()
    for piece in pieces:
        words = ["unsquashfs", "-no-wildcards", "-cat", str(tmp_path / "a.sqfs"), piece.path]
        content = subprocess.run(words, check=True, capture_output=True).stdout
        assert content == piece.source.read_bytes()[piece.offset : piece.offset + piece.size]


def test_a_piece_that_does_not_fit_is_a_fault(tmp_path: Path) -> None:
    tree, pieces = tree_and_pieces(tmp_path)
    wrong = Piece(path="there/m.py/below.pyc", source=pieces[0].source, offset=0, size=1)
    with pytest.raises((LayeringError, NotADirectoryError)):
        find_packer(zstd=True, time=0).pack([tree], tmp_path / "x.sqfs", pieces=[*pieces, wrong])
    short = replace(pieces[0], size=10**9)
    with pytest.raises(LayeringError, match="became shorter"):
        find_packer(zstd=True, time=0).pack([tree], tmp_path / "x.sqfs", pieces=[short])


def test_a_container_compiles_the_same(base_sif: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    (folder / "lib").mkdir(parents=True)
    for number in range(20):
        (folder / "lib" / f"m{number}.py").write_text(f"VALUE = {number}\n" * (number + 1))
    paths = list_sources(folder, below="lib")
    inside = Compiler(
        argv=("apptainer", "exec", "--cleanenv", "--no-home", str(base_sif), "python3"),
        version="3.11.2",
        tag="cpython-311",
        binds=4,
    )
    here = replace(inside, argv=("/usr/bin/python3.11",), binds=0)
    found: list[dict[str, bytes]] = []
    for compiler in (inside, here):
        out = tmp_path / f"out-{len(found)}"
        out.mkdir()
        pieces = move_below("opt/env", compiler.compile(folder, paths, prefix="/opt/env", workers=3, out=out, nice=2))
        content = {piece.path: piece.source.read_bytes()[piece.offset :][: piece.size] for piece in pieces}
        found.append(content)
    assert found[0] == found[1]
    assert len(found[0]) == 20
