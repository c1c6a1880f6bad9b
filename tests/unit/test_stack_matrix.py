"""Every torch release of the tables, on every site and Python: the right wheel, the image's own, or a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest
from packaging.version import Version

from builder.model.finding import Finding, UnsupportedError, select_errors
from builder.model.recipe import CondaSpec, PipRequirement, Recipe
from builder.model.site import BackendName, Site
from builder.model.target import Context, Target
from builder.parse.driver_tables import load_driver_table
from builder.parse.gpu_tables import TorchRelease, load_image_table, load_torch_table
from builder.parse.site import find_site_files, load_site
from builder.resolve.resolve import resolve

PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
VARIANTS = ((), ("torchvision",), ("torchvision", "torchaudio"))
REFUSALS = {"torch-build", "torch-python", "torch-companion", "glibc", "gpu-target"}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One question: a release with companions, on one Python, for one site by one backend."""

    row: TorchRelease
    site: Site
    backend: BackendName
    python: str
    companions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"torch {self.row.torch} {self.companions} {self.site.name}/{self.backend} Python {self.python}"


def cells() -> Iterator[Cell]:
    sites = [load_site(name) for name in find_site_files()]
    for site in sites:
        if site.gpu is not None and site.gpu.driver is None and site.vendor != "intel":
            continue  # nobody knows what it serves
        for backend in site.build.backends:
            for row in load_torch_table().releases:
                for python in PYTHONS:
                    # The companions change nothing but the lines: all of them on one Python in the middle.
                    for companions in VARIANTS if python == "3.11" else ((),):
                        yield Cell(row=row, site=site, backend=backend, python=python, companions=companions)


def recipe_of(cell: Cell) -> Recipe:
    pins = {"torch": cell.row.torch} | {name: getattr(cell.row, name) for name in cell.companions}
    lines = {name: f"{name}=={version}" if version else name for name, version in pins.items()}
    return Recipe(
        name="cell",
        file="cell.yml",
        digest="0",
        folder="",
        kind="conda",
        conda=(CondaSpec(text=f"python={cell.python}", name="python", version=f"={cell.python}"),),
        pip=tuple(
            PipRequirement(text=text, name=name, specifier=text.removeprefix(name)) for name, text in lines.items()
        ),
    )


# An own reading of the tables: nothing of builder.resolve is used from here to the tests.


def rocm_served(site: Site) -> frozenset[str]:
    """The user spaces that the site's kernel driver serves, by the matrix of drivers alone."""
    assert site.gpu is not None
    kmd = next(
        row.kmd for row in load_driver_table().site_drivers if row.site == site.name and row.amdgpu == site.gpu.driver
    )
    window = next(row.user_space for row in load_driver_table().rocm_windows if row.kmd == kmd)
    return frozenset([*window, *site.gpu.rocm_disputed])  # of these a build is taken, with a warning


def cuda_served(site: Site, major: int, *, sure: bool = False) -> bool:
    """Minor-version compatibility: a reading of the driver, with `sure` each, is new enough for the major."""
    assert site.gpu is not None
    assert site.gpu.driver is not None
    least = next((row.min_driver for row in load_driver_table().cuda_majors if row.major == major), None)
    readings = map(Version, filter(None, (site.gpu.driver, site.gpu.other_driver)))
    return least is not None and (min if sure else max)(readings) >= Version(least)


def served(row: TorchRelease, site: Site) -> frozenset[str]:
    """The tokens of a release that exist and run on the site."""
    if site.gpu is None:
        return frozenset(["cpu"] if row.cpu else [])
    if site.gpu.vendor == "intel":
        return frozenset(["xpu"] if row.xpu else [])
    if site.gpu.vendor == "amd":
        parts = {token: token.removeprefix("rocm").split(".") for token in row.rocm or ()}
        return frozenset(token for token, part in parts.items() if ".".join(part[:2]) in rocm_served(site))
    builds = row.cuda if site.node.arch == "x86_64" else row.aarch64.cuda if row.aarch64 else ()
    return frozenset(token for token in builds or () if cuda_served(site, int(token[2:-1])))


def brought(site: Site) -> dict[str, tuple[str, str, str]]:
    """Image -> torch, Python and CUDA of every image with a torch that the site can run."""
    found: dict[str, tuple[str, str, str]] = {}
    for image in site.base_images:
        name = image.reference.rpartition(":")[0]
        if image.family == "ngc-pytorch":
            for ngc in load_image_table().ngc_pytorch:
                python = ".".join(ngc.python.split(".")[:2])
                found[f"{name}:{ngc.tag}"] = (ngc.torch, python, ngc.cuda)
        elif image.family == "intel-ipex":
            for ipex in load_image_table().intel_ipex:
                found |= {f"{name}:{tag}": (ipex.torch, ipex.python, "") for tag in ipex.tags}
        elif "torch" in image.provides and image.python:
            found[image.reference] = (image.provides["torch"], image.python, "")
    return found


