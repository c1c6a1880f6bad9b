"""Resolve a recipe and a site to a target. Every decision is made here; nothing is written or run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from builder.model.backend import TRAITS
from builder.model.finding import ConfigError, Finding, Location, UnsupportedError, select_errors, suggest_name
from builder.model.recipe import Recipe
from builder.model.site import BackendName, BaseImage, Site
from builder.model.target import Context, InstallTarget, Target, Torch
from builder.resolve.base_image import choose_base, has_compat, is_served, match_rocm
from builder.resolve.checks import run_checks
from builder.resolve.checks.site_stack import check_driver_rows
from builder.resolve.conda_names import (
    find_conda_cuda,
    find_python_name,
    is_cuda_library,
    load_name_table,
    to_specifier,
)
from builder.resolve.driver import apply_compat, apply_driver
from builder.resolve.indexes import list_pages
from builder.resolve.own_machine import apply_machine
from builder.resolve.package_plan import PackagePlanner
from builder.resolve.releases import select_releases
from builder.resolve.requested import (
    add_brought,
    find_requested_family,
    find_torch_dependent,
    select_linux,
    select_python,
)
from builder.resolve.tokens import list_tokens
from builder.resolve.torch import PythonPin, choose_torch, find_release, read_python_pin

DEFAULT_PYTHON = "3.12"
# Starts of the codes of findings about the torch that was chosen, or about the environment that it decides.
OF_TORCH = (
    "torch", "glibc", "base-", "gpu-target", "rocm-unsafe", "cuda-minor", "cuda-compat", "table-unsure", "site-unsure",
    "driver-disputed", "python-env", "many-builds", "conda-cuda",
)  # fmt: skip


class RefusedError(UnsupportedError):
    """A recipe that cannot run on a site; `target` is what it would be there, for more checks."""

    def __init__(self, *findings: Finding, target: Target) -> None:
        self.target = target
        super().__init__(*findings)


def resolve(recipe: Recipe, site: Site, *, context: Context) -> Target:
    """Choose backend, base image, torch and every package; raises UnsupportedError with all errors."""
    recipe, left_out = select_linux(add_brought(recipe, context.brought), arch=site.node.arch)
    site = apply_driver(apply_machine(site, context.gpu, recipe=recipe), context.driver)
    backend = choose_backend(site, wanted=context.backend)
    base, obstacles = _choose_base(recipe, site=site, backend=backend, context=context)
    own = bool(context.base or recipe.container.base)
    compat = own and has_compat(base, site=site) and not is_served(base, site=site)
    findings = _report_compat(base, site=site) if compat and base.cuda else []
    site = apply_compat(site, cuda=base.cuda) if compat and base.cuda else site
    install_target = choose_install_target(recipe, site=site, base=base, backend=backend, obstacles=obstacles, own=own)
    if recipe.container.python == "base":
        own_python = TRAITS[backend].one_call
        findings += [_report_no_base_python(recipe, backend=backend, site=site)] if own_python else obstacles
    torch = _torch(recipe, site=site, base=base, install_target=install_target, context=context)
    if isinstance(torch, Finding):
        findings += [*_find_refusals(torch, recipe, site=site, context=context), *check_driver_rows(site)]
        torch = None
    if not own and not TRAITS[backend].makes_folder:
        base = match_rocm(base, torch=torch, site=site)
    python = _python(recipe, base=base, install_target=install_target, torch=torch)
    reduced, other_python = select_python(recipe, python, arch=site.node.arch)
    if other_python:  # the remaining requirements may need another torch, or none
        target = resolve(reduced, site, context=context)
        return replace(target, packages=(*target.packages, *left_out, *other_python))
    if select_errors(findings):  # the other faults are looked for with a torch that the site has
        torch = _find_any_torch(recipe, site=site, context=context)
        install_target = "conda" if install_target == "base" else install_target
    planner = PackagePlanner(
        recipe, site=site, install_target=install_target, base=base, torch=torch,
        compiles=TRAITS[backend].compiles,
    )  # fmt: skip
    packed = planner.plan(python=python)
    target = Target(
        recipe=recipe, site=site, backend=backend, base=base, environment=packed.environment, context=context,
        packages=(*packed.packages, *left_out), findings=packed.findings, compat=compat,
    )  # fmt: skip
    return _apply_lock(_judge(target, refusals=findings, obstacles=obstacles))


def _apply_lock(target: Target) -> Target:
    if target.context.lock is None and not target.context.locked:
        return target
    from builder.resolve.locked import apply_lock  # few environments have a lock

    return apply_lock(target)


def _judge(target: Target, *, refusals: Sequence[Finding], obstacles: tuple[Finding, ...]) -> Target:
    """Run the checks; of a refused torch the other faults are added. Raises RefusedError if there is an error."""
    found = (*target.findings, *run_checks(target, obstacles=obstacles))
    if select_errors(refusals):
        more = [one for one in found if one.level != "note" and not _is_of_torch(one)]
        raise RefusedError(*dict.fromkeys((*refusals, *more)), target=target)
    found = (*refusals, *found)
    if select_errors(found):
        raise RefusedError(*found, target=target)
    return replace(target, findings=found)


def _report_compat(base: BaseImage, *, site: Site) -> list[Finding]:
    driver = site.gpu.driver if site.gpu else ""
    message = f"CUDA {base.cuda} of the base image is newer than the driver of '{site.name}' ({driver}): the image's "
    message += "cuda-compat takes the place of the host's user-space driver"
    fix = "no action needed if its smoke test passes on a GPU node; otherwise choose an image with an older CUDA"
    return [Finding(code="cuda-compat", message=message, fix=fix, level="warning")]


def _is_of_torch(finding: Finding) -> bool:
    return finding.code.startswith(OF_TORCH) and finding.code != "base-vendor"


def _choose_base(
    recipe: Recipe, *, site: Site, backend: BackendName, context: Context
) -> tuple[BaseImage, tuple[Finding, ...]]:
    """The base image, and why packages cannot go into its Python; some engines of conda bring an image of their own."""
    base, obstacles = choose_base(recipe, site=site, context=context)
    if TRAITS[backend].makes_folder:
        own = f"an image like the host's own system, of {backend}'s choice"
        base = BaseImage(reference=own, mpi="none", source=site.build.source)
    elif TRAITS[backend].one_call and not (context.base or recipe.container.base):
        base = site.base_images[0]
    return base, obstacles


def choose_backend(site: Site, *, wanted: str) -> BackendName:
    """Return the requested backend if the site has it, by default the site's first.

    Raises UnsupportedError, and ConfigError for a name that no backend has.
    """
    if not wanted:
        return site.build.backends[0]
    for name in site.build.backends:
        if name == wanted:
            return name
    fix = suggest_name(wanted, known=site.build.backends, noun="its backends")
    kind = UnsupportedError if wanted in get_args(BackendName) else ConfigError
    raise kind(Finding(code="backend", message=f"the site '{site.name}' has no backend '{wanted}'", fix=fix))


def choose_install_target(
    recipe: Recipe, *, site: Site, base: BaseImage, backend: BackendName, obstacles: tuple[Finding, ...], own: bool
) -> InstallTarget:
    """Choose where to install: the base image's Python, a new environment on it, or a conda environment."""
    if TRAITS[backend].one_call:
        return "conda"
    mode = recipe.container.python
    if mode == "base" or (mode == "auto" and not obstacles):
        return "base"
    table = load_name_table()
    only_conda = [
        spec
        for spec in recipe.conda
        if spec.name != "python"
        and not (spec.name == "pip" and to_specifier(spec.version) is not None)
        and not (is_cuda_library(spec.name) and site.vendor != "nvidia")
        and spec.name not in (*table.torch_choosers, *table.torch_parts)
        and find_python_name(spec.name) != "torch"
    ]
    pin = read_python_pin(recipe)
    has_python = base.python is not None or own
    fits = pin.allows(base.python) if base.python else pin.spec is None or (own and pin.minor is not None)
    return (
        "venv"
        if not only_conda and fits and has_python and _has_torch_wheels(base.python, recipe, site=site)
        else "conda"
    )


