"""Packs folders as squashfs: the same files give the same bytes for every user, time and machine.

Small files may be given as pieces of larger ones, and never exist as files of their own.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import BinaryIO

from .errors import LayeringError, report_reading
from .programs import (
    ask,
    clean_environment,
    find_system_program,
    read_program_output,
    read_program_version,
    require_program,
)
from .removal import remove
from .sif import copy_range
from .squashfs import GZIP, ZSTD, Superblock
from .tree import write


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One file: its path below a folder, and the part of another file that is its content."""

    path: str
    source: Path
    offset: int
    size: int


def move_below(folder: str, pieces: Sequence[Piece]) -> list[Piece]:
    """The same pieces with their paths below a folder."""
    return [replace(piece, path=f"{folder.strip('/')}/{piece.path}") for piece in pieces]


def sort_pieces(pieces: Iterable[Piece]) -> list[Piece]:
    """Sorted by their source: neighbours are copied in one call."""
    return sorted(pieces, key=lambda piece: (str(piece.source), piece.offset))


def write_pieces(pieces: Sequence[Piece], target: BinaryIO) -> None:
    """Write the contents of pieces one after the other; raises OSError and LayeringError."""
    target.flush()
    to, at = target.tell(), 0
    while at < len(pieces):
        first, size = pieces[at], 0
        while at < len(pieces) and (pieces[at].source, pieces[at].offset) == (first.source, first.offset + size):
            size += pieces[at].size
            at += 1
        with first.source.open("rb") as file:
            if copy_range(file, target, start=first.offset, size=size, to=to) < size:
                raise LayeringError(f"'{first.source}' became shorter while it was read")
        to += size
    target.seek(to)


def expand_pieces(pieces: Sequence[Piece], folder: Path) -> None:
    """Write them as files of a folder."""
    for piece in pieces:
        with piece.source.open("rb") as file:
            write(folder, piece.path, os.pread(file.fileno(), piece.size, piece.offset))


FIX = "install squashfs-tools 4.4 or newer, or build with --backend apptainer"
LEVEL = 1  # 6 % larger than level 3, in two thirds of the processor time
BLOCK = 128 * 1024  # what mksquashfs takes by itself; with 256 KiB `import torch` takes 6 % longer, and 4 % less space
FAULTS = ("Failed to read", "creating empty file", "Cannot open", "Cannot stat", "FATAL", "Read failed", "Ignoring")


