"""Small file systems in files, to be filled while something works there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from recipe_program import Room, run


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A small file system in a file; its owner's jobs see it too."""

    room: Room

    def fill(self, *, leave: int = 0) -> None:
        """Leave so many bytes free, or none."""
        with (self.room.folder / "filler").open("ab", buffering=0) as file:
            for size in (1 << 26, 1 << 20, 1 << 10, 1):
                try:
                    while True:
                        os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
                except OSError:
                    continue
            file.truncate(file.seek(0, os.SEEK_END) - leave)

    def free(self) -> None:
        (self.room.folder / "filler").unlink()


@contextmanager
def mounted_disks(around: Room, name: str) -> Iterator[Callable[[int], Disk]]:
    """Make disks of so many MiB, whose folder is a room; temporary files of ours lie elsewhere."""
    mounted: dict[Path, Path] = {}

    def make(mebibytes: int) -> Disk:
        image, folder = (around.folder / f"{kind}-{name}{len(mounted)}" for kind in ("disk", "on"))
        folder.mkdir()
        with image.open("wb") as file:
            file.truncate(mebibytes << 20)
        owner = f"root_owner={os.getuid()}:{os.getgid()}"
        run(["/usr/sbin/mkfs.ext4", "-q", "-m", "0", "-E", owner, image]).expect(0)
        run(["fuse2fs", "-o", "rw", image, folder]).expect(0)
        mounted[folder] = image
        room = Room(folder)
        room.tmp = around.tmp
        return Disk(room=room)

    yield make
    for folder, image in mounted.items():
        end = time.monotonic() + 240
        while run(["fusermount3", "-u", folder]).code and time.monotonic() < end:
            time.sleep(0.5)
        image.unlink()
