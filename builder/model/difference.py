"""Two lists of packages compared, package by package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from packaging.version import InvalidVersion, Version

from builder.model.contents import Contents, Kind, Package, normal
from builder.model.lock import Lock

PREFIX = "/opt/env"  # where an image of ours has its own environment


@dataclass(frozen=True, kw_only=True)
class Change:
    """What became of one package; versions, with conda's build where only that differs or either has one."""

    kind: Kind
    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def what(self) -> Literal["added", "removed", "changed"]:
        """The change in a word."""
        return "added" if not self.before else "removed" if not self.after else "changed"


def compare(before: Iterable[Package], after: Iterable[Package]) -> tuple[Change, ...]:
    """Every package that differs, sorted by kind and name; one that is there twice has all its versions compared."""
    one, two = _versions(before), _versions(after)
    changes = []
    for kind, name in sorted(one.keys() | two.keys()):
        left, right = one.get((kind, name), frozenset()), two.get((kind, name), frozenset())
        unknown = left and right and "" in left | right  # a commit of version control has no version in a lock
        if left != right and not unknown:
            changes.append(Change(kind=kind, name=name, before=tuple(sorted(left)), after=tuple(sorted(right))))
    return tuple(changes)


def _versions(packages: Iterable[Package]) -> dict[tuple[Kind, str], frozenset[str]]:
    found: dict[tuple[Kind, str], set[str]] = {}
    for package in packages:
        python = package.kind == "pip"
        name = normal(package.name) if python else package.name
        version = _normal_version(package.version) if python else f"{package.version} {package.build}".strip()
        found.setdefault((package.kind, name), set()).add(version)
    return {key: frozenset(versions) for key, versions in found.items()}


def _normal_version(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion:
        return version


def locked(lock: Lock) -> tuple[Package, ...]:
    """The packages that a lock names."""
    conda = [
        Package(kind="conda", name=item.name, version=item.version, build=item.build, subdir=item.subdir)
        for item in lock.conda
    ]
    return (*conda, *(Package(kind="pip", name=item.name, version=item.version) for item in lock.pip))


def within(contents: Contents, lock: Lock) -> tuple[Package, ...]:
    """The packages of an image that its lock should name: those of its own environment.

    In the base image's Python they lie among the base's, which are left out unless the lock names them too.
    """
    names = {normal(item.name) for item in lock.pip}
    own = []
    for package in contents.packages:
        if package.kind not in ("conda", "pip"):
            continue
        ours = package.place == PREFIX or package.place.startswith(f"{PREFIX}/")
        if ours or (lock.asked.place == "base" and package.kind == "pip" and normal(package.name) in names):
            own.append(package)
    return tuple(own)