def _has_torch_wheels(python: str | None, recipe: Recipe, *, site: Site) -> bool:
    """Whether a torch for the recipe has wheels for the base image's Python; else conda installs another Python."""
    if python is None or read_python_pin(recipe).minor:
        return True
    asked = find_requested_family(recipe)
    if not asked and not find_torch_dependent(recipe):
        return True
    served = [row for row in select_releases(asked, packages=recipe.pip) if list_tokens(row, site=site, sure=False)]
    return not served or any(python in row.pythons for row in served)


def _torch(
    recipe: Recipe, *, site: Site, base: BaseImage, install_target: InstallTarget, context: Context
) -> Torch | Finding | None:
    asked = find_requested_family(recipe)
    if not asked and not find_torch_dependent(recipe) and install_target != "base":
        return None
    if install_target == "base":
        return Torch(version=base.provides.get("torch", ""), provided=True) if "torch" in base.provides else None
    python = PythonPin(minor=base.python) if install_target == "venv" and base.python else read_python_pin(recipe)
    options = recipe.pip_options
    indexes = [*filter(None, (options.index_url, *options.extra_index_urls))]
    indexes += [page.build for page in list_pages(options)]
    indexes += [found[1] for found in [find_conda_cuda(recipe)] if found]
    index = context.torch_index
    return choose_torch(asked, site=site, python=python, index=index, packages=recipe.pip, indexes=indexes)


