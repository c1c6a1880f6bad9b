"""The programs of an image, by the folders of its PATH; read without running it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from builder.sif.reader import Reader
from builder.sif.sif import SifError, read_sif
from builder.sif.squashfs import SquashfsError

FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
PACKED = b"hsqs"  # a plain squashfs begins so


def list_programs(image: Path) -> Mapping[str, frozenset[str]] | None:
    """List the names in the folders of programs: those of environments below /opt, then the system's.

    An installation with wrappers has one folder. None where the files cannot be listed: only an engine reads them.
    """
    if (image / "bin").is_dir():
        return {"bin": frozenset(path.name for path in (image / "bin").iterdir())}
    try:
        with image.open("rb") as file:
            packed = file.read(len(PACKED)) == PACKED
            reader = Reader(file, offset=0 if packed else read_sif(image).system.offset)
            return list_folders(reader)
    except (SifError, SquashfsError, OSError):
        return None


def list_folders(reader: Reader) -> Mapping[str, frozenset[str]]:
    """List the names in each folder of programs of a file system; raises SquashfsError."""
    own = [f"opt/{name}/bin" for name in sorted(reader.list_names("opt"))]
    found = {folder: frozenset(reader.list_names(folder)) for folder in (*own, *FOLDERS)}
    return {folder: names for folder, names in found.items() if names}
