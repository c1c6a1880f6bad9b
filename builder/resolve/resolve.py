"""Resolve: a recipe and a site become a target. Every decision is made here; nothing is written, nothing is run."""

from __future__ import annotations

from dataclasses import replace

from builder.model.finding import Finding, Place, UnsupportedError, did_you_mean, errors
from builder.model.recipe import Recipe
from builder.model.site import BackendName, BaseImage, Site
from builder.model.target import Context, Target, Torch
from builder.model.target import Place as Where
from builder.resolve.base_image import choose_base
from builder.resolve.checks import findings_of
from builder.resolve.checks.site import driver_doubts
from builder.resolve.conda_names import is_cuda_library, name_table, python_name
from builder.resolve.driver import with_driver
from builder.resolve.locked import with_lock
from builder.resolve.packages import Packer
from builder.resolve.requested import asked_family, brings_torch, for_linux, for_python
from builder.resolve.torch import PythonPin, choose_torch, python_pin, release, suiting, tokens

OWN_CONDA: tuple[BackendName, ...] = ("cotainr", "tykky")  # these always make a conda environment of their own
DEFAULT_PYTHON = "3.12"


def resolve(recipe: Recipe, site: Site, *, context: Context) -> Target:
    """Decide backend, base image, torch and every package; raises UnsupportedError with all reasons against it."""
    recipe, left_out = for_linux(recipe)
    site = with_driver(site, context.driver)
    backend = choose_backend(site, wanted=context.backend)
    own = bool(context.base or recipe.container.base)
    base, obstacles = choose_base(recipe, site=site, context=context)
    if backend in OWN_CONDA and not own:
        base = site.base_images[0]
    if backend == "tykky":
        base = BaseImage(reference="an image like the host's own system, of tykky's choice", source=site.build.source)
    where = choose_place(recipe, site=site, base=base, backend=backend, obstacles=obstacles, own=own)
    findings: list[Finding] = []
    if recipe.container.python == "base":
        findings += [_no_base_python(recipe, backend=backend, site=site)] if backend in OWN_CONDA else obstacles
    torch = _torch(recipe, site=site, base=base, where=where, context=context)
    if isinstance(torch, Finding):
        findings += [torch, *driver_doubts(site)]
        torch = None
    python = _python(recipe, base=base, where=where, torch=torch)
    reduced, other_python = for_python(recipe, python)
    if other_python:  # what is left may ask for another torch, or for none
        target = resolve(reduced, site, context=context)
        return replace(target, packages=(*target.packages, *left_out, *other_python))
    if errors(findings):
        raise UnsupportedError(*findings)
    packed = Packer(recipe, site=site, where=where, base=base, torch=torch).pack(python=python)
    target = Target(
        recipe=recipe,
        site=site,
        backend=backend,
        base=base,
        environment=packed.environment,
        context=context,
        packages=(*packed.packages, *left_out),
        findings=packed.findings,
    )
    found = (*findings, *packed.findings, *findings_of(target, obstacles=obstacles))
    if errors(found):
        raise UnsupportedError(*found)
    return with_lock(replace(target, findings=found))


def choose_backend(site: Site, *, wanted: str) -> BackendName:
    """The backend asked for if the site has it, else the site's first; raises UnsupportedError."""
    if not wanted:
        return site.build.backends[0]
    for name in site.build.backends:
        if name == wanted:
            return name
    fix = did_you_mean(wanted, known=site.build.backends, noun="its backends")
    raise UnsupportedError(
        Finding(code="backend", message=f"the site '{site.name}' has no backend '{wanted}'", fix=fix)
    )


def choose_place(
    recipe: Recipe, *, site: Site, base: BaseImage, backend: BackendName, obstacles: tuple[Finding, ...], own: bool
) -> Where:
    """Where packages go: the base image's Python, a fresh environment on it, or a conda environment."""
    if backend in OWN_CONDA:
        return "conda"
    mode = recipe.container.python
    if mode == "base" or (mode == "auto" and not obstacles):
        return "base"
    table = name_table()
    only_conda = [
        spec
        for spec in recipe.conda
        if spec.name not in ("python", "pip")
        and not (is_cuda_library(spec.name) and site.vendor != "nvidia")
        and spec.name not in table.torch_choosers
        and python_name(spec.name) != "torch"
    ]
    pin = python_pin(recipe)
    has_python = base.python is not None or own
    fits = pin.allows(base.python) if base.python else pin.spec is None or (own and pin.minor is not None)
    return "venv" if not only_conda and fits and has_python and _torch_has(base.python, recipe, site=site) else "conda"


def _torch_has(python: str | None, recipe: Recipe, *, site: Site) -> bool:
    """Whether a torch for the recipe has wheels for the base image's Python; conda brings another where it has not."""
    if python is None or python_pin(recipe).minor:
        return True
    asked = asked_family(recipe)
    if not asked and not brings_torch(recipe):
        return True
    served = [row for row in suiting(asked, packages=recipe.pip) if tokens(row, site=site)]
    return not served or any(python in row.pythons for row in served)


def _torch(recipe: Recipe, *, site: Site, base: BaseImage, where: Where, context: Context) -> Torch | Finding | None:
    asked = asked_family(recipe)
    if not asked and not brings_torch(recipe) and where != "base":
        return None
    if where == "base":
        return Torch(version=base.provides.get("torch", ""), provided=True) if "torch" in base.provides else None
    python = PythonPin(minor=base.python) if where == "venv" and base.python else python_pin(recipe)
    return choose_torch(asked, site=site, python=python, index=context.torch_index, packages=recipe.pip)


def _python(recipe: Recipe, *, base: BaseImage, where: Where, torch: Torch | None) -> str | None:
    """X.Y of the environment: the recipe's, the base image's, or one that the recipe allows and torch has wheels for.

    None where conda chooses: the recipe allows several, and none of ours is among them.
    """
    pin = python_pin(recipe)
    if where != "conda":
        return base.python or pin.minor
    row = release(torch.version) if torch else None
    usual = (DEFAULT_PYTHON, *reversed(row.pythons if row else ()))
    known = [minor for minor in usual if pin.allows(minor) and (row is None or minor in row.pythons)]
    return pin.minor or next(iter(known), None)


def _no_base_python(recipe: Recipe, *, backend: BackendName, site: Site) -> Finding:
    at = Place(file=recipe.file, line=recipe.lines.get("container.python"), key="container.python")
    message = f"{backend}, the backend for '{site.name}', always makes a conda environment of its own"
    return Finding(code="python-base", message=message, at=at, fix="use container.python: auto")
