"""What was compiled is kept by package, and taken again by every layer that has the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from builder.layers.bytecode import PackageSources, compile_packages, name_compiled_file
from builder.layers.cache import Store
from builder.sif.pack import Piece

TAG = "cpython-311"
ONE = PackageSources(key="1" * 64, title="one 1.0", paths=("lib/one.py", "lib/shared.py"))
TWO = PackageSources(key="2" * 64, title="two 1.0", paths=("lib/shared.py", "lib/two.py"))


class Room:
    """A store, and who compiles: the content of a .pyc is the name of its source."""

    def __init__(self, folder: Path) -> None:
        self.store, self.work = Store(folder), folder / "work-of-one-build"
        self.work.mkdir()
        self.asked: list[list[str]] = []

    def compiled(self, paths: Sequence[str]) -> list[Piece]:
        self.asked.append(list(paths))
        pieces = []
        for path in paths:
            made = self.work / path.replace("/", "-")
            made.write_text(path)
            pieces.append(Piece(path=name_compiled_file(path, TAG), source=made, offset=0, size=len(path)))
        return pieces

    def later(self, job: Callable[[], object]) -> None:
        job()

    def make(self, *packages: PackageSources) -> dict[str, Piece]:
        pieces = compile_packages(
            packages,
            compile_files=self.compiled,
            tag=TAG,
            store=self.store,
            work=self.work,
            run_in_background=self.later,
        )
        assert len({piece.path for piece in pieces}) == len(pieces)
        return {piece.path: piece for piece in pieces}


def content(piece: Piece) -> str:
    return piece.source.read_bytes()[piece.offset : piece.offset + piece.size].decode()


def test_a_package_is_compiled_once_and_what_two_have_each_time(tmp_path: Path) -> None:
    room = Room(tmp_path)
    for _ in range(2):
        made = room.make(ONE, TWO)
        assert {content(piece) for piece in made.values()} == {"lib/one.py", "lib/shared.py", "lib/two.py"}
    assert room.asked == [["lib/one.py", "lib/shared.py", "lib/two.py"], ["lib/shared.py"]]


def test_two_layers_with_one_package_share_no_file_of_the_build(tmp_path: Path) -> None:
    """While one of them reads it the other one is being made: a layer of the last time, and that of today."""
    room = Room(tmp_path)
    room.make(ONE)
    (first,), (second,) = ({piece.source for piece in room.make(ONE).values()} for _ in range(2))
    assert first != second
    assert first.samefile(second)
