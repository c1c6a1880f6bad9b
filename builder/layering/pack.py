"""A folder becomes a squashfs: the same bytes for the same files, whoever packs them, when and where."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .failure import LayeringError
from .programs import ask, clean_environment, needed_program, version_of

FIX = "install squashfs-tools 4.4 or newer, or build with --backend apptainer"
LEVEL, BLOCK = 1, 256 * 1024  # as small as level 3 with blocks of 128 KiB, in three quarters of the time
FAULTS = ("Failed to read", "creating empty file", "Cannot open", "Cannot stat", "FATAL", "Read failed")


@dataclass(frozen=True, kw_only=True)
class Packer:
    """mksquashfs with the options of one build."""

    program: str
    version: str
    zstd: bool
    time: int

    @property
    def inputs(self) -> list[object]:
        """What of it decides the bytes."""
        return [self.version, f"zstd-{LEVEL}-{BLOCK}" if self.zstd else "gzip", self.time]

    def pack(self, trees: Sequence[Path], target: Path, *, keep_modes: bool = False, more: Sequence[str] = ()) -> None:
        """Pack a folder: owned by root, one time, no extended attributes; raises LayeringError."""
        argv = [
            self.program,
            *[str(tree) for tree in trees],
            str(target),
            "-noappend",
            "-no-progress",
            "-quiet",
            "-all-root",
            "-no-xattrs",
        ]
        argv += ["-all-time", str(self.time), "-mkfs-time", str(self.time), "-no-exports"]
        argv += ["-processors", str(processors())]
        if self.zstd:
            argv += ["-comp", "zstd", "-Xcompression-level", str(LEVEL), "-b", str(BLOCK)]
        if not keep_modes:
            # What an installer leaves depends on the umask of whoever unpacked the wheel first.
            argv += ["-action", "chmod(u=rwX,go=rX)@type(f)", "-action", "chmod(u=rwx,go=rx)@type(d)"]
        code, out, err = ask([*argv, *more], env=clean_environment())
        text = (err + out).strip()
        fault = next((line for line in text.splitlines() if any(word in line for word in FAULTS)), "")
        if code or fault:
            print(text[-2000:], flush=True)
            raise LayeringError(f"mksquashfs could not pack '{trees[0]}': {fault or text[-200:] or code}", told=True)


def processors() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def find_packer(*, zstd: bool, time: int) -> Packer:
    """mksquashfs of this machine; raises LayeringError where it is missing or cannot fix times."""
    program = needed_program("mksquashfs", fix=FIX)
    version = version_of(program, "-version")
    if version < (4, 4):
        raise LayeringError(f"mksquashfs is {'.'.join(map(str, version))}, and layers need 4.4", fix=FIX)
    if zstd:
        _, out, err = ask([program, "-help"])
        zstd = "zstd" in out + err
    return Packer(program=program, version=".".join(map(str, version)), zstd=zstd, time=time)
