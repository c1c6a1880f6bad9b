"""Unpacks a tar of a checkout from standard input over a copy of it: writes what differs, removes what is gone.

A process that reads the copy meanwhile sees each file whole, old or new. What others put into the copy stays.
"""

import os
import shutil
import sys
import tarfile
from pathlib import Path

MANIFEST = ".copied-files"


def main(*, copy: Path) -> None:
    copied: set[str] = set()
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        for member in archive:
            copied.add(member.name)
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None:
                write(copy / member.name, content=content.read(), mode=member.mode)
            elif member.issym():
                link(copy / member.name, target=member.linkname)
    manifest = copy / MANIFEST
    before = set(manifest.read_text().split("\0")) - {""} if manifest.exists() else set()
    for name in before - copied:
        (copy / name).unlink(missing_ok=True)
    remove_empty(copy)
    write(manifest, content="\0".join(sorted(copied)).encode(), mode=0o644)


def remove_empty(copy: Path) -> None:
    """Remove folders without files, and those whose modules are gone and left only their compiled ones."""
    for name, _, _ in os.walk(copy, topdown=False):
        place = Path(name)
        if place.name != "__pycache__" and place != copy and {path.name for path in place.iterdir()} <= {"__pycache__"}:
            shutil.rmtree(place)


def write(path: Path, *, content: bytes, mode: int) -> None:
    mode = 0o755 if mode & 0o100 else 0o644
    if path.is_file() and not path.is_symlink() and path.read_bytes() == content:
        path.chmod(mode)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.chmod(mode)
    part.replace(path)


def link(path: Path, *, target: str) -> None:
    if path.is_symlink() and path.readlink() == Path(target):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


if __name__ == "__main__":
    main(copy=Path(sys.argv[1]))
