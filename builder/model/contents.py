"""The contents of an image, read without running it; comparison of two lists of packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from builder.model.lock import Lock
from builder.model.target import PREFIX

PackageKind = Literal["conda", "pip", "deb", "rpm"]
ImageKind = Literal["sif", "squashfs", "folder", "docker-archive"]


@dataclass(frozen=True, kw_only=True)
class InstalledPackage:
    """One installed package; `place` is the folder of the database that lists it."""

    kind: PackageKind
    name: str
    version: str
    build: str = ""  # conda's
    channel: str = ""  # conda's
    subdir: str = ""  # conda's
    arch: str = ""  # of deb and rpm
    license: str = ""
    sha256: str = ""  # of the package's file, if the image has it
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class ImagePart:
    """A partition or object of a SIF, a layer of an archive or a file of a folder; size in bytes."""

    name: str
    kind: str
    size: int
    compression: str = ""


@dataclass(frozen=True, kw_only=True)
class Signature:
    """A signature and the objects it covers; only the engine can verify it."""

    covers: str
    fingerprint: str  # hexadecimal digits, empty if not found


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """The build properties that an installed torch reports."""

    version: str
    cuda: str = ""
    hip: str = ""
    xpu: str = ""
    place: str = ""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of an image; `unknown` lists what could not be read."""

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
    sbom: bool = False  # the image contains one
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Change:
    """The change of one package between two lists; a version includes conda's build if either side has one.

    It is `unknown` where one list lacks the package and is of an image that could not be read as a whole.
    """

    kind: PackageKind
    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    unknown: bool = False

    @property
    def what(self) -> Literal["added", "removed", "changed", "unknown"]:
        if self.unknown:
            return "unknown"
        return "added" if not self.before else "removed" if not self.after else "changed"


def compare_packages(
    before: Iterable[InstalledPackage],
    after: Iterable[InstalledPackage],
    *,
    partial: tuple[bool, bool] = (False, False),
) -> tuple[Change, ...]:
    """Compare two lists of packages by kind and name; all versions of a package count.

    `partial` says which of the lists are of images that could not be read as a whole: what they lack is unknown.
    """
    one, two = _versions(before), _versions(after)
    changes = []
    for kind, name in sorted(one.keys() | two.keys()):
        left, right = one.get((kind, name), frozenset()), two.get((kind, name), frozenset())
        if left == right or (left and right and "" in left | right):  # a lock has no version for a commit
            continue
        unknown = (not left and partial[0]) or (not right and partial[1])
        versions = tuple(sorted(left)), tuple(sorted(right))
        changes.append(Change(kind=kind, name=name, before=versions[0], after=versions[1], unknown=unknown))
    return tuple(changes)


def _versions(packages: Iterable[InstalledPackage]) -> dict[tuple[PackageKind, str], frozenset[str]]:
    found: dict[tuple[PackageKind, str], set[str]] = {}
    for package in packages:
        python = package.kind == "pip"
        name = canonicalize_name(package.name) if python else package.name
        version = _normal_version(package.version) if python else f"{package.version} {package.build}".strip()
        found.setdefault((package.kind, name), set()).add(version)
    return {key: frozenset(versions) for key, versions in found.items()}


def _normal_version(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion:
        return version


def list_locked_packages(lock: Lock) -> tuple[InstalledPackage, ...]:
    conda = [
        InstalledPackage(kind="conda", name=item.name, version=item.version, build=item.build, subdir=item.subdir)
        for item in lock.conda
    ]
    return (*conda, *(InstalledPackage(kind="pip", name=item.name, version=item.version) for item in lock.pip))


def select_own_packages(contents: Contents, lock: Lock) -> tuple[InstalledPackage, ...]:
    """Select the packages of an image's own environment: those that its lock should list.

    If they are installed in the base image's Python, the base's own packages are left out unless the lock lists them.
    """
    names = {canonicalize_name(item.name) for item in lock.pip}
    own = []
    for package in contents.packages:
        if package.kind not in ("conda", "pip"):
            continue
        ours = package.place == PREFIX or package.place.startswith(f"{PREFIX}/")
        if ours or (lock.asked.place == "base" and package.kind == "pip" and canonicalize_name(package.name) in names):
            own.append(package)
    return tuple(own)
