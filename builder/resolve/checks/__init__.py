"""Checks of a resolved target: small pure functions, each with a stable code; docs/checks has a page for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from builder.model.finding import Finding, Level
from builder.model.target import Target
from builder.resolve.checks import builds, conda, packages, site, spelling

Check = Callable[[Target], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    site.gpu_vendor,
    site.gpu_target,
    site.wheel_glibc,
    site.rocm_trouble,
    site.cuda_minor,
    site.unsure_row,
    site.unsure_driver,
    site.floating_base,
    site.unknown_driver,
    site.unsure_site,
    packages.wrong_vendor,
    packages.counterparts,
    packages.default_wheel,
    packages.many_builds,
    packages.torch_pin,
    builds.build_needs,
    builds.index_login,
    builds.package_glibc,
    builds.retired,
    builds.one_module,
    packages.hashes,
    packages.package_cuda,
    conda.conda_builds,
    conda.conda_default,
    conda.conda_cuda,
    packages.torch_index,
    packages.local_requirements,
    spelling.conda_torch,
    spelling.import_name,
    spelling.near_miss,
    spelling.system_name,
    spelling.other_system,
    packages.unpinned,
)


def findings_of(target: Target, *, obstacles: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Run every check over a target."""
    found = [finding for check in CHECKS for finding in check(target)]
    return (*target.recipe.warnings, *found, *_why_fresh(target, obstacles=obstacles))


def _why_fresh(target: Target, *, obstacles: tuple[Finding, ...]) -> Iterator[Finding]:
    """Under `auto`, say why the base image's own torch is not used where the site has images with one."""
    has_torch = any("torch" in image.provides for image in target.site.base_images)
    if target.environment.place == "base" or target.recipe.container.python != "auto" or not has_torch or not obstacles:
        return
    if target.backend in ("cotainr", "tykky") or obstacles[0].code == "base-no-torch":
        return
    message = f"a fresh environment is made, because {obstacles[0].message}"
    own = bool(target.context.base or target.recipe.container.base)
    fix = "choose a base image without a torch of its own" if own else "nothing, if that is what you want"
    level: Level = "warning" if own and "torch" in target.base.provides else "note"
    yield Finding(code="python-env", message=message, at=obstacles[0].at, fix=fix, level=level)
