"""A recipe: one environment file in its normal form, independent of the file format it was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from builder.model.finding import Finding
from builder.model.site import Vendor

PythonMode = Literal["auto", "base", "env"]
InputKind = Literal[
    "conda", "pip", "pyproject", "pixi", "pylock", "uv-lock", "conda-lock", "pixi-lock", "explicit"
]  # fmt: skip
Workload = Literal["probe", "mnist", "ddp", "pi", "allreduce", "startup", "mpi"]


@dataclass(frozen=True, kw_only=True)
class CondaSpec:
    """One conda dependency: `text` as conda reads it, `version` its constraint as written (`=3.12`, `>=1.2,<2`)."""

    text: str
    name: str
    version: str = ""
    build: str = ""
    channel: str = ""
    url: str = ""
    hashes: tuple[str, ...] = ()  # of a lock: sha256:... and md5:... of its file
    line: int | None = None


@dataclass(frozen=True, kw_only=True)
class PipRequirement:
    """One pip requirement; `text` is the line that pip reads.

    `name` is normalized (PEP 503), or empty if only a build can tell it (a URL or path without `name @`). `specifier`
    is PEP 440 (`==2.6.0`); `url` is a URL, a `git+...` or a path.
    """

    text: str
    name: str
    specifier: str = ""
    extras: tuple[str, ...] = ()
    marker: str = ""
    url: str = ""
    editable: bool = False
    hashes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # of a lock: the names of the files with these hashes
    file: str = ""  # the file that contains it, if not the recipe (an inlined -r)
    line: int | None = None


@dataclass(frozen=True, kw_only=True)
class PipOptions:
    """Options of a requirements file, in order; credentials in an index URL are refused on reading."""

    index_url: str = ""
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    pre: bool = False
    require_hashes: bool = False
    no_binary: tuple[str, ...] = ()
    only_binary: tuple[str, ...] = ()
    prefer_binary: bool = False
    trusted_hosts: tuple[str, ...] = ()
    constraints: tuple[PipRequirement, ...] = ()  # of the files that -c names


@dataclass(frozen=True, kw_only=True)
class Smoke:
    """What the smoke test checks: modules to import and workloads to run."""

    imports: tuple[str, ...] = ()
    workloads: tuple[Workload, ...] | None = None  # None: mnist and ddp (jobs: all) with torch


@dataclass(frozen=True, kw_only=True)
class Container:
    """The optional `container:` section."""

    gpu: tuple[Literal["amd", "nvidia", "intel", "cpu"], ...] = ()
    base: str = ""
    python: PythonMode = "auto"
    system: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    run: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    smoke: Smoke = Smoke()


@dataclass(frozen=True, kw_only=True)
class InputChoice:
    """What is taken of a file that holds several environments, and what the file is where its name does not say it.

    `stdin` is what standard input holds, where it is named as a file.
    """

    kind: InputKind | None = None
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    environment: str = ""
    project: bool = False  # the project of a pyproject.toml is installed, too
    stdin: bytes | None = None
    exports: Mapping[str, str] = field(default_factory=dict)  # of a lock of uv: the pylock that uv made of it

    def list_words(self) -> tuple[str, ...]:
        """List the options of the command line that say the same."""
        words = [("--extra", name) for name in self.extras] + [("--group", name) for name in self.groups]
        words += [("--environment", self.environment)] if self.environment else []
        words += [("--input-kind", self.kind)] if self.kind else []
        return (*(word for pair in words for word in pair), *(["--install-project"] if self.project else []))


WHOLE = InputChoice()
STDIN = "-"  # the name of standard input, as a file and in messages


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One environment. `file` is the path as the user gave it, `digest` the sha256 of all files that were read."""

    name: str
    file: str
    digest: str
    folder: str  # of the file; relative paths start there
    kind: Literal["conda", "pip", "project", "lock"]  # an environment.yml, requirements, a TOML file, a tool's lock
    channels: tuple[str, ...] = ()
    conda: tuple[CondaSpec, ...] = ()
    pip: tuple[PipRequirement, ...] = ()
    pip_options: PipOptions = PipOptions()
    variables: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""  # where an export was installed on its own machine
    container: Container = Container()
    lines: Mapping[str, int] = field(default_factory=dict)  # line of each key path, e.g. "container.base"
    warnings: tuple[Finding, ...] = ()  # findings about the file and its folder, on every site
    options: tuple[str, ...] = ()  # of the command line, that chose what is taken of the file
    processors: tuple[str, ...] = ()  # that a lock is for, empty: every one
    by_processor: Mapping[str, Recipe] = field(default_factory=dict)  # where the file says other packages for one

    @property
    def uses_mpi(self) -> bool:
        """Whether it asks for mpi4py, which needs an MPI that the site's launcher knows."""
        return "mpi4py" in self.list_names()

    def select_processor(self, arch: str) -> Recipe:
        """Return what the file asks for on a processor (x86_64, aarch64)."""
        return self.by_processor.get(arch, self)

    def list_names(self) -> tuple[str, ...]:
        """List the names of all packages, conda's first."""
        return (*(spec.name for spec in self.conda), *(line.name for line in self.pip))

    def wants(self, vendor: Vendor) -> bool:
        """Whether the recipe is meant for the GPUs of a vendor; without `container.gpu` it is meant for any."""
        return not self.container.gpu or vendor in self.container.gpu
