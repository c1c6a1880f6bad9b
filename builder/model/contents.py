"""What is inside an image, as far as it can be read without running it.

Two lists of packages compared, package by package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from packaging.version import InvalidVersion, Version

from builder.model.lock import Lock

PackageKind = Literal["conda", "pip", "deb", "rpm"]
ImageKind = Literal["sif", "squashfs", "folder", "docker-archive"]


def normalize_name(name: str) -> str:
    """A Python distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True, kw_only=True)
class InstalledPackage:
    """One installed package; `place` is the folder that lists it."""

    kind: PackageKind
    name: str
    version: str
    build: str = ""  # conda's
    channel: str = ""  # conda's
    subdir: str = ""  # conda's
    arch: str = ""  # of deb and rpm
    license: str = ""
    sha256: str = ""  # of the package's file, where the image has it
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class ImagePart:
    """A partition or object of a SIF, a layer of an archive, a file of a folder; size in bytes."""

    name: str
    kind: str
    size: int
    compression: str = ""


@dataclass(frozen=True, kw_only=True)
class Signature:
    """A signature and what it covers; whether it is good is for the engine to say."""

    covers: str
    fingerprint: str  # hexadecimal digits, empty where it is in none of the fields that we read


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """What an installed torch says it was built for."""

    version: str
    cuda: str = ""
    hip: str = ""
    xpu: str = ""
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Everything that was read of an image; `unknown` says what could not be."""

    image: str
    kind: ImageKind
    size: int
    arch: str = ""
    base: str = ""
    distribution: str = ""  # name and release, as in "debian 12"
    labels: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[ImagePart, ...] = ()
    signatures: tuple[Signature, ...] = ()
    packages: tuple[InstalledPackage, ...] = ()
    torch: tuple[TorchBuild, ...] = ()
    sbom: bool = False  # there is one inside
    unknown: tuple[str, ...] = ()


PREFIX = "/opt/env"  # where an image of ours has its own environment


@dataclass(frozen=True, kw_only=True)
class Change:
    """What became of one package; versions, with conda's build where only that differs or either has one."""

    kind: PackageKind
    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def what(self) -> Literal["added", "removed", "changed"]:
        """The change in a word."""
        return "added" if not self.before else "removed" if not self.after else "changed"


def compare_packages(before: Iterable[InstalledPackage], after: Iterable[InstalledPackage]) -> tuple[Change, ...]:
    """Every package that differs, sorted by kind and name; one that is there twice has all its versions compared."""
    one, two = _versions(before), _versions(after)
    changes = []
    for kind, name in sorted(one.keys() | two.keys()):
        left, right = one.get((kind, name), frozenset()), two.get((kind, name), frozenset())
        unknown = left and right and "" in left | right  # a commit of version control has no version in a lock
        if left != right and not unknown:
            changes.append(Change(kind=kind, name=name, before=tuple(sorted(left)), after=tuple(sorted(right))))
    return tuple(changes)


def _versions(packages: Iterable[InstalledPackage]) -> dict[tuple[PackageKind, str], frozenset[str]]:
    found: dict[tuple[PackageKind, str], set[str]] = {}
    for package in packages:
        python = package.kind == "pip"
        name = normalize_name(package.name) if python else package.name
        version = _normal_version(package.version) if python else f"{package.version} {package.build}".strip()
        found.setdefault((package.kind, name), set()).add(version)
    return {key: frozenset(versions) for key, versions in found.items()}


def _normal_version(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion:
        return version


def list_locked_packages(lock: Lock) -> tuple[InstalledPackage, ...]:
    """The packages that a lock names."""
    conda = [
        InstalledPackage(kind="conda", name=item.name, version=item.version, build=item.build, subdir=item.subdir)
        for item in lock.conda
    ]
    return (*conda, *(InstalledPackage(kind="pip", name=item.name, version=item.version) for item in lock.pip))


def select_own_packages(contents: Contents, lock: Lock) -> tuple[InstalledPackage, ...]:
    """The packages of an image that its lock should name: those of its own environment.

    In the base image's Python they lie among the base's, which are left out unless the lock names them too.
    """
    names = {normalize_name(item.name) for item in lock.pip}
    own = []
    for package in contents.packages:
        if package.kind not in ("conda", "pip"):
            continue
        ours = package.place == PREFIX or package.place.startswith(f"{PREFIX}/")
        if ours or (lock.asked.place == "base" and package.kind == "pip" and normalize_name(package.name) in names):
            own.append(package)
    return tuple(own)
