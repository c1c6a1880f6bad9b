"""What was read: distributions with their ELF files, and what else is known of the place where they were found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .binary import Binary

Kind = Literal["pip", "conda", "deb", "files"]
SourceKind = Literal["wheel", "conda", "folder", "image"]


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """A package with its ELF files; of kind `files` those of a folder that no package manager has installed."""

    kind: Kind
    name: str
    version: str = ""
    binaries: tuple[Binary, ...] = ()
    tags: tuple[str, ...] = ()  # of a wheel: cp312-cp312-manylinux_2_28_x86_64
    python: str = ""  # that of the folder it is in: 3.12, 3.13t


@dataclass(frozen=True, kw_only=True)
class Unread:
    """A file that could not be read, and why in words."""

    path: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Everything of one wheel, package, folder or image; `whole` where all that is needed has to be in it."""

    kind: SourceKind
    distributions: tuple[Distribution, ...]
    whole: bool = False
    names: frozenset[str] = frozenset()  # file names and SONAMEs that are there
    glibc: str = ""  # of the libc.so.6 in it
    unread: tuple[Unread, ...] = ()


def make_inventory(
    kind: SourceKind, distributions: list[Distribution], *, whole: bool = False, names: frozenset[str] = frozenset(),
    unread: tuple[Unread, ...] = (),
) -> Inventory:  # fmt: skip
    """An inventory with what follows from its files."""
    binaries = [binary for one in distributions for binary in one.binaries]
    sonames = {binary.soname for binary in binaries if binary.soname} | {binary.name for binary in binaries}
    damaged = tuple(Unread(path=binary.path, reason=binary.fault) for binary in binaries if binary.fault)
    glibc = next((binary.defines for binary in binaries if binary.defines), "")
    return Inventory(
        kind=kind, distributions=tuple(distributions), whole=whole, names=names | sonames, glibc=glibc,
        unread=(*unread, *damaged),
    )  # fmt: skip