@dataclass(frozen=True, kw_only=True)
class Packer:
    """mksquashfs with the options of one build."""

    program: str
    version: str
    zstd: bool
    time: int
    block: int

    @property
    def inputs(self) -> list[object]:
        """Everything that decides the packed bytes."""
        return [self.version, f"zstd-{LEVEL}-{self.block}" if self.zstd else f"gzip-{self.block}", self.time]

    def match_packing(self, head: Superblock) -> Packer:
        """The packer for layers of an image: with its compression and block size, so that they can be merged into it.

        A runtime that mounts the base image can mount its compression. gzip takes five times as long, and is kept for
        runtimes that may mount nothing else.
        """
        if head.compression == ZSTD and supports_zstd(self.program):
            return replace(self, zstd=True, block=head.block_size)
        if head.compression == GZIP and not self.zstd:
            return replace(self, block=head.block_size)
        return self

    def pack(
        self,
        trees: Sequence[Path],
        target: Path,
        *,
        keep_modes: bool = False,
        keep_times: int | None = None,
        more: Sequence[str] = (),
        pieces: Sequence[Piece] = (),
        title: str = "",
    ) -> None:
        """Pack a folder: owned by root, one time, no extended attributes; raises LayeringError.

        `keep_times` is the time of the whole where the files keep theirs. `pieces` become files that everyone may
        read, and replace files at the same paths. `title` is what a user calls it, default: the name of the target.
        """
        argv = [self.program, *map(str, trees), str(target)]
        argv += self._make_options(keep_modes=keep_modes, keep_times=keep_times)
        if pieces:
            argv += self._make_piece_options(pieces, trees[0], target.with_suffix(".pieces"))
        with report_reading(f"packing {title}" if title else "packing", trees=trees, target=target):
            code, out, err = ask([*argv, *more], env=clean_environment())
        text = (err + out).strip()
        fault = next((line for line in text.splitlines() if any(word in line for word in FAULTS)), "")
        if code or fault:
            print(text[-2000:], flush=True)
            raise LayeringError(f"mksquashfs could not pack '{trees[0]}': {fault or text[-200:] or code}", told=True)

    def _make_options(self, *, keep_modes: bool, keep_times: int | None) -> list[str]:
        options = ["-noappend", "-no-progress", "-quiet", "-all-root", "-no-xattrs"]
        options += ["-mkfs-time", str(self.time if keep_times is None else keep_times), "-no-exports"]
        options += ["-all-time", str(self.time)] if keep_times is None else []
        options += ["-processors", str(count_processors())]
        # Its queues: with little memory it fills the same again and again, by default it takes a quarter of all.
        options += ["-mem", f"{max(64, 16 * count_processors())}M"]
        options += ["-b", str(self.block)]
        if self.zstd:
            options += ["-comp", "zstd", "-Xcompression-level", str(LEVEL)]
        if not keep_modes:
            # The modes of installed files depend on the umask under which the wheel was first unpacked.
            options += ["-action", "chmod(u=rwX,go=rX)@type(f)", "-action", "chmod(u=rwx,go=rx)@type(d)"]
        return options

    def _make_piece_options(self, pieces: Sequence[Piece], tree: Path, file: Path) -> list[str]:
        """The options by which pieces come in; files in the tree where this mksquashfs takes none."""
        own = {piece.path: piece for piece in pieces}
        folders: set[str] = set()
        for path in own:
            folder = os.path.dirname(path)
            while folder and folder not in folders:
                folders.add(folder)
                folder = os.path.dirname(folder)
        missing = {folder for folder in folders if not os.path.isdir(f"{tree}/{folder}")}
        for path in own:
            if os.path.dirname(path) not in missing:  # a wheel may bring its own; mksquashfs would take that
                remove(Path(path), below=tree)
        if self.form is None:
            expand_pieces(list(own.values()), tree)
            return []
        lines = [f"/{escape_path(folder)} D {self.time} 755 0 0\n" for folder in sorted(missing)]
        rows, offset = sort_pieces(own.values()), 0
        for piece in rows:
            lines.append(f"/{escape_path(piece.path)} R {self.time} 644 0 0 {piece.size} {offset}{self.form}\n")
            offset += piece.size
        with file.open("wb") as out:
            out.write(os.fsencode("".join(lines) + DATA))
            write_pieces(rows, out)
        return ["-pf", str(file)]

    @cached_property
    def form(self) -> str | None:
        """What ends the line of a file whose content is given with it; None where such a file does not get through.

        4.4 knows no such lines, later ones ask for another field: what this one makes of it is tried.
        https://github.com/plougher/squashfs-tools/blob/master/squashfs-tools/pseudo.c
        """
        reader = find_system_program("unsquashfs")
        with tempfile.TemporaryDirectory() as scratch:
            empty, image, lines = Path(scratch, "empty"), Path(scratch, "x.sqfs"), Path(scratch, "x.pieces")
            empty.mkdir()
            for form in ("", " 0") if reader else ():
                text = f"/x D 0 755 0 0\n/x/a R 0 644 0 0 1 1{form}\n/x/b R 0 644 0 0 1 0{form}\n{DATA}ba"
                lines.write_text(text, encoding="utf-8")
                code, _, err = ask([self.program, empty, image, "-noappend", "-quiet", "-no-progress", "-pf", lines])
                if code == 0 and not err and ask([reader or "", "-cat", image, "x/a", "x/b"])[:2] == (0, "ab"):
                    return form
        return None


DATA = "# START OF DATA - DO NOT MODIFY\n#\n"


def escape_path(path: str) -> str:
    """A path as one word of the packer's language, in which others are commands; raises LayeringError."""
    if "\n" in path or "\0" in path:
        raise LayeringError(f"a file of the image has a line break in its name: {path!r}", fix="give it another name")
    return re.sub(r'([\s"\\])', r"\\\1", path)


def count_processors() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def find_packer(*, zstd: bool, time: int) -> Packer:
    """mksquashfs of this machine; raises LayeringError where it is missing or cannot fix times."""
    program = require_program("mksquashfs", fix=FIX)
    version = read_program_version(program, "-version")
    if version < (4, 4):
        raise LayeringError(f"mksquashfs is {'.'.join(map(str, version))}, and layers need 4.4", fix=FIX)
    zstd = zstd and supports_zstd(program)
    numbers = ".".join(map(str, version))
    return Packer(program=program, version=numbers, zstd=zstd, time=time, block=BLOCK)


@cache
def supports_zstd(program: str) -> bool:
    """Whether this mksquashfs packs with zstd."""
    return "zstd" in read_program_output([program, "-help"])
