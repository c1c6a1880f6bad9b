"""A recipe: one environment file in its normal form, independent of the file format it was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from builder.model.finding import Finding
from builder.model.site import Vendor

PythonMode = Literal["auto", "base", "env"]
Workload = Literal["probe", "mnist", "ddp", "pi", "allreduce", "startup"]


@dataclass(frozen=True, kw_only=True)
class CondaSpec:
    """One conda dependency: `text` as conda reads it, `version` its constraint as written (`=3.12`, `>=1.2,<2`)."""

    text: str
    name: str
    version: str = ""
    build: str = ""
    channel: str = ""
    url: str = ""
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
class Recipe:
    """One environment. `file` is the path as the user gave it, `digest` the sha256 of all files that were read."""

    name: str
    file: str
    digest: str
    folder: str  # of the file; relative paths start there
    kind: Literal["conda", "pip"]
    channels: tuple[str, ...] = ()
    conda: tuple[CondaSpec, ...] = ()
    pip: tuple[PipRequirement, ...] = ()
    pip_options: PipOptions = PipOptions()
    variables: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""  # where an export was installed on its own machine
    container: Container = Container()
    lines: Mapping[str, int] = field(default_factory=dict)  # line of each key path, e.g. "container.base"
    warnings: tuple[Finding, ...] = ()  # findings about the file and its folder, on every site

    def wants(self, vendor: Vendor) -> bool:
        """Whether the recipe is meant for the GPUs of a vendor; without `container.gpu` it is meant for any."""
        return not self.container.gpu or vendor in self.container.gpu
