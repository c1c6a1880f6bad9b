"""Checks of a target against its site: vendor, driver, architecture, C library, base image."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from builder.model.backend import TRAITS
from builder.model.finding import Finding, Level, Location
from builder.model.site import Site
from builder.model.target import Target
from builder.parse.gpu_tables import load_package_table, load_torch_table
from builder.resolve.base_image import find_image_vendor, is_served
from builder.resolve.checks.packages import locate
from builder.resolve.checks.vendors import VENDOR_NAMES, report_dispute
from builder.resolve.driver import list_doubts
from builder.resolve.indexes import list_pages
from builder.resolve.package_plan import is_local
from builder.resolve.releases import select_releases
from builder.resolve.requested import find_requested_family
from builder.resolve.source_releases import find_source_release
from builder.resolve.tokens import has_trouble, list_tokens, parse_cuda, parse_rocm
from builder.resolve.torch import find_release, is_cuda_pin

# Docker Hub's accounts of one processor (arm64v8/python), and tags that name one.
_ARCH = re.compile(r"(?:[/:_.-])(x86_64|amd64|aarch64|arm64)(?:v8)?(?=[/:_.@-]|$)")


def check_gpu_vendor(target: Target) -> Iterator[Finding]:
    """Report a site whose vendor is not in container.gpu."""
    recipe, site = target.recipe, target.site
    if recipe.wants(site.vendor):
        return
    at = Location(file=recipe.file, line=recipe.lines.get("container.gpu"), key="container.gpu")
    meant = ", ".join(recipe.container.gpu)
    if site.vendor == "cpu":
        message = f"the recipe is for {meant} GPUs, but the site '{site.name}' has none: it runs on CPUs there"
        fix = f"write gpu: [{meant}, cpu] below container if you want that"
        yield Finding(code="gpu-vendor", message=message, at=at, fix=fix, level="warning")
    else:
        message = f"the recipe is for {meant} GPUs, but the site '{site.name}' has {site.vendor} GPUs"
        fix = f"write gpu: [{meant}, {site.vendor}] below container, or choose another site"
        yield Finding(code="gpu-vendor", message=message, at=at, fix=fix)


def check_cpu_build(target: Target) -> Iterator[Finding]:
    """Report a CUDA build that is pinned where there is no GPU: the CPU build of that release is installed."""
    site = target.site
    asked = find_requested_family(target.recipe).values() if target.environment.torch is not None else ()
    for item in (one for one in asked if is_cuda_pin(one, site=site)):
        message = (
            f"'{item.text}' is built for NVIDIA GPUs, the site '{site.name}' has none: the CPU build takes its place"
        )
        fix = f"no action needed; without +{item.local} the right build is chosen for every site"
        yield Finding(code="torch-vendor", message=message, at=item.location, fix=fix, level="warning")


def check_gpu_wheels(target: Target) -> Iterator[Finding]:
    """Report a package whose only file loads the libraries of a GPU, where there is none."""
    if target.site.vendor != "cpu":
        return
    rows = {row.name: row for row in load_package_table().packages if row.needs_gpu}
    for line in target.recipe.pip:
        row = rows.get(line.name)
        if row is not None and not line.url and "+" not in line.specifier and not list_pages(target.recipe.pip_options):
            built = " and ".join(VENDOR_NAMES[vendor] for vendor in row.pypi)
            message = (
                f"'{line.text}' from the default index is built for {built}: it does not load on '{target.site.name}'"
            )
            fix = "check that it does what you need on CPUs, or remove it"
            yield Finding(
                code="package-vendor", message=message, at=locate(target.recipe, line), fix=fix, level="warning"
            )


def check_own_gpu(target: Target) -> Iterator[Finding]:
    """Report the GPU that this machine has, which decides the build of torch."""
    gpu, own = target.site.gpu, target.context.gpu
    if gpu is None or own is None or target.environment.torch is None:
        return
    devices = f"{own.devices} {own.model}" + (f", driver {own.driver}" if own.driver else "")
    message = f"this machine has a GPU ({devices}): the image is built for it"
    fix = "no action needed; for an image for CPUs write gpu: [cpu] below container"
    yield Finding(code="local-gpu", message=message, fix=fix, level="note")


def check_gpu_target(target: Target) -> Iterator[Finding]:
    """Report a GPU without kernels in the ROCm wheel: torch imports, and fails at the first kernel."""
    torch, gpu = target.environment.torch, target.site.gpu
    if torch is None or gpu is None or gpu.vendor != "amd" or not torch.token.startswith("rocm"):
        return
    short = ".".join(torch.version.split(".")[:2])
    row = next((row for row in load_torch_table().gfx if row.torch == short), None)
    if row is not None and gpu.target not in (*row.gfx.split(), *row.gfx_from_rocm6.split()):
        gpus = f"{gpu.target}, the GPUs of '{target.site.name}'"
        message = f"the ROCm wheels of torch {torch.version} contain no kernels for {gpus}"
        yield Finding(code="gpu-target", message=message, fix=f"they are built for {', '.join(row.gfx.split())}")


def check_cuda_target(target: Target) -> Iterator[Finding]:
    """Report a GPU without kernels in the CUDA wheel."""
    torch, gpu = target.environment.torch, target.site.gpu
    if torch is None or gpu is None or gpu.vendor != "nvidia" or not torch.token.startswith("cu"):
        return
    release = Version(torch.version)
    row = next(
        (
            row
            for row in load_torch_table().sm
            if row.build == torch.token
            and (not row.torch_min or Version(row.torch_min) <= release)
            and (not row.torch_max or release <= Version(row.torch_max))
        ),
        None,
    )
    targets = row.sm.split() if row is not None else []
    if not targets or gpu.target in targets:
        return
    from builder.audit.vendor_rules import can_run_cubin  # for GPUs that no wheel names

    if not any(can_run_cubin(built, gpu.target) for built in targets):
        message = f"torch {torch.local} contains no kernels for {gpu.target}, the GPUs of '{target.site.name}'"
        yield Finding(code="gpu-target", message=message, fix=f"it is built for {', '.join(targets)}")


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
        if gpu.vendor == "intel":  # one build of each release: there was nothing to choose
            yield Finding(code="site-driver-unknown", message=message, fix=fix, level="note")
            return
        if not target.environment.torch.provided:
            message += ", the oldest that fits was chosen"
        fix = "read the driver on a GPU node with `recipe doctor`, and pass it with --driver"
        yield Finding(code="site-driver-unknown", message=message, fix=fix, level="warning")


def check_site_facts(target: Target) -> Iterator[Finding]:
    """Report uncertain facts in the site's file."""
    gpu = target.site.gpu
    if gpu is not None and gpu.unsure and target.environment.torch is not None:
        message = f"the facts about the GPUs of '{target.site.name}' are not certain: {'; '.join(gpu.unsure)}"
        fix = "read the driver on a GPU node with `recipe doctor`, and pass it with --driver"
        yield Finding(code="site-unsure", message=message, fix=fix, level="warning")


