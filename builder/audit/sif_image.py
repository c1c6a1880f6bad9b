"""The ELF files of an image: a SIF with the layers over its root file system, or a squashfs file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from ..sif.bounded import open_file
from ..sif.sif import SQUASHFS, SifError, parse_sif
from ..sif.squashfs import DEVICE, FILE, LINK, LONG, Squashfs, SquashfsError
from .content import AuditError, Candidate
from .distribution import Inventory
from .installed import Tree
from .squashfs_files import Item, SquashfsFiles

MAGIC = b"hsqs"


def read_image(*parts: Path) -> Inventory:
    """Every ELF file of an image in one file or several; raises AuditError where one cannot be read, and OSError."""
    tree = Tree()
    for path in parts:
        with open_file(path) as file:
            for item, files in _union(file, path).values():
                if item.kind in (LINK, LINK + LONG):
                    tree.link(item.path)
                else:
                    size = files.size_of(item.entry)
                    tree.take(Candidate(path=item.path, size=size, open=files.opener(item.entry)))
    return tree.inventory("image", whole=True)


def _union(file: BinaryIO, path: Path) -> dict[str, tuple[Item, SquashfsFiles]]:
    """Files and links by their paths, as the layers leave them: a later one wins, a device 0/0 takes away."""
    union: dict[str, tuple[Item, SquashfsFiles]] = {}
    for number, offset in enumerate(_offsets(file, path)):
        try:
            files = SquashfsFiles(Squashfs(file, offset=offset))
        except SquashfsError as error:
            raise AuditError(f"its file system cannot be read: {error}") from None
        for item in files.items():
            if item.kind in (FILE, FILE + LONG, LINK, LINK + LONG):
                union[item.path] = (item, files)
            elif number and item.kind in (DEVICE, DEVICE + LONG):
                below = item.path + "/"
                for name in [name for name in union if name == item.path or name.startswith(below)]:
                    del union[name]
    return union


def _offsets(file: BinaryIO, path: Path) -> list[int]:
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
