"""What is inside an image, as far as it can be read without running it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["conda", "pip", "deb", "rpm"]
ImageKind = Literal["sif", "squashfs", "folder", "docker-archive"]


def normal(name: str) -> str:
    """A Python distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True, kw_only=True)
class Package:
    """One installed package; `place` is the folder that lists it."""

    kind: Kind
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
class Part:
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
    parts: tuple[Part, ...] = ()
    signatures: tuple[Signature, ...] = ()
    packages: tuple[Package, ...] = ()
    torch: tuple[TorchBuild, ...] = ()
    sbom: bool = False  # there is one inside
    unknown: tuple[str, ...] = ()