def check_dispute(target: Target) -> Iterator[Finding]:
    """Report a torch or a base image whose CUDA or ROCm the driver serves by only one of two sources."""
    torch, site, base = target.environment.torch, target.site, target.base
    if torch is not None and torch.provided and not is_served(base, site=site):
        stack = f"ROCm {base.rocm}" if base.rocm else f"CUDA {base.cuda}"
        yield report_dispute(f"the base image '{base.reference}' holds {stack}", site=site)
    row = find_release(torch.version) if torch is not None and not torch.provided and torch.version else None
    if torch is None or row is None or torch.token in list_tokens(row, site=site):
        return
    rocm = torch.token.startswith("rocm")
    stack = f"ROCm {parse_rocm(torch.token)}" if rocm else f"CUDA {parse_cuda(torch.token)}"
    if torch.token in list_tokens(row, site=site, sure=False):
        yield report_dispute(f"torch {torch.local} is built for {stack}", site=site)


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


def check_base_vendor(target: Target) -> Iterator[Finding]:
    """Report a base image for the GPUs of another vendor, or for another processor, before it is downloaded."""
    site, reference = target.site, target.base.reference
    own = target.context.base
    at = Location(file=target.recipe.file, line=target.recipe.lines.get("container.base"), key="container.base")
    at = Location(key="--base") if own else at
    vendor = find_image_vendor(target.base)
    instead = "leave --base out" if own else "remove this line"
    instead += f": one of the base images of '{site.name}' is chosen then"
    if vendor and site.gpu is not None and vendor != site.vendor:
        message = f"the base image '{reference}' is built for {VENDOR_NAMES[vendor]} GPUs, the site '{site.name}' has "
        message += f"{VENDOR_NAMES[site.vendor]} GPUs"
        yield Finding(code="base-vendor", message=message, at=at, fix=instead)
    named = _ARCH.search(reference) if reference.startswith("docker://") else None
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(named[1], named[1]) if named else site.node.arch
    if arch != site.node.arch:
        message = f"the base image '{reference}' is built for {arch}, the nodes of '{site.name}' are {site.node.arch}"
        yield Finding(code="base-vendor", message=message, at=at, fix=instead)


