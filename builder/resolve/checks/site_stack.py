"""Checks of a target against its site: vendor, driver, architecture, C library, base image."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from builder.model.finding import Finding, Location
from builder.model.site import Site
from builder.model.target import Target
from builder.parse.gpu_tables import load_torch_table
from builder.resolve.driver import list_doubts
from builder.resolve.torch import find_release, has_trouble, parse_cuda


def check_gpu_vendor(target: Target) -> Iterator[Finding]:
    """Report a site whose vendor is not in container.gpu."""
    recipe, site = target.recipe, target.site
    if recipe.wants(site.vendor):
        return
    at = Location(file=recipe.file, line=recipe.lines.get("container.gpu"), key="container.gpu")
    meant = ", ".join(recipe.container.gpu)
    if site.vendor == "cpu":
        message = f"the recipe is for {meant} GPUs, but the site '{site.name}' has none: it runs on CPUs there"
        fix = "add 'cpu' to container.gpu if you want that"
        yield Finding(code="gpu-vendor", message=message, at=at, fix=fix, level="warning")
    else:
        message = f"the recipe is for {meant} GPUs, but the site '{site.name}' has {site.vendor} GPUs"
        fix = f"add '{site.vendor}' to container.gpu, or choose another site"
        yield Finding(code="gpu-vendor", message=message, at=at, fix=fix)


def check_gpu_target(target: Target) -> Iterator[Finding]:
    """Report a GPU without kernels in the ROCm wheel: torch imports, and fails at the first kernel."""
    torch, gpu = target.environment.torch, target.site.gpu
    if torch is None or gpu is None or gpu.vendor != "amd" or not torch.token.startswith("rocm"):
        return
    short = ".".join(torch.version.split(".")[:2])
    row = next((row for row in load_torch_table().gfx if row.torch == short), None)
    if row is not None and gpu.target not in (*row.gfx, *row.gfx_from_rocm6):
        gpus = f"{gpu.target}, the GPUs of '{target.site.name}'"
        message = f"the ROCm wheels of torch {torch.version} contain no kernels for {gpus}"
        yield Finding(code="gpu-target", message=message, fix=f"they are built for {', '.join(row.gfx)}")


def check_rocm(target: Target) -> Iterator[Finding]:
    """Report a ROCm build that the driver serves but that has known trouble at the site."""
    torch, gpu = target.environment.torch, target.site.gpu
    if torch is not None and gpu is not None and has_trouble(torch.token, site=target.site):
        message = (
            f"torch {torch.local} is the only build for '{target.site.name}', and its ROCm has known trouble there"
        )
        fix = f"use a torch that has a build for ROCm {gpu.rocm_safe} or older"
        yield Finding(code="rocm-unsafe", message=message, fix=fix, level="warning")


def check_cuda_minor(target: Target) -> Iterator[Finding]:
    """Report a CUDA newer than the driver's: minor-version compatibility excludes PTX compilation."""
    torch, gpu = target.environment.torch, target.site.gpu
    if torch is None or gpu is None or gpu.cuda_native is None:
        return
    cuda = target.base.cuda if torch.provided else parse_cuda(torch.token) if torch.token.startswith("cu") else None
    if cuda and Version(cuda) >= Version(gpu.cuda_native + ".999"):
        message = (
            f"CUDA {cuda} is newer than the driver of '{target.site.name}' ({gpu.driver}, CUDA {gpu.cuda_native}): "
            "it runs by minor-version compatibility, without compilation of PTX"
        )
        fix = "no action needed, unless a package compiles PTX at run time; check the driver with nvidia-smi"
        yield Finding(code="cuda-minor", message=message, fix=fix, level="warning")


def check_driver_known(target: Target) -> Iterator[Finding]:
    """Report an unknown driver: the GPU stack cannot be checked."""
    gpu = target.site.gpu
    if gpu is not None and gpu.driver is None and target.environment.torch is not None:
        message = (
            f"the GPU driver of '{target.site.name}' is unknown: the build of torch could not be checked against it"
        )
        fix = "run the smoke test on a GPU node"
        yield Finding(code="site-driver-unknown", message=message, fix=fix, level="note")


def check_site_facts(target: Target) -> Iterator[Finding]:
    """Report uncertain facts in the site's file."""
    gpu = target.site.gpu
    if gpu is not None and gpu.unsure and target.environment.torch is not None:
        message = f"the facts about the GPUs of '{target.site.name}' are not certain: {'; '.join(gpu.unsure)}"
        fix = "read the driver on a GPU node with `recipe doctor`, and pass it with --driver"
        yield Finding(code="site-unsure", message=message, fix=fix, level="warning")


def check_driver_facts(target: Target) -> Iterator[Finding]:
    """Report uncertain facts about the driver, which decide the build of torch."""
    if target.environment.torch is not None:
        yield from check_driver_rows(target.site)


def check_driver_rows(site: Site) -> Iterator[Finding]:
    """Report uncertain table rows about the driver; also used if no build was found, as a possible cause."""
    found = list_doubts(site.gpu) if site.gpu else ()
    if found and site.gpu:
        message = f"the facts about the driver {site.gpu.driver} are not certain: {'; '.join(found)}"
        yield Finding(code="table-unsure", message=message, fix="run the smoke test on a GPU node", level="warning")


def check_wheel_glibc(target: Target) -> Iterator[Finding]:
    """Report a wheel that needs a newer glibc than the base image has; the glibc of the site does not matter."""
    torch, has = target.environment.torch, target.base.glibc
    row = find_release(torch.version) if torch is not None and not torch.provided and torch.version else None
    if row is not None and has is not None and Version(has) < Version(row.glibc):
        needed = f"the wheels of torch {row.torch} need glibc {row.glibc}"
        message = f"{needed}, the base image '{target.base.reference}' has {has}"
        yield Finding(code="glibc", message=message, fix="choose a newer base image, or an older torch")


def check_torch_facts(target: Target) -> Iterator[Finding]:
    """Report uncertain facts about the chosen torch; doubts about other vendors' builds are ignored."""
    torch = target.environment.torch
    if torch is not None and torch.provided and target.base.unsure:
        message = f"the facts about '{target.base.reference}' are not certain: {', '.join(target.base.unsure)}"
        fix = "the build checks the torch of the image; choose another base image to be certain before"
        yield Finding(code="table-unsure", message=message, fix=fix, level="warning")
    row = find_release(torch.version) if torch is not None and not torch.provided and torch.version else None
    if torch is None or row is None:
        return
    kind = {"nvidia": "cuda", "amd": "rocm", "intel": "xpu", "cpu": "cpu"}[target.site.vendor]
    doubts = [text for text in row.unsure if text.split()[0] in (kind, torch.token)]
    if doubts:
        message = f"the facts about torch {row.torch} are not certain: {', '.join(doubts)}"
        fix = "the build checks the torch of the image; choose an older torch to be certain before"
        yield Finding(code="table-unsure", message=message, fix=fix, level="warning")


def check_base_pinned(target: Target) -> Iterator[Finding]:
    """Report a base image without a tag, or with `latest`: its content may change."""
    reference = target.base.reference
    if not reference.startswith("docker://") or "@sha256:" in reference:
        return
    tag = reference.rpartition("/")[2].partition(":")[2]
    if tag in ("", "latest"):
        at = Location(file=target.recipe.file, line=target.recipe.lines.get("container.base"), key="container.base")
        message = f"the base image '{reference}' has no fixed tag: its content may change"
        yield Finding(code="base-floating", message=message, at=at, fix="name a version, or a digest", level="warning")
