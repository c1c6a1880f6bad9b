"""Decide what happens to every line of a recipe: the lines to install, each with its reason.

A package of one vendor is replaced by its counterpart for the site's vendor if the tables list one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from builder.model.finding import Finding, Location, make_edit
from builder.model.plan import PackageDecision
from builder.model.recipe import PipRequirement, Recipe
from builder.model.site import BaseImage, Site
from builder.model.target import DEFAULT_INDEX, Environment, InstallTarget, OwnPackage, Torch
from builder.parse.gpu_tables import TorchRelease, VendorPackage, load_package_table
from builder.resolve.conda_names import (
    CUDA_VERSIONS,
    find_python_name,
    is_cuda_library,
    load_name_table,
    to_specifier,
)
from builder.resolve.indexes import list_options
from builder.resolve.releases import find_companion, list_companion_builds
from builder.resolve.replacements import find_replacement
from builder.resolve.requested import (
    FAMILY,
    PROTECTED_PACKAGES,
    TRITON,
    RequestedTorch,
    find_family_name,
    find_requested_family,
    find_torch_dependent,
)
from builder.resolve.source_releases import find_source_release
from builder.resolve.torch import find_release, is_cuda_pin, read_python_pin

# Libraries that CUDA builds of torch require; a recipe requests other NVIDIA packages for itself.
CUDA_RUNTIME = re.compile(
    r"nvidia-(cublas|cuda-(cccl|crt|cupti|nvcc|nvrtc|runtime)|cudnn|cufft|cufile|curand|cusolver|cusparse(lt)?|nccl"
    r"|nvjitlink|nvshmem|nvtx|nvvm)(-cu\d+)?|cuda-(bindings|pathfinder|toolkit)"
)

CALLS_PIP = re.compile(r"(?<![\w.-])pip[0-9.]*(?![\w.-])")  # in a command: pip, pip3, python -m pip
NAMES_PIP = re.compile(r"pip(?![\w.-])")  # at the start of a requirement

COMPILED = "compiled against"


@dataclass(frozen=True, kw_only=True)
class PackagePlan:
    """An environment and the decision on each package."""

    environment: Environment
    packages: tuple[PackageDecision, ...]
    findings: tuple[Finding, ...]


class PackagePlanner:
    """Collects lines to install and the decision on each; one instance per environment."""

    def __init__(
        self,
        recipe: Recipe,
        *,
        site: Site,
        install_target: InstallTarget,
        base: BaseImage,
        torch: Torch | None,
        compiles: bool = True,
    ) -> None:
        self.recipe, self.site, self.install_target, self.base, self.torch = recipe, site, install_target, base, torch
        self.mpi_reason = self._choose_mpi(compiles=compiles)
        self.asked = find_requested_family(recipe)
        self.python: str | None = None
        self.conda: list[str] = []
        self.family: list[str] = []
        self.pip: list[str] = []
        self.own: list[OwnPackage] = []
        self.pip_apart = False
        self.became: dict[str, str] = {}  # of the torch family
        self.packages: list[PackageDecision] = []
        self.findings: list[Finding] = []

    def _choose_mpi(self, *, compiles: bool) -> str:
        """Choose how mpi4py gets its MPI: "" if none is known, or if a file with hashes lists its wheel."""
        own = "" if self.base.mpi in (None, "none") else f"the base image's {self.base.mpi}"
        if not self.recipe.uses_mpi or self._has_hashes() or not (own or self.site.brings_mpi):
            return ""
        if find_source_release(self.recipe, "mpi4py"):
            return f"built from source against {own}" if own else ""
        if self.site.brings_mpi:
            return "its wheel loads the host's MPI"
        return f"{COMPILED} {own}" if compiles else f"its wheel loads {own}"

    def _leaves_out(self, name: str, *, text: str) -> bool:
        """Whether MPICH is left out: the base image's serves mpi4py. conda-forge's `external` builds are empty."""
        own = self.base.mpi or ""
        left_out = name == "mpich" and bool(self.mpi_reason) and own.startswith("mpich") and "external" not in text
        if left_out:
            self.record(text, "-", f"the base image's {own} takes its place")
        return left_out

    def record(self, asked: str, became: str, why: str) -> None:
        """Record the decision on one line."""
        self.packages.append(PackageDecision(asked=asked, became=became, why=why))

    def plan(self, *, python: str | None) -> PackagePlan:
        """Go through the recipe once, in its order."""
        self.python = python
        self._plan_python(python)
        self._plan_torch_family()
        for spec in self.recipe.conda:
            if not self._leaves_out(spec.name, text=spec.text):
                self._plan_conda(spec.name, text=spec.text, version=spec.version)
        for line in self.recipe.pip:
            if not self._leaves_out(line.name, text=line.text):
                self._plan_pip(line)
        self._plan_pip_itself()
        compiled = self._find_compiled()
        environment = Environment(
            place=self.install_target,
            python=python,
            channels=self._choose_channels(),
            conda=tuple(self.conda) if self.install_target == "conda" else (),
            torch_lines=tuple(self.family),
            pip_lines=tuple(self.pip),
            own=tuple(self.own),
            pip_options=self._list_options(),
            constraints=self._list_constraints(),
            protected=self._list_protected(),
            torch=self.torch,
            compiled=tuple(row.name for row in compiled),
            tools=tuple(dict.fromkeys(tool for row in compiled for tool in row.tools)),
            cuda=self._find_cuda(),
            pip_apart=self.pip_apart,
        )
        return PackagePlan(environment=environment, packages=tuple(self.packages), findings=tuple(self.findings))

    def _list_options(self) -> tuple[str, ...]:
        """List the options of the requirements file; mpi4py is compiled where the image has an MPI for it."""
        found = list_options(self.recipe.pip_options, torch=self.torch, lines=self.pip)
        own = "--no-binary mpi4py"
        return (*found, own) if self.mpi_reason.startswith(COMPILED) and own not in found else found

    def _plan_pip_itself(self) -> None:
        """Add pip where conda's or the recipe's own commands call it: a virtual environment is made without it."""
        called = any(CALLS_PIP.search(command) for command in self.recipe.container.run)
        if self.install_target == "conda":
            named = "pip" in [spec.name for spec in self.recipe.conda]
            self.conda += ["pip"] if not named and (self.pip or self.family or called) else []
            return
        named = any(NAMES_PIP.match(line) for line in self.pip)
        if not called or named:
            return
        if self._has_hashes():  # a line without one would be refused, by a lock as well
            self.pip_apart = True
            self.record("-", "pip", "container.run calls it: installed apart from the lines with hashes")
        else:
            self.pip.append("pip")
            self.record("-", "pip", "container.run calls it")

    def _has_hashes(self) -> bool:
        """Whether a line without a hash would be refused."""
        return self.recipe.pip_options.require_hashes or any(line.hashes for line in self.recipe.pip)

    def _find_compiled(self) -> list[VendorPackage]:
        """Find the packages built against the environment's torch; with hashes their build tools are not listed."""
        if self.torch is None or self._has_hashes():
            return []
        listed = set(self.pip)
        names = {line.name for line in self.recipe.pip if line.text in listed and not line.url.endswith(".whl")}
        return [row for row in load_package_table().packages if row.tools and row.name in names]

    def _find_cuda(self) -> str:
        """Return the CUDA version of the site's driver for conda's solver; the build host often has no driver."""
        gpu = self.site.gpu
        nvidia = gpu is not None and gpu.vendor == "nvidia" and self.install_target == "conda"
        return gpu.cuda_native or "" if nvidia and gpu else ""

    def _list_protected(self) -> tuple[str, ...]:
        """List what the installer skips; requested packages that the image is not known to have are installed."""
        if self.install_target != "base":
            return ()
        asked = {line.name for line in self.recipe.pip} | set(self._find_installed_by_commands())
        asked -= {*FAMILY, *TRITON, *self.base.provides}
        return tuple(name for name in PROTECTED_PACKAGES if name not in asked)

    def _find_installed_by_commands(self) -> Iterator[str]:
        """Find the packages of the list that a command of container.run installs by pip."""
        commands = [command for command in self.recipe.container.run if CALLS_PIP.search(command)]
        text = "\n".join(commands).replace("_", "-").lower()
        yield from (name for name in PROTECTED_PACKAGES if re.search(rf"(?<![\w.-]){name}(?![\w-])", text))

    def _plan_python(self, python: str | None) -> None:
        pin = read_python_pin(self.recipe)
        spec = pin.spec
        if self.install_target == "conda":
            # Without a minor version conda installs the newest Python, for which torch may have no wheel.
            text = spec.text if spec and python is None else pin.format_dependency(python or "3.12")
            self.conda.append(text)
            self.record(spec.text if spec else "-", text, "conda's Python")
        elif spec is not None:
            self.record(spec.text, f"Python {self.base.python or 'of the base image'}", "the base image's own")

    def _choose_channels(self) -> tuple[str, ...]:
        channels = list(self.recipe.channels) or ["conda-forge"]
        if "defaults" in channels:
            at = Location(file=self.recipe.file, line=self.recipe.lines.get("channels"), key="channels")
            message = "the channel 'defaults' has a licence that many institutes must buy"
            right = (
                "channels: [conda-forge, nodefaults]" if self.recipe.kind == "conda" else 'channels = ["conda-forge"]'
            )
            fix = f"write {right}"
            self.findings.append(Finding(code="channel-defaults", message=message, at=at, fix=fix, level="warning"))
        elif "nodefaults" not in channels:
            channels.append("nodefaults")
        # PyTorch is installed from wheels; under strict priority its conda channels would hide others.
        unused = {"pytorch", "pytorch-nightly", "pytorch-test"} if self.torch else set()
        unused |= {"nvidia"} if self.site.vendor != "nvidia" else set()
        for channel in [channel for channel in channels if channel in unused and self.install_target == "conda"]:
            channels.remove(channel)
            self.record(f"channel {channel}", "-", "its builds are not used on this site")
        if not {*channels} - {"nodefaults", "nvidia"} and self.install_target == "conda":
            channels.insert(0, "conda-forge")
            self.record("-", "channel conda-forge", "no channel is left that has Python")
        return tuple(channels)

    def _plan_torch_family(self) -> None:
        if self.torch is None:
            return
        row = find_release(self.torch.version)
        for name in FAMILY:
            asked = self.asked.get(name)
            if asked is None and name != "torch":
                continue
            text = asked.text if asked else "-"
            if self.torch.provided:
                brought = self.base.provides.get(name, "unknown")
                version = "the base image's own" if brought == "unknown" else brought
                self.became[name] = f"{name} {version}"
                self.record(text, self.became[name], "kept: the base image's own is built for its GPUs")
                continue
            version = self.torch.version if name == "torch" else self._choose_companion(asked, row=row)
            if not version:
                continue
            plain = name != "torch" and self._is_plain(row)
            line = f"{name}{self._list_extras(name)}=={version}{'' if plain else f'+{self.torch.token}'}"
            if plain and self.site.gpu is not None and asked is not None:
                self._report_plain(f"{name} {version}", asked=asked)
            self.family.append(line)
            self.became[name] = line
            index = "the default index" if self.torch.index == DEFAULT_INDEX else self.torch.index
            dependent = find_torch_dependent(self.recipe) or next(iter(self.asked), "")
            brought_by = f"required by {dependent}; " if asked is None else ""
            self.record(text, line, f"{brought_by}the build for {self.site.name}, from {index}")

    def _is_plain(self, row: TorchRelease | None) -> bool:
        """Whether the companions' wheels for the site's processor have no local version."""
        return self.site.node.arch == "aarch64" and bool(row and row.aarch64 and row.aarch64.plain)

    def _report_plain(self, companion: str, *, asked: RequestedTorch) -> None:
        message = f"the wheels of {companion} for aarch64 have no CUDA: its own operators (as nms) run on the CPU alone"
        fix = "no action needed for transforms, data sets and models; for the operators use torch 2.10 or newer"
        self.findings.append(
            Finding(code="torch-companion", message=message, at=asked.location, fix=fix, level="warning")
        )

    def _list_extras(self, name: str) -> str:
        extras = sorted({extra for line in self.recipe.pip if line.name == name for extra in line.extras})
        return f"[{','.join(extras)}]" if extras else ""

    def _record_again(self, name: str, *, text: str) -> None:
        """Record a second request for a package of the torch family."""
        if name in self.became and text != self.asked[name].text:
            self.record(text, self.became[name], "one and the same package")

    def _choose_companion(self, asked: RequestedTorch | None, *, row: TorchRelease | None) -> str:
        """Choose the companion's version for this torch; a different requested one is an error."""
        assert asked is not None
        assert self.torch is not None
        assert row is not None
        name, torch, token = asked.name, self.torch.version, self.torch.token
        if asked.local and asked.local != token and not is_cuda_pin(asked, site=self.site):
            message = f"'{asked.text}' is a different build than torch {torch}+{token}"
            fix = f"write {name} without a build"
            edit = make_edit(asked.location, asked.text, asked.text.replace(f"+{asked.local}", ""))
            self.findings.append(
                Finding(code="torch-companion", message=message, at=asked.location, fix=fix, edit=edit)
            )
            return ""
        paired: str = getattr(row, name)
        version = find_companion(row, asked)
        if not version:
            message = f"'{asked.text}' does not belong to torch {torch}"
            fix = f"write {name}=={paired}, or {name} without a version"
            # without an edit: torch may be the one that was meant to be another
            self.findings.append(Finding(code="torch-companion", message=message, at=asked.location, fix=fix))
            return ""
        builds = list_companion_builds(name, version)
        if builds and token not in builds:
            message = f"'{asked.text}' has no build for {token}, the build of torch {torch} for '{self.site.name}'"
            better = version != paired and token in list_companion_builds(name, paired)
            fix = f"write {name}=={paired}" if better else f"remove {name}, or choose an older torch"
            self.findings.append(Finding(code="torch-companion", message=message, at=asked.location, fix=fix))
            return ""
        return version

    def _plan_conda(self, name: str, *, text: str, version: str) -> None:
        if name == "python":
            return
        python_package = find_python_name(name)
        own_cuda = self.torch is None and name in CUDA_VERSIONS and self.site.vendor == "nvidia"
        if name in load_name_table().torch_choosers and python_package not in FAMILY and not own_cuda:
            self.record(text, "-", "chooses a build of PyTorch, which is chosen for the site here")
        elif python_package in FAMILY and self.torch is not None:
            self._record_again(python_package, text=text)
        elif name in load_name_table().torch_parts and self.torch is not None:
            self.record(text, "-", "a part of conda's builds of PyTorch; torch comes from its wheel here")
        elif own_cuda and self.install_target != "conda":
            self.record(text, "-", "a version for conda's solver, which is not used")
        elif is_cuda_library(name) and (self.site.vendor != "nvidia" or self.install_target != "conda"):
            self.record(text, "-", "serves CUDA builds only; the build for this site brings its own")
        elif name == "mpi4py" and self.mpi_reason:
            line = f"mpi4py{to_specifier(version) or ''}"
            self.pip.append(line)
            self.record(text, line, f"{self.mpi_reason}; conda's brings an MPI of its own")
        elif self._moves_to_pip(python_package, version=version):
            line = f"{python_package}{to_specifier(version)}"
            self.pip.append(line)
            self.record(text, line, "the same as a Python package: conda's would bring conda's own PyTorch")
        elif self.install_target == "conda":
            self.conda.append(text)
            self.record(text, text, "conda")
        elif name == "nodefaults":
            self.record(text, "-", "a word of conda's for channels")
        elif name == "pip" and self._has_hashes():
            self.record(text, "-", "a file with hashes lists every package that is installed")
        else:
            assert name == "pip" or python_package is not None, f"refused before: {name}"
            line = f"{python_package or name}{to_specifier(version) or ''}"
            self.pip.append(line)
            where = "the base image's Python" if self.install_target == "base" else "the environment"
            self.record(text, line, f"the same as a Python package, into {where}")

    def _moves_to_pip(self, name: str | None, *, version: str) -> bool:
        """Whether a conda package requires conda's PyTorch, and the same Python package the torch chosen here."""
        if self.install_target != "conda" or self.torch is None or self._has_hashes():
            return False
        twice = any(line.name == name for line in self.recipe.pip)
        return name in load_name_table().bring_torch and to_specifier(version) is not None and not twice

    def _plan_pip(self, line: PipRequirement) -> None:
        name = line.name
        if self.torch is not None and find_family_name(line):
            self._record_again(find_family_name(line), text=line.text)
        elif self.torch is not None and name in TRITON:
            self.record(line.text, "-", "comes with torch, in the version it was built for")
        elif self.install_target == "base" and name in PROTECTED_PACKAGES and name in self.base.provides:
            self.record(line.text, f"{name} {self.base.provides[name]}", "kept: the base image's own")
        elif CUDA_RUNTIME.fullmatch(name) and (self.torch is not None or self.site.vendor != "nvidia"):
            # `pip freeze` lists them; each build of torch pins its own.
            self.record(line.text, "-", "a library of CUDA builds; the build for this site brings what it needs")
        elif other := find_replacement(line, site=self.site, base=self.base, python=self.python):
            self.pip.append(other.text)
            self.record(line.text, other.text, other.why)
        elif is_local(line):
            self._plan_own(line)
        else:
            self.pip.append(line.text)
            self.record(line.text, line.text, (self.mpi_reason if line.name == "mpi4py" else "") or "pip")

    def _plan_own(self, line: PipRequirement) -> None:
        """Plan a folder or file of this machine: an image follows none, so that `-e` has no effect."""
        path = PurePosixPath(line.url)
        name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", path.name).strip(".-") or "package"
        place = f"local/{len(self.own)}/{name}"
        self.own.append(OwnPackage(source=line.url, place=place, extras=line.extras))
        self.record(line.text, f"a copy of {line.url}", "copied into the build and installed after the packages")

    def _list_constraints(self) -> tuple[str, ...]:
        """List what later installs must not change: the installed torch family, then the recipe's constraints."""
        own = [line.text for line in self.recipe.pip_options.constraints if line.name not in (*FAMILY, *TRITON)]
        # pip does not accept extras in constraints.
        return (*(re.sub(r"\[.*\]", "", line) for line in self.family), *own)


def is_local(line: PipRequirement) -> bool:
    """Whether a requirement is a local folder or file, which the build of an image cannot see."""
    return bool(line.url) and "://" not in line.url