def _find_refusals(first: Finding, recipe: Recipe, *, site: Site, context: Context) -> list[Finding]:
    """Add the refusals of the other requirements of the family that name a build, each requested alone."""
    asked = {name: item for name, item in find_requested_family(recipe).items() if item.local or item.unclear}
    python, index = read_python_pin(recipe), context.torch_index
    alone = (choose_torch({name: item}, site=site, python=python, index=index) for name, item in asked.items())
    others = [one for one in alone if isinstance(one, Finding) and one.at != first.at]
    return [first, *others]


def _find_any_torch(recipe: Recipe, *, site: Site, context: Context) -> Torch | None:
    """Find a torch of the site, the one that the recipe asks for if the site has it; None if there is none at all."""
    asked = find_requested_family(recipe)
    if not asked and not find_torch_dependent(recipe):
        return None
    wanted = {name: one for name, one in asked.items() if name == "torch"}
    found = choose_torch(wanted, site=site, index=context.torch_index)
    found = choose_torch({}, site=site, index=context.torch_index) if isinstance(found, Finding) else found
    return None if isinstance(found, Finding) else found


def _python(recipe: Recipe, *, base: BaseImage, install_target: InstallTarget, torch: Torch | None) -> str | None:
    """Choose X.Y: the recipe's, the base image's, or one that the recipe allows and torch has wheels for.

    None if conda chooses: the recipe allows several, and none of them is one we prefer.
    """
    pin = read_python_pin(recipe)
    if install_target != "conda":
        return base.python or pin.minor
    row = find_release(torch.version) if torch else None
    usual = (DEFAULT_PYTHON, *reversed(row.pythons if row else ()))
    known = [minor for minor in usual if pin.allows(minor) and (row is None or minor in row.pythons)]
    return pin.minor or next(iter(known), None)


def _report_no_base_python(recipe: Recipe, *, backend: BackendName, site: Site) -> Finding:
    at = Location(file=recipe.file, line=recipe.lines.get("container.python"), key="container.python")
    message = f"{backend}, the backend for '{site.name}', always makes its own conda environment"
    return Finding(code="python-base", message=message, at=at, fix="use container.python: auto")
