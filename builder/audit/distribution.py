"""What was read: distributions with their ELF files, where they were found, and both as plain data for a cache."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .binary import Binary
from .device_code import Code
from .variants import Features
from .vendor_rules import find_runtime

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
    variant: str = ""  # the label of a variant wheel
    features: Features = field(default_factory=dict)


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


FORMAT = 2  # version of the facts and of how files are read; another number reads all files again
TEXTS = ("path", "machine", "soname", "glibc", "python", "fault")


def describe_distribution(one: Distribution) -> dict[str, Any]:
    """A distribution; of the libraries that a file needs only GPU runtimes."""
    found = {
        "kind": one.kind, "name": one.name, "version": one.version, "python": one.python, "tags": list(one.tags),
        "files": [_describe_binary(binary) for binary in one.binaries],
    }  # fmt: skip
    variant = {"label": one.variant, "features": {name: list(values) for name, values in one.features.items()}}
    return found | ({"variant": variant} if one.variant else {})


def _describe_binary(binary: Binary) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(binary, name) for name in TEXTS}
    found |= {"size": binary.size, "needed": [runtime.name for runtime in binary.linked]}
    found |= {"opened": list(binary.opened), "code": [asdict(code) for code in binary.code]}
    return {name: value for name, value in found.items() if value}


def parse_distribution(found: Any) -> Distribution:
    """The distribution that `describe_distribution` wrote; raises KeyError, TypeError or AttributeError."""
    variant = found.get("variant") or {"label": "", "features": {}}
    return Distribution(
        variant=variant["label"], features={name: tuple(values) for name, values in variant["features"].items()},
        kind=found["kind"], name=found["name"], version=found["version"], python=found["python"],
        tags=tuple(found["tags"]), binaries=tuple(_parse_binary(row) for row in found["files"]),
    )  # fmt: skip


def _parse_binary(found: dict[str, Any]) -> Binary:
    needed = tuple(str(name) for name in found.get("needed", ()))
    return Binary(
        **{name: str(found.get(name, "")) for name in TEXTS},
        size=int(found.get("size", 0)),
        needed=needed,
        opened=tuple(found.get("opened", ())),
        code=tuple(Code(**code) for code in found.get("code", ())),
        linked=tuple(runtime for name in needed if (runtime := find_runtime(name)) is not None),
    )
