"""A target: a recipe resolved for a site. It holds every decision; the compiler only writes it down."""

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
    """The state of the world that resolving and compiling may use, collected once by the command line."""

    account: str = ""
    backend: str = ""
    base: str = ""
    base_gib: float = 0.0  # unpacked size of the base image, if it could be measured
    torch_index: str = ""  # a mirror of the PyTorch wheels, or `default`: pip's and uv's settings
    tool: str = ""
    driver: str = ""  # overrides the GPU driver of the site's file
    lock: Lock | None = None  # of the recipe for the site
    lock_file: str = ""  # its path, also if it does not exist
    locked: bool = False  # --locked: install only with a lock that fits
    micromamba: str = ""  # overrides the image with conda's client
    logins: tuple[str, ...] = ()  # names of pip's and uv's variables with the login or token of an index
    proxies: tuple[str, ...] = ()  # names of variables with the login of a proxy
    ignored: tuple[str, ...] = ()  # codes of findings of a build that stop nothing


@dataclass(frozen=True, kw_only=True)
class Torch:
    """The torch of the image: `token` identifies its build (rocm6.4, cu126, xpu, cpu), `index` has its wheel."""

    version: str  # public part, e.g. 2.8.0
    token: str = ""
    index: str = ""
    provided: bool = False  # by the base image

    @property
    def local(self) -> str:
        """The version with its local part, as in the name of the wheel."""
        return f"{self.version}+{self.token}" if self.token else self.version


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The packages to install and where; lines are ready for the files they are written to."""

    place: InstallTarget
    python: str | None = None  # X.Y if known
    channels: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()
    torch_lines: tuple[str, ...] = ()  # the torch family, from its own index, before everything else
    pip_lines: tuple[str, ...] = ()
    pip_options: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()  # distributions of the base image that must not change
    torch: Torch | None = None
    compiled: tuple[str, ...] = ()  # packages built against the installed torch, after the others
    tools: tuple[str, ...] = ()  # build tools that they need in the environment
    cuda: str = ""  # X.Y for conda's solver; empty: no NVIDIA GPU


@dataclass(frozen=True, kw_only=True)
class Target:
    """A recipe for a site, built by one backend."""

    recipe: Recipe
    site: Site
    backend: BackendName
    base: BaseImage
    environment: Environment
    context: Context
    packages: tuple[PackageDecision, ...] = ()
    findings: tuple[Finding, ...] = field(default=())
    lock: Lock | None = None  # a lock that fits; its files are installed

    @property
    def name(self) -> str:
        """The name in paths, job names and tables: recipe.site.backend."""
        return f"{self.recipe.name}.{self.site.name}.{self.backend}"
