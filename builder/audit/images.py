"""The ELF files of an image: a SIF with its layers, a squashfs file, a docker-archive or a tar of a root file system.

Layout: moby's "Docker Image Specification v1.2" (manifest.json) and the OCI image layout, "Whiteouts", read 2026-11-23.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ..sif.archive import Bounds, FileStream, Member, Stream, read_members, read_small_files
from ..sif.bounded import BoundsError, open_file, parse_json
from ..sif.reader import Extents, File, Reader, drop_surrogates
from ..sif.sif import SQUASHFS, SifError, parse_sif
from ..sif.squashfs import FILE, LINK, SquashfsError
from .content import ELF, AuditError, Candidate, can_be_elf, unpack_member
from .distribution import Inventory
from .installed import TreeScan, is_metadata_file
from .package_archives import make_roomy_bounds

LAYERS = 500
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
LINKS = (b"1", b"2")


def read_archive(path: Path) -> Inventory:
    """Every ELF file of an archive; raises OSError, and AuditError for any other file."""
    try:
        with open_file(path) as file:
            names = _list_layers(read_small_files(FileStream(file, Bounds())))
            if not names:
                return _read_layer(FileStream(file, make_roomy_bounds()))[0].make_inventory("image", whole=True)
            found = dict(_read(FileStream(file, make_roomy_bounds()), names))
    except BoundsError as error:
        raise AuditError(str(error)) from None
    tree = TreeScan()
    for name in names:
        if name not in found:
            raise AuditError("a layer of it is missing")
        layer, hidden = found[name]
        tree.apply_layer(layer, hidden)
    return tree.make_inventory("image", whole=True)


def _list_layers(about: dict[str, bytes]) -> list[str]:
    """The layers of the first image, lowest first; none where it is not a saved image."""
    if "manifest.json" not in about:
        return []
    try:
        found = parse_json(about["manifest.json"])
        names = found[0]["Layers"]
    except (ValueError, LookupError, TypeError):
        raise AuditError("its manifest.json is damaged") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) > LAYERS:
        raise AuditError("its manifest.json is damaged")
    return names


def _read(archive: Stream, names: list[str]) -> Iterator[tuple[str, tuple[TreeScan, set[str]]]]:
    for member, content in read_members(archive):
        if member.regular and member.name in names:
            yield member.name, _read_layer(content)


def _read_layer(stream: Stream) -> tuple[TreeScan, set[str]]:
    """What one layer adds, and the paths that it hides in those below."""
    tree, hidden = TreeScan(), set[str]()
    for member, content in read_members(stream):
        path = member.name.removeprefix("./").strip("/")
        above, _, name = path.rpartition("/")
        if name == OPAQUE:
            hidden.add(above)
        elif name.startswith(WHITEOUT):
            hidden.add(f"{above}/{name.removeprefix(WHITEOUT)}".lstrip("/"))
        elif member.kind in LINKS:
            tree.link(path)
        elif member.regular:
            _take(tree, path, member, content)
    return tree, hidden


def _take(tree: TreeScan, path: str, member: Member, content: Stream) -> None:
    is_metadata = is_metadata_file(path)
    if not is_metadata and not can_be_elf(path, member.size):
        return
    head = bytes(content.read(4))
    if is_metadata or head == ELF:
        later = partial(unpack_member, content, size=member.size, head=head)
        tree.take(Candidate(path=path, size=member.size, open=later))


MAGIC = b"hsqs"
ROOM, TIMES = 1 << 30, 60  # bytes that are unpacked: so many, and so often its size


@contextmanager
def _translate_error() -> Iterator[None]:
    try:
        yield
    except SquashfsError as error:
        raise AuditError(f"its file system is damaged: {error}") from None


@dataclass(frozen=True, kw_only=True)
class _ImageFile:
    """A file of a squashfs, read from any place of it."""

    reader: Reader
    content: Extents

    @property
    def size(self) -> int:
        return self.content.size

    def read(self, offset: int, size: int) -> bytes:
        """Some bytes of it, fewer at the end; raises AuditError and OSError."""
        if self.reader.unpacked > ROOM + TIMES * self.reader.squashfs.head.size:
            raise AuditError(f"its files unpack to more than {TIMES} times its size")
        with _translate_error():
            return self.reader.read_part(self.content, offset, size)


def open_member(reader: Reader, file: File) -> nullcontext[_ImageFile]:
    """A file of an image; raises AuditError where the file system is damaged."""
    with _translate_error():
        return nullcontext(_ImageFile(reader=reader, content=reader.locate(file)))


def read_image(*parts: Path) -> Inventory:
    """Every ELF file of an image in one file or several; raises AuditError where one cannot be read, and OSError."""
    tree = TreeScan()
    for path in parts:
        with open_file(path) as image:
            for name, (file, reader) in merge_layers(image, path).items():
                if file.kind == LINK:
                    tree.link(name)
                else:
                    tree.take(Candidate(path=name, size=file.size, open=partial(open_member, reader, file)))
    return tree.make_inventory("image", whole=True)


def merge_layers(image: BinaryIO, path: Path) -> dict[str, tuple[File, Reader]]:
    """Files and links by their paths, as the layers leave them: a later one wins, a device 0/0 takes away."""
    union: dict[str, tuple[File, Reader]] = {}
    for number, offset in enumerate(_list_offsets(image, path)):
        with _translate_error():
            reader = Reader(image, offset=offset)
            if offset + reader.squashfs.head.size > os.fstat(image.fileno()).st_size:
                raise AuditError("it is cut short")
            for file in reader.list_files():
                name = drop_surrogates(file.path[1:])
                if file.kind in (FILE, LINK):
                    union[name] = (file, reader)
                elif number and file.whiteout:
                    for hidden in [one for one in union if one == name or one.startswith(f"{name}/")]:
                        del union[hidden]
    return union


def _list_offsets(file: BinaryIO, path: Path) -> list[int]:
    """Where in the file each file system begins, the root first."""
    file.seek(0)
    if file.read(4) == MAGIC:
        return [0]
    try:
        sif = parse_sif(file, size=os.fstat(file.fileno()).st_size)
        overlays = [item.offset for item in sif.overlays if item.partition and item.partition[0] == SQUASHFS]
        return [sif.system.offset, *overlays]
    except SifError as error:
        raise AuditError(f"'{path.name}' cannot be read as an image: {error}") from None
