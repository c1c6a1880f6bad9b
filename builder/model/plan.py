"""A plan: the files and steps that make an image, before anything is done. Plain data, nothing of the machine in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Union

from builder.model.finding import Finding
from builder.model.site import Vendor


@dataclass(frozen=True)
class Expanding:
    """A word in which the shell expands ${NAME} where it runs, and nothing else."""

    text: str


Word = Union[str, Expanding]  # noqa: UP007 - used at run time on Python 3.10
StepKind = Literal["build", "save", "convert", "verify", "smoke", "run"]


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of the plan folder; `path` is relative to it, with forward slashes."""

    path: str
    text: str
    executable: bool = False


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A file or folder of the user's that is copied into the plan folder as it is."""

    source: str  # absolute, or relative to the recipe's folder
    path: str
    bundled: bool = False  # `source` is the name of something that ships with us, e.g. "smoke"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One script of the plan and what it must leave behind.

    A step succeeded when every file in `produces` is there and new, not when its script exited 0.
    """

    name: str  # unique; names the log
    kind: StepKind
    why: str  # one line for the user
    script: str  # path in the plan folder, run as `bash SCRIPT` in it
    produces: tuple[str, ...] = ()  # relative to the plan folder
    programs: tuple[str, ...] = ()  # alternatives are joined with |
    space_gib: float = 0.0  # free space that its temporary folder needs
    batch: str = ""  # the sbatch script that runs it as a job
    where: Literal["site", "workstation"] = "site"


@dataclass(frozen=True, kw_only=True)
class Package:
    """What became of one line of the recipe."""

    asked: str
    became: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that is needed to make and prove one image."""

    target: str  # recipe.site.backend
    recipe: str
    site: str
    backend: str
    vendor: Vendor
    image: str  # file or folder, relative to the plan folder
    image_kind: Literal["sif", "folder"]
    base: str
    steps: tuple[Step, ...]
    files: tuple[File, ...]
    copies: tuple[Copy, ...] = ()
    packages: tuple[Package, ...] = ()
    findings: tuple[Finding, ...] = ()
    expect: Mapping[str, str] = field(default_factory=dict)  # what the image must answer: vendor, torch
    tool: str = ""
    tmpdir: str = ""  # the site's temporary folder for builds; ${NAME} is expanded where the build runs
