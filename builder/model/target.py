"""A target: a recipe resolved for a site. It holds every decision; the compiler only writes it down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from builder.model.backend import TRAITS, BackendTraits
from builder.model.finding import Finding
from builder.model.plan import PackageDecision
from builder.model.recipe import Recipe
from builder.model.site import BackendName, BaseImage, Gpu, Site

if TYPE_CHECKING:  # loaded where there is a lock
    from builder.model.lock import Lock

# base: into the base image's own Python; venv: a fresh environment on that Python; conda: a conda environment.
InstallTarget = Literal["base", "venv", "conda"]

PREFIX = "/opt/env"  # the environment in images that recipe builds
DEFAULT_INDEX = "default"  # pip's and uv's own settings


@dataclass(frozen=True, kw_only=True)
class Context:
    """The state of the world that resolving and compiling may use, collected once by the command line."""

    account: str = ""
    accounts: tuple[tuple[str, str], ...] = ()  # of sites, where `account` is not given
    backend: str = ""
    base: str = ""
    base_gib: float = 0.0  # unpacked size of the base image, if it could be measured
    torch_index: str = ""  # a mirror of the PyTorch wheels, or `default`: pip's and uv's settings
    tool: str = ""
    driver: str = ""  # overrides the GPU driver of the site's file
    lock: Lock | None = None  # of the recipe for the site
    lock_file: str = ""  # its path, also if it does not exist
    locked: bool = False  # --locked: install only with a lock that fits
    base_changed: bool = False  # the file of the base image is not the one that was locked
    micromamba: str = ""  # overrides the image with conda's client
    logins: tuple[str, ...] = ()  # names of pip's and uv's variables with the login or token of an index
    proxies: tuple[str, ...] = ()  # names of variables with the login of a proxy
    brought: tuple[str, ...] = ()  # requirements that were looked up and that no line of the recipe has: torch==2.8.0
    ignored: tuple[str, ...] = ()  # codes of findings of a build that stop nothing
    gpu: Gpu | None = None  # of this machine, for the site that is this machine


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
class OwnPackage:
    """A package in a folder or file of the recipe's machine; `place` is where the build has its copy, below image/."""

    source: str
    place: str
    extras: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The packages to install and where; lines are ready for the files they are written to."""

    place: InstallTarget
    python: str | None = None  # X.Y if known
    channels: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()
    torch_lines: tuple[str, ...] = ()  # the torch family, from its own index, before everything else
    pip_lines: tuple[str, ...] = ()
    own: tuple[OwnPackage, ...] = ()  # folders of the recipe, copied into the build and installed after the others
    pip_options: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()  # distributions of the base image that must not change
    torch: Torch | None = None
    compiled: tuple[str, ...] = ()  # packages built against the installed torch, after the others
    tools: tuple[str, ...] = ()  # build tools that they need in the environment
    cuda: str = ""  # X.Y for conda's solver; empty: no NVIDIA GPU
    pip_apart: bool = False  # container.run calls pip, and a file with hashes does not list it


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
    compat: bool = False  # the image's cuda-compat takes the place of the host's user-space driver

    @property
    def traits(self) -> BackendTraits:
        """What the backend can do."""
        return TRAITS[self.backend]

    @property
    def lacks_plugin(self) -> bool:
        """Whether NCCL or RCCL is known to use TCP between nodes: it has no plug-in for the site's network.

        InfiniBand needs none.
        """
        launch = self.site.launch
        needed = any(name != "NET/IB" for name in launch.expect_network)
        none = self.traits.makes_folder or self.base.network_plugin == "no"
        return needed and none and not launch.plugin_modules

    @property
    def name(self) -> str:
        """The name in paths, job names and tables: recipe.site.backend."""
        return f"{self.recipe.name}.{self.site.name}.{self.backend}"