MPI4PY = "mpi4py==4.1.1"  # releases from 4.1.0 on have wheels for Linux (PyPI, checked 2026-11-23)
OWN_MPI = re.compile(r"(lib)?(mpich|openmpi|impi|intel-oneapi-mpi)([-_0-9].*)?")


def check_mpi(target: Target) -> Iterator[Finding]:
    """Report mpi4py whose ranks find no MPI, or one that does not know the launcher."""
    recipe, site = target.recipe, target.site
    yield from _check_mpi_workload(target)
    if not recipe.uses_mpi:
        return
    at = next(
        (Location(file=recipe.file, line=spec.line) for spec in recipe.conda if spec.name == "mpi4py"), None
    ) or next(locate(recipe, line) for line in recipe.pip if line.name == "mpi4py")
    yield from _check_mpi_launcher(site, at=at)
    if target.base.mpi not in (None, "none") or site.launch.mpi == "host":
        from builder.resolve.checks.mpi_build import check_second_mpi, check_swapped_mpi

        yield from check_second_mpi(target) if target.base.mpi not in (None, "none") else check_swapped_mpi(target)
    known = site.launch.mpi != "unknown" and site.launch.launcher in ("srun", "mpiexec")
    other = next((image for image in site.base_images if image.mpi not in (None, "none")), None)
    other = None if other is not None and _would_dispute(target) else other
    fix = f"choose the base image {other.reference}" if other is not None else ""
    if target.traits.makes_folder and other is not None:
        fix = f"build with --backend {next(name for name in site.build.backends if not TRAITS[name].makes_folder)}"
    if any(re.split(r"[\s=<>!~]", text)[0] == "mpi4py" for text in target.environment.conda):
        message = f"conda's mpi4py brings an MPI of its own, which is not made for the network of '{site.name}'"
        fix = fix or "no action needed if the ranks exchange little; the workload mpi tries it"
        yield from [Finding(code="mpi-own", message=message, at=at, fix=fix, level="warning")] if known else []
        return
    if find_source_release(recipe, "mpi4py"):
        from builder.resolve.checks.mpi_build import check_mpi_build  # few recipes need it

        yield from check_mpi_build(target, at=at)
        return
    added = (*recipe.list_names(), *recipe.container.system)
    base = target.base
    if site.brings_mpi or base.mpi not in (None, "none") or any(OWN_MPI.fullmatch(name) for name in added):
        return
    level: Level = "error" if base.mpi == "none" else "warning"
    has = "has none" if base.mpi == "none" else "is not known to have one"
    message = f"mpi4py loads an MPI when it starts, and the base image '{base.reference}' {has}"
    fix = fix or "add mpich to the pip packages"
    yield Finding(code="mpi-missing", message=message, at=at, fix=fix, level=level)


def _would_dispute(target: Target) -> bool:
    """Whether a base image without torch would get a wheel that the driver serves by one of two sources only."""
    torch = target.environment.torch
    if torch is None or not torch.provided:
        return False
    found = select_releases(find_requested_family(target.recipe), packages=target.recipe.pip)
    return not any(list_tokens(row, site=target.site) for row in found)


