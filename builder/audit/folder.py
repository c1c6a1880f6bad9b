"""The ELF files of a folder: an unpacked image, an environment, or any other. No link in it is followed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ..sif.tree import FILE, FOLDER, LINK, TreeEntry, walk
from .content import Candidate, Content, OpenFile
from .distribution import Inventory
from .installed import TreeScan

FILES = 5_000_000
ROOM, TIMES = 1 << 30, 60
SYSTEM = ("usr/lib", "usr/bin")  # a root file system has them


def read_folder(root: Path) -> Inventory:
    """Every ELF file below a folder; raises OSError where the folder itself cannot be read."""
    tree = TreeScan()
    for number, entry in enumerate(walk(root)):
        if number >= FILES:
            break
        if entry.kind == FOLDER and not os.access(entry.name, os.R_OK | os.X_OK, dir_fd=entry.at):
            entry.enter = False
            tree.skip(entry.path, "permission denied")
        elif entry.kind == LINK:
            tree.link(entry.name)
        elif entry.kind == FILE:
            noted = entry.stat()
            size = min(noted.st_size, ROOM + TIMES * 512 * noted.st_blocks)  # a sparse file may say any size
            tree.take(Candidate(path=entry.path, size=size, open=partial(_open_entry, entry, size)))
    whole = all((root / name).is_dir() for name in SYSTEM)
    return tree.make_inventory("folder", whole=whole)


@contextmanager
def _open_entry(entry: TreeEntry, size: int) -> Iterator[Content]:
    descriptor = entry.open()
    try:
        yield OpenFile(descriptor=descriptor, size=size)
    finally:
        os.close(descriptor)