@cache
def images_of(site: str) -> dict[str, tuple[str, str, str]]:
    return brought(load_site(site))


def fault(cell: Cell, target: Target) -> str:
    """What is wrong with an answer, empty when nothing is."""
    torch, environment = target.environment.torch, target.environment
    if torch is None:
        return "torch was forgotten"
    if environment.place == "base":
        has, python, cuda = images_of(cell.site.name)[target.base.reference]
        if Version(Version(has).base_version) != Version(cell.row.torch) or python != cell.python:
            return f"the image has torch {has} on Python {python}"
        if cuda and not cuda_served(cell.site, int(cuda.split(".")[0])):
            return f"the driver does not run CUDA {cuda}"
        return "lines beside the image's own torch" if environment.torch_lines else ""
    wanted = {"torch": cell.row.torch} | {name: getattr(cell.row, name) for name in cell.companions}
    token = torch.token
    if token not in served(cell.row, cell.site):
        return f"the token {token} does not exist or does not run there"
    if cell.python not in cell.row.pythons:
        return f"there are no wheels for Python {cell.python}"
    if environment.python != cell.python:
        return f"the environment has Python {environment.python}"
    arm = cell.row.aarch64 if cell.site.node.arch == "aarch64" else None
    plain = {*wanted} - {"torch"} if arm is not None and arm.plain else set()  # companions without a local version
    if set(environment.torch_lines) != {
        f"{name}=={version}" + ("" if name in plain else f"+{token}") for name, version in wanted.items()
    }:
        return f"the lines are {environment.torch_lines}"
    return "" if torch.index == f"https://download.pytorch.org/whl/{token}" else f"the index is {torch.index}"


def refusal_fault(cell: Cell, found: tuple[Finding, ...]) -> str:
    """Why a refusal is wrong, empty when it is right."""
    stopping = select_errors(found)
    codes = {finding.code for finding in stopping}
    if not codes or codes - REFUSALS or not all(finding.message and finding.fix for finding in stopping):
        return f"it is refused with {codes}"
    missing = [name for name in cell.companions if not getattr(cell.row, name)]
    right = {
        "torch-build": not served(cell.row, cell.site),
        "torch-python": bool(served(cell.row, cell.site)) and cell.python not in cell.row.pythons,
        "torch-companion": bool(missing),
        "glibc": True,
        "gpu-target": True,
    }
    wrong = [code for code in codes if not right[code]]
    return f"it is refused with {wrong}, which does not hold" if wrong else ""


def outcome(cell: Cell) -> Target | tuple[Finding, ...]:
    try:
        return resolve(recipe_of(cell), cell.site, context=Context(backend=cell.backend))
    except UnsupportedError as error:
        return error.findings


@cache
def outcomes() -> tuple[tuple[Cell, Target | tuple[Finding, ...]], ...]:
    return tuple((cell, outcome(cell)) for cell in cells())


@pytest.mark.property
def test_every_cell_is_a_real_wheel_the_images_own_or_a_refusal() -> None:
    faults: list[str] = []
    kinds = {"wheel": 0, "base": 0, "refusal": 0}
    for cell, answer in outcomes():
        if isinstance(answer, Target):
            kinds["base" if answer.environment.place == "base" else "wheel"] += 1
            wrong = fault(cell, answer)
        else:
            kinds["refusal"] += 1
            wrong = refusal_fault(cell, answer)
        if wrong:
            faults.append(f"{cell}: {wrong}")
    assert not faults, "\n".join(faults[:20])
    # All three are there, or the test would show nothing.
    assert min(kinds.values()) > 10, kinds


@pytest.mark.property
def test_what_can_run_is_not_refused() -> None:
    refused = []
    for cell, answer in outcomes():
        runs = served(cell.row, cell.site) and cell.python in cell.row.pythons
        if runs and all(getattr(cell.row, name) for name in cell.companions) and not isinstance(answer, Target):
            refused.append(f"{cell}: {[finding.code for finding in answer]}")
    assert not refused, "\n".join(refused[:20])


@pytest.mark.parametrize("site", ["mn5", "dawn"])
def test_an_image_with_the_release_is_used_before_wheels(site: str) -> None:
    chosen = load_site(site)
    for reference, (torch, python, cuda) in images_of(site).items():
        row = next((row for row in load_torch_table().releases if row.torch == Version(torch).base_version), None)
        runs = not cuda or cuda_served(chosen, int(cuda.split(".")[0]), sure=True)
        ngc = next((ngc for ngc in load_image_table().ngc_pytorch if reference.endswith(f":{ngc.tag}")), None)
        if row is None or not runs or (ngc and {"torch", "cuda"} & set(ngc.unsure)):
            continue
        answer = outcome(Cell(row=row, site=chosen, backend=chosen.build.backends[0], python=python))
        assert isinstance(answer, Target), reference
        assert answer.environment.place == "base", reference
        assert Version(images_of(site)[answer.base.reference][0]).base_version == row.torch