def _check_mpi_workload(target: Target) -> Iterator[Finding]:
    """Report the workload mpi of a recipe without mpi4py."""
    recipe = target.recipe
    if recipe.uses_mpi or "mpi" not in (recipe.container.smoke.workloads or ()) or "mpi4py" in target.base.provides:
        return
    at = Location(file=recipe.file, line=recipe.lines.get("container.smoke"), key="container.smoke.workloads")
    fix = f"add {MPI4PY} to the pip packages, or remove mpi from the workloads"
    yield Finding(code="mpi-missing", message="the workload mpi needs mpi4py, which no line names", at=at, fix=fix)


def _check_mpi_launcher(site: Site, *, at: Location) -> Iterator[Finding]:
    """Report a launcher whose ranks are no MPI ranks, or are not known to be."""
    launch, has_slurm = site.launch, site.scheduler.kind == "slurm"
    if launch.launcher not in ("srun", "mpiexec"):
        ranks = f"the ranks of '{site.name}'" if has_slurm else f"on '{site.name}' the ranks of `--gpus N`"
        message = f"{ranks} are started by torchrun: to MPI each of them is alone"
        fix = (
            f"start them with `recipe run {site.name} IMAGE --submit --launcher srun -- COMMAND`"
            if has_slurm
            else f"start them with `recipe run {site.name} IMAGE -- mpiexec -n 2 COMMAND`, or choose a site with Slurm"
        )
    elif launch.mpi == "unknown":
        message = f"it is not known whether the ranks of '{site.name}' find each other by MPI"
        fix = "run the workload mpi on two nodes first"
    else:
        return
    yield Finding(code="mpi-launcher", message=message, at=at, fix=fix, level="warning")


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


def check_local_requirements(target: Target) -> Iterator[Finding]:
    """Report a requirement that is a local folder: it does not exist during the build."""
    for line in target.recipe.pip:
        if is_local(line) and (fix := _suggest_copy(target)):
            message = f"'{line.text}' is a folder on this machine, which the build of an image cannot see"
            yield Finding(code="pip-local", message=message, at=locate(target.recipe, line), fix=fix)
    options = target.recipe.pip_options
    for place in filter(None, (options.index_url, *options.extra_index_urls, *options.find_links)):
        if "://" not in place or place.startswith("file:"):
            message = f"'{place}' is a folder on this machine, which the build of an image cannot see"
            fix = "remove it, and set PIP_FIND_LINKS or PIP_INDEX_URL when building: builds can see those folders"
            yield Finding(code="pip-local", message=message, at=Location(file=target.recipe.file), fix=fix)


def _suggest_copy(target: Target) -> str:
    """Suggest how the image gets a folder; "" where the backend copies and installs it."""
    build = target.site.build
    unable = ("layers",) if build.fakeroot == "no" else ()  # its containers need root
    able = [name for name in build.backends if not TRAITS[name].one_call and name not in unable]
    if target.backend in able:
        return ""
    if able:
        return f"build with --backend {able[0]}, which copies and installs it"
    what = "copies no folders" if target.backend != "layers" else f"cannot install it on '{target.site.name}'"
    return f"give the address of a wheel or its git repository: {target.backend} {what}"


def check_network_plugin(target: Target) -> Iterator[Finding]:
    """Report an image that is known to have no plug-in for the site's network."""
    if target.environment.torch is None or "nodes" not in target.site.scheduler.jobs or not target.lacks_plugin:
        return
    others = [name for name in target.site.build.backends if name != target.backend and not TRAITS[name].makes_folder]
    folder = target.traits.makes_folder
    image = f"'{target.base.reference}'" if not folder else f"an environment of {target.backend}"
    message = f"{image} has no plug-in for the network of '{target.site.name}': between nodes torch uses TCP"
    other = f"--backend {others[0]}" if folder and others else "another base image"
    fix = f"for jobs of several nodes use {other}; on one node no action is needed"
    yield Finding(code="network-plugin", message=message, fix=fix, level="warning")
