"""Packages that exist in several GPU builds, and what takes their place for another vendor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from builder.model.site import Source, Vendor
from builder.model.stack.table import load


@dataclass(frozen=True, kw_only=True)
class VendorPackage:
    """A package that exists in several GPU builds; the texts per vendor say where to get that vendor's build."""

    source: tuple[str, ...]
    name: str
    pypi: tuple[Vendor, ...]  # whose devices the file on PyPI serves; empty: it is no wheel, the build decides
    nvidia: str | None = None
    amd: str | None = None
    intel: str | None = None
    silent_loss: bool = False  # the wrong build installs and imports, and has no GPU
    tell: str = ""  # how to tell the builds apart
    needs: str = ""  # what must be there before it is installed
    tools: tuple[str, ...] = ()  # packages that its build takes from the environment, beside torch
    glibc: Mapping[str, str] = field(default_factory=dict)  # vendor -> the least that its wheel needs
    retired: str = ""  # since when nobody maintains it
    instead: str = ""  # what takes its place
    shares: tuple[str, ...] = ()  # packages with the same module, of which one only may be installed
    pins: str = ""  # what it pins of torch
    minimum: Mapping[str, str] = field(default_factory=dict)  # vendor -> first release whose PyPI file was seen to do
    note: str = ""
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class VendorMarker:
    """A name that works on one vendor's devices only: a package (shell pattern), or a package with an extra."""

    source: tuple[str, ...]
    pattern: str
    vendor: Vendor
    kind: Literal["pip", "conda"]
    extra: str = ""  # pattern[extra]; empty: the package itself
    build: str = ""  # conda: shell pattern of the build string; empty: any build


@dataclass(frozen=True, kw_only=True)
class TorchPin:
    """The torch that one release of a package requires, as a specifier."""

    source: tuple[str, ...]
    package: str
    version: str
    torch: str


@dataclass(frozen=True, kw_only=True)
class Counterpart:
    """The package that takes another's place for a vendor, its module having the same name.

    `extra` is left out with it. Without `versions` and `renumbered` every version of the one is one of the other.
    """

    source: tuple[str, ...]
    name: str  # shell pattern
    vendor: Vendor
    becomes: str
    extra: str = ""  # shell pattern; empty: whatever extras there are
    gains: str = ""  # an extra of the counterpart
    versions: tuple[str, ...] = ()  # that both have
    renumbered: Mapping[str, str] = field(default_factory=dict)  # version -> the counterpart's
    rocm: str = ""  # what the image must bring, as far as it matters: 7, or 7.0
    cuda: str = ""  # what the driver must run
    pythons: tuple[str, ...] = ()  # X.Y that there are files for; empty: any
    unsure: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PackageTable:
    """`packages.yaml`."""

    sources: Mapping[str, Source]
    packages: tuple[VendorPackage, ...]
    markers: tuple[VendorMarker, ...]
    counterparts: tuple[Counterpart, ...]
    torch_pins: tuple[TorchPin, ...]


@cache
def package_table() -> PackageTable:
    """Everything of `packages.yaml`; raises ConfigError when the file is faulty."""
    return load("packages.yaml", PackageTable)
