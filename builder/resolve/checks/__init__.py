"""Checks of a resolved target: small pure functions, each with a stable code and a page in docs/checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from builder.model.finding import Finding, Level
from builder.model.target import Target
from builder.resolve.checks import (
    builds,
    conda_builds,
    default_wheels,
    foreign_locks,
    known_releases,
    packages,
    processor,
    repositories,
    site_stack,
    spelling,
    torch_facts,
    triton,
)

Check = Callable[[Target], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    site_stack.check_gpu_vendor,
    site_stack.check_own_gpu,
    site_stack.check_cpu_build,
    site_stack.check_gpu_target,
    site_stack.check_cuda_target,
    site_stack.check_wheel_glibc,
    site_stack.check_rocm,
    site_stack.check_cuda_minor,
    torch_facts.check_torch_facts,
    site_stack.check_driver_facts,
    site_stack.check_dispute,
    site_stack.check_base_vendor,
    site_stack.check_network_plugin,
    site_stack.check_base_pinned,
    site_stack.check_driver_known,
    site_stack.check_site_facts,
    site_stack.check_mpi,
    packages.check_vendor,
    site_stack.check_gpu_wheels,
    packages.check_vendor_names,
    packages.check_counterparts,
    default_wheels.check_default_wheel,
    processor.check_wheel_processor,
    packages.check_many_builds,
    packages.check_torch_pin,
    builds.check_build_needs,
    builds.check_wheel_pages,
    builds.check_torch_of_wheel,
    builds.check_cuda_libraries,
    builds.check_git,
    repositories.check_git_key,
    builds.check_index_login,
    builds.check_package_glibc,
    known_releases.check_wheel_variant,
    known_releases.check_wheel_python,
    known_releases.check_other_index,
    known_releases.check_newest_python,
    known_releases.check_last_release,
    triton.check_triton_index,
    known_releases.check_empty_release,
    known_releases.check_missing_plugin,
    known_releases.check_retired,
    known_releases.check_one_module,
    foreign_locks.check_lock_platform,
    foreign_locks.check_lock_files,
    foreign_locks.check_lock_torch,
    packages.check_hashes,
    packages.check_marked_hashes,
    packages.check_source_hashes,
    packages.check_package_cuda,
    conda_builds.check_conda_builds,
    conda_builds.check_conda_default,
    conda_builds.check_conda_torch_users,
    conda_builds.check_conda_cuda_version,
    conda_builds.check_conda_cuda,
    conda_builds.check_conda_toolkit,
    builds.check_package_rocm,
    packages.check_torch_index,
    builds.check_other_builds,
    site_stack.check_local_requirements,
    spelling.check_conda_torch,
    spelling.check_import_name,
    spelling.check_conda_import,
    spelling.check_unsure_name,
    spelling.check_near_miss,
    spelling.check_system_name,
    spelling.check_other_system,
    conda_builds.check_two_versions,
    conda_builds.check_default_channel,
    conda_builds.check_channel,
    packages.check_pins,
)


def run_checks(target: Target, *, obstacles: tuple[Finding, ...]) -> tuple[Finding, ...]:
    found = [finding for check in CHECKS for finding in check(target)]
    if target.recipe.kind == "lock":  # `check --fix` changes no lock of another tool
        found = [replace(finding, edit=None) for finding in found]
    return (*target.recipe.warnings, *found, *_explain_fresh(target, obstacles=obstacles))


def _explain_fresh(target: Target, *, obstacles: tuple[Finding, ...]) -> Iterator[Finding]:
    """With `auto`, explain why the torch of the site's base images is not used."""
    has_torch = any("torch" in image.provides for image in target.site.base_images)
    if target.environment.place == "base" or target.recipe.container.python != "auto" or not has_torch or not obstacles:
        return
    if target.traits.one_call or obstacles[0].code == "base-no-torch":
        return
    where = "" if repr(target.base.reference) in obstacles[0].message else f" in '{target.base.reference}'"
    message = f"a new environment is created{where}, because {obstacles[0].message}"
    own = bool(target.context.base or target.recipe.container.base)
    fix = "choose a base image without a torch of its own" if own else "no action needed"
    if own and obstacles[0].code == "base-python":
        fix = f"write python={target.base.python}, which the base image has, or {fix}"
    level: Level = "warning" if own and "torch" in target.base.provides else "note"
    yield Finding(code="python-env", message=message, at=obstacles[0].at, fix=fix, level=level)
