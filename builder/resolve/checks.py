"""Checks of a resolved target: small pure functions, each with a stable code, in the order they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from builder.model.finding import Finding, Place
from builder.model.target import Target
from builder.resolve.packages import is_local
from builder.resolve.stack import has_trouble

Check = Callable[[Target], Iterator[Finding]]


def findings_of(target: Target, *, obstacles: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Run every check over a target."""
    found = [finding for check in CHECKS for finding in check(target)]
    return (*found, *_why_fresh(target, obstacles=obstacles))


def _why_fresh(target: Target, *, obstacles: tuple[Finding, ...]) -> Iterator[Finding]:
    """Under `auto`, say why the base image's own torch is not used where the site has images with one."""
    has_torch = any("torch" in image.provides for image in target.site.base_images)
    if target.environment.place == "base" or target.recipe.container.python != "auto" or not has_torch or not obstacles:
        return
    if target.backend in ("cotainr", "tykky") or obstacles[0].code == "base-no-torch":
        return
    message = f"a fresh environment is made, because {obstacles[0].message}"
    yield Finding(code="python-env", message=message, at=obstacles[0].at, fix=obstacles[0].fix, level="note")


def gpu_vendor(target: Target) -> Iterator[Finding]:
    """container.gpu names the vendors a recipe is meant for."""
    recipe, site = target.recipe, target.site
    if recipe.wants(site.vendor):
        return
    at = Place(file=recipe.file, line=recipe.lines.get("container.gpu"), key="container.gpu")
    meant = ", ".join(recipe.container.gpu)
    if site.vendor == "cpu":
        message = f"the recipe is meant for {meant} GPUs, the site '{site.name}' has none: it runs on CPUs there"
        yield Finding(
            code="gpu-vendor",
            message=message,
            at=at,
            fix="add 'cpu' to container.gpu if that is meant",
            level="warning",
        )
    else:
        message = f"the recipe is meant for {meant} GPUs, the site '{site.name}' has {site.vendor} GPUs"
        yield Finding(
            code="gpu-vendor",
            message=message,
            at=at,
            fix=f"add '{site.vendor}' to container.gpu, or choose another site",
        )


def local_requirements(target: Target) -> Iterator[Finding]:
    """A requirement that is a folder on this machine is not there while the image is built."""
    for line in target.recipe.pip:
        if is_local(line):
            at = Place(file=line.file or target.recipe.file, line=line.line)
            message = f"'{line.text}' is a folder on this machine: it is not in the image while packages are installed"
            fix = "copy it with container.files and install it with container.run"
            yield Finding(code="pip-local", message=message, at=at, fix=fix)


def floating_base(target: Target) -> Iterator[Finding]:
    """A base image without a tag, or with `latest`, is another image tomorrow."""
    reference = target.base.reference
    if not reference.startswith("docker://") or "@sha256:" in reference:
        return
    tag = reference.rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest"):
        at = Place(file=target.recipe.file, line=target.recipe.lines.get("container.base"), key="container.base")
        message = f"the base image '{reference}' has no fixed tag: it is another image tomorrow"
        yield Finding(code="base-floating", message=message, at=at, fix="name a version, or a digest", level="warning")


def rocm_above_safe(target: Target) -> Iterator[Finding]:
    """A ROCm build that the driver serves, with trouble known at the site."""
    torch, gpu = target.environment.torch, target.site.gpu
    if torch is not None and gpu is not None and has_trouble(torch.token, site=target.site):
        message = (
            f"torch {torch.local} is the only build for '{target.site.name}', and its ROCm has known trouble there"
        )
        fix = f"use a torch that has a build for ROCm {gpu.rocm_safe} or older"
        yield Finding(code="rocm-unsafe", message=message, fix=fix, level="warning")


def unknown_driver(target: Target) -> Iterator[Finding]:
    """A GPU stack can only be checked against a driver that is known."""
    gpu = target.site.gpu
    if gpu is not None and gpu.driver is None and target.environment.torch is not None:
        message = (
            f"the GPU driver of '{target.site.name}' is not known: the build of torch could not be checked against it"
        )
        yield Finding(code="site-driver-unknown", message=message, fix="run the smoke test on a GPU node", level="note")


CHECKS: tuple[Check, ...] = (gpu_vendor, local_requirements, floating_base, rocm_above_safe, unknown_driver)
