"""Checks of a resolved target: small pure functions, each with a stable code and a page in docs/checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from builder.model.finding import Finding, Level
from builder.model.target import Target
from builder.resolve.checks import builds, conda_builds, packages, site_stack, spelling

Check = Callable[[Target], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    site_stack.check_gpu_vendor,
    site_stack.check_gpu_target,
    site_stack.check_wheel_glibc,
    site_stack.check_rocm,
    site_stack.check_cuda_minor,
    site_stack.check_torch_facts,
    site_stack.check_driver_facts,
    site_stack.check_base_pinned,
    site_stack.check_driver_known,
    site_stack.check_site_facts,
    packages.check_vendor,
    packages.check_vendor_names,
    packages.check_counterparts,
    packages.check_default_wheel,
    packages.check_many_builds,
    packages.check_torch_pin,
    builds.check_build_needs,
    builds.check_git,
    builds.check_index_login,
    builds.check_package_glibc,
    builds.check_retired,
    builds.check_one_module,
    packages.check_hashes,
    packages.check_package_cuda,
    conda_builds.check_conda_builds,
    conda_builds.check_conda_default,
    conda_builds.check_conda_cuda,
    conda_builds.check_conda_toolkit,
    builds.check_package_rocm,
    packages.check_torch_index,
    packages.check_other_builds,
    packages.check_local_requirements,
    spelling.check_conda_torch,
    spelling.check_import_name,
    spelling.check_conda_import,
    spelling.check_near_miss,
    spelling.check_system_name,
    spelling.check_other_system,
    conda_builds.check_two_versions,
    packages.check_pins,
)


def run_checks(target: Target, *, obstacles: tuple[Finding, ...]) -> tuple[Finding, ...]:
    found = [finding for check in CHECKS for finding in check(target)]
    return (*target.recipe.warnings, *found, *_explain_fresh(target, obstacles=obstacles))


def _explain_fresh(target: Target, *, obstacles: tuple[Finding, ...]) -> Iterator[Finding]:
    """With `auto`, explain why the torch of the site's base images is not used."""
    has_torch = any("torch" in image.provides for image in target.site.base_images)
    if target.environment.place == "base" or target.recipe.container.python != "auto" or not has_torch or not obstacles:
        return
    if target.backend in ("cotainr", "tykky") or obstacles[0].code == "base-no-torch":
        return
    message = f"a new environment is created, because {obstacles[0].message}"
    own = bool(target.context.base or target.recipe.container.base)
    fix = "choose a base image without a torch of its own" if own else "no action needed"
    level: Level = "warning" if own and "torch" in target.base.provides else "note"
    yield Finding(code="python-env", message=message, at=obstacles[0].at, fix=fix, level=level)
