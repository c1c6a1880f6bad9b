"""A lock: the exact files of one environment on one site, and the request that they were chosen for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Literal

from builder.layers.conda_solver import CondaPackage
from builder.model.site import SUBDIRS
from builder.model.text import sanitize
from builder.sif.bounded import hash_text

FileKind = Literal["wheel", "sdist", "vcs"]


@dataclass(frozen=True, kw_only=True)
class LockRequest:
    """Everything that decides which files are chosen; a lock whose request differs is stale."""

    place: Literal["base", "venv", "conda"]
    arch: Literal["x86_64", "aarch64"]
    base: str  # the reference in a registry, or the name of a file
    python: str = ""  # X.Y, empty if the base image or conda's solver decides
    glibc: str = ""  # of the base image by the site's file, empty if unknown
    cuda: str = ""  # the newest that the site's driver serves, for conda's solver
    channels: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()
    torch: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    brought: tuple[str, ...] = ()  # requirements that no line of the recipe has


LABELS = {
    "place": "the place of the packages",
    "arch": "the processor",
    "base": "the base image",
    "python": "Python",
    "glibc": "the base image's glibc",
    "cuda": "the CUDA of the site's driver",
    "channels": "the channels",
    "conda": "the conda packages",
    "torch": "the torch packages",
    "pip": "the pip packages",
    "options": "the options of pip",
    "constraints": "the constraints",
    "protected": "the packages that the base image keeps",
    "brought": "the torch that no line names",
}
EMPTY = {"python": "any", "cuda": "none"}  # what an empty value of them means


@dataclass(frozen=True, kw_only=True)
class BaseLock:
    """The base image: `digest` is the manifest's in the registry, or the sha256 of a local file of `size` bytes."""

    reference: str
    digest: str = ""  # sha256:<64 hex>, empty if unknown
    size: int = 0  # 0 for an image of a registry
    why: str = ""  # why the digest is unknown
    python: str = ""  # X.Y.Z, as the image reported it
    glibc: str = ""  # as the image reported it, else by the site's file
    provides: Mapping[str, str] = field(default_factory=dict)  # distributions of its Python, if used


@dataclass(frozen=True, kw_only=True)
class PipFile:
    """One file of a Python distribution; a `vcs` file has a commit in `url` and no sha256.

    `direct`: the recipe gives the address; no index has the file.
    """

    name: str
    version: str
    kind: FileKind
    url: str
    sha256: str = ""
    size: int = 0
    torch: bool = False  # of the torch family, which has its own index
    direct: bool = False

    @property
    def requirement(self) -> str:
        """The line of a requirements file that matches this file only."""
        named = f"{self.name} @ {self.url}" if self.direct else f"{self.name}=={self.version}"
        return f"{named} --hash=sha256:{self.sha256}" if self.sha256 else named

    @property
    def file_name(self) -> str:
        """The file name as the index writes it (a plus sign may be %2B)."""
        return self.url.partition("#")[0].rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The lock of one site; `recipe` is the digest of the recipe that was locked."""

    site: str
    recipe: str
    tool: str
    asked: LockRequest
    base: BaseLock
    virtual: tuple[str, ...] = ()  # conda's virtual packages: __glibc=2.28=0
    conda: tuple[CondaPackage, ...] = ()
    pip: tuple[PipFile, ...] = ()

    @property
    def digest(self) -> str:
        """The sha256 of the locked content, without the tool and the digest of the recipe."""
        content = {name: value for name, value in asdict(self).items() if name not in ("recipe", "tool")}
        content["base"].pop("why")
        if not self.asked.brought:  # the digest of a lock without it has never had it
            content["asked"].pop("brought")
        return hash_text(json.dumps(content, sort_keys=True))

    @property
    def platform(self) -> str:
        """Conda's name of the platform."""
        return SUBDIRS[self.asked.arch]

    @property
    def python(self) -> str:
        """The Python of the environment: conda's, else the base image's, else the requested one."""
        own = next((package.version for package in self.conda if package.name == "python"), "")
        asked = self.asked.python if self.asked.place == "conda" else ""  # where conda's packages were not solved
        return own or asked or self.base.python or self.asked.python

    def list_requirements(self, *, torch: bool) -> tuple[str, ...]:
        """List the lines of a requirements file for the torch family or for all others, each with its hash."""
        return tuple(file.requirement for file in self.pip if file.torch == torch and file.kind != "vcs")

    def list_commits(self) -> tuple[str, ...]:
        """List the requirements from version control; a commit fixes the content, and no installer takes its hash."""
        return tuple(file.requirement for file in self.pip if file.kind == "vcs")


def describe_changes(lock: Lock, asked: LockRequest) -> Iterator[str]:
    """Describe what has changed since the lock was made, one phrase per field."""
    for item in fields(LockRequest):
        before, now = getattr(lock.asked, item.name), getattr(asked, item.name)
        if before == now:
            continue
        if item.name == "glibc":
            before = before or lock.base.glibc  # read from the image while it was locked
        if before == now:
            continue
        if isinstance(before, tuple):
            gone, new = [word for word in before if word not in now], [word for word in now if word not in before]
            words = [f"no longer {_join_words(gone)}"] if gone else []
            words += [f"now {_join_words(new)}"] if new else []
            yield f"{LABELS[item.name]}: {', '.join(words) or 'in another order'}"
        else:
            yield f"{LABELS[item.name]}: {_quote(item.name, before)} before, {_quote(item.name, now)} now"


def _quote(name: str, value: str) -> str:
    return f"'{sanitize(value)}'" if value else EMPTY.get(name, "unknown")


def _join_words(words: list[str]) -> str:
    return ", ".join(f"'{sanitize(word)}'" for word in words[:4]) + (
        f" and {len(words) - 4} more" if len(words) > 4 else ""
    )
