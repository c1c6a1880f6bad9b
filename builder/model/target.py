"""A target: a recipe resolved for a site. Every decision is in it; the compiler only writes it down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from builder.model.finding import Finding
from builder.model.lock import Lock
from builder.model.plan import PackageDecision
from builder.model.recipe import Recipe
from builder.model.site import BackendName, BaseImage, Site

# base: into the base image's own Python; venv: a fresh environment on that Python; conda: a conda environment.
InstallTarget = Literal["base", "venv", "conda"]

DEFAULT_INDEX = "default"  # pip's and uv's own settings


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the compiler may know of the world, gathered once by the command line; everything else is pure."""

    account: str = ""
    backend: str = ""
    base: str = ""
    base_gib: float = 0.0  # unpacked size of the base image, where it was there to be measured
    torch_index: str = ""  # a mirror of the PyTorch wheels, or `default`: look where pip and uv are told to look
    tool: str = ""
    driver: str = ""  # the GPU driver of the site, where it is not the one of its file
    lock: Lock | None = None  # of the recipe for the site, as it was read
    lock_file: str = ""  # where it was read from, or would be
    locked: bool = False  # nothing is installed without a lock that fits
    micromamba: str = ""  # the image that conda's client is taken from, where it is not ours
    logins: tuple[str, ...] = ()  # variables of pip and uv that hold the login or token of an index: their names
    proxies: tuple[str, ...] = ()  # those that hold the login of a proxy


@dataclass(frozen=True, kw_only=True)
class Torch:
    """The torch of the image: `token` names its build (rocm6.4, cu126, xpu, cpu), `index` where its wheel is."""

    version: str  # public part, e.g. 2.8.0
    token: str = ""
    index: str = ""
    provided: bool = False  # by the base image

    @property
    def local(self) -> str:
        """The version with its local part, as the wheel names it."""
        return f"{self.version}+{self.token}" if self.token else self.version


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What is installed, and where to. Lines are ready for the file they go to."""

    place: InstallTarget
    python: str | None = None  # X.Y where known
    channels: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()
    torch_lines: tuple[str, ...] = ()  # the torch family, from its own index, before everything else
    pip_lines: tuple[str, ...] = ()
    pip_options: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()  # distributions of the base image that must not change
    torch: Torch | None = None
    compiled: tuple[str, ...] = ()  # packages that are built against the torch that is there, after the others
    tools: tuple[str, ...] = ()  # what their builds take from the environment
    cuda: str = ""  # X.Y that conda's solver is told of; empty: that there is no NVIDIA GPU


@dataclass(frozen=True, kw_only=True)
class Target:
    """A recipe for a site by a backend."""

    recipe: Recipe
    site: Site
    backend: BackendName
    base: BaseImage
    environment: Environment
    context: Context
    packages: tuple[PackageDecision, ...] = ()
    findings: tuple[Finding, ...] = field(default=())
    lock: Lock | None = None  # it fits: exactly its files are installed

    @property
    def name(self) -> str:
        """Name the target in paths, job names and tables: recipe.site.backend."""
        return f"{self.recipe.name}.{self.site.name}.{self.backend}"
