"""What a site requires beyond its types: sources and dates, valid values, consistent sections.

Faults have the path of their key; site.py adds the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args

from packaging.version import Version

from builder.model.backend import TRAITS
from builder.model.finding import Finding, Location, suggest_name
from builder.model.site import Job, Purpose, Site, Vendor
from builder.model.text import sanitize
from builder.parse.site_options import PORT, check_options, check_settings, check_texts
from builder.parse.yaml import Table

OPTION = re.compile(r"[a-z][a-z-]*")
DATE = re.compile(r"20\d\d-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?")
RELEASE = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}")
GPU_OPTION = re.compile(r"[a-z][a-z-]*=(?:[a-z0-9_]+:)*\{gpus\}|")
SIZE = re.compile(r"[1-9][0-9]*[KMG]iB")
NODES = re.compile(r"[1-9][0-9]{0,5}")
FIGURE = re.compile(r"[0-9]{1,5}(?:\.[0-9]+)?")
PATH = re.compile(r"(?:/[A-Za-z0-9_.+-]+)+")
# The module of AMD has a build after a dash: 6.3.60300-2084815.
DRIVERS: dict[Vendor, re.Pattern[str]] = {
    "nvidia": re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,9}"),
    "amd": re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,9}(?:-[A-Za-z0-9.]+)?"),
}
CPU_MASK = re.compile(r"0x[0-9a-f]{1,64}")
NUMBERS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,9}")


def check_site(site: Site, *, tree: Table, stem: str) -> Iterator[Finding]:
    """Yield every fault of a decoded site; `stem` is the name of its file without the suffix."""
    yield from _check_sources(site)
    yield from check_texts(tree)
    yield from _check_shape(site, stem=stem)
    yield from _check_node(site)
    yield from _build_faults(site)
    yield from _check_gpu(site)
    yield from _check_jobs(site)
    yield from _check_launch(site)
    yield from _check_versions(site)
    yield from check_options(site)
    yield from check_settings(site)


def _make_fault(code: str, message: str, key: str, fix: str) -> Finding:
    return Finding(code=code, message=message, at=Location(key=key), fix=fix)


def _check_sources(site: Site) -> Iterator[Finding]:
    """Every section has at least one source, every source is described and dated."""
    dates = [(f"sources.{name}.checked", source.checked) for name, source in site.sources.items()]
    if site.gpu and site.gpu.driver_checked is not None:
        dates.append(("gpu.driver_checked", site.gpu.driver_checked))
    elif site.gpu and site.gpu.driver is not None:
        message = "the driver is given, but not when it was seen"
        yield _make_fault("site-date", message, "gpu.driver", "add 'driver_checked:' to 'gpu'")
    if site.gpu and site.gpu.other_driver is not None:
        dates.append(("gpu.other_driver_checked", site.gpu.other_driver_checked or ""))
    for key, date in dates:
        if not DATE.fullmatch(date):
            yield _make_fault(
                "site-date", f"'{date}' is no date", key, "write YYYY-MM-DD, or YYYY-MM where the day is not known"
            )
    for key, section in _list_sections(site):
        if not section.source:
            yield _make_fault("site-source", f"'{key}' names no source", f"{key}.source", "name a key of 'sources'")
        for word in section.source:
            if word not in site.sources:
                fix = suggest_name(word, known=site.sources, noun="known sources")
                yield _make_fault("site-source", f"'{key}' names the unknown source '{word}'", f"{key}.source", fix)


def _list_sections(site: Site) -> Iterator[tuple[str, Any]]:
    for field in fields(site):
        value = getattr(site, field.name)
        if is_dataclass(value) and hasattr(value, "source"):
            yield field.name, value
    yield from ((f"base_images[{index}]", image) for index, image in enumerate(site.base_images))


def _check_shape(site: Site, *, stem: str) -> Iterator[Finding]:
    if site.name != stem:
        message = f"the site is named '{site.name}' in the file '{stem}'"
        yield _make_fault("site-name", message, "name", f"write 'name: {stem}', or rename the file")
    if not site.base_images:
        yield _make_fault("site-base", "the site has no base image", "base_images", "add at least one")
    if site.network.internet == "proxy" and not site.network.proxy:
        message = "compute nodes reach out by a proxy, but no proxy is given"
        yield _make_fault("site-proxy", message, "network.internet", "add its variables below 'network.proxy'")


def _check_node(site: Site) -> Iterator[Finding]:
    node = site.node
    for name, count in (("cores", node.cores), ("usable_cores", node.usable_cores), ("memory_gib", node.memory_gib)):
        if count is not None and count < 1:
            yield _make_fault("site-number", f"'{name}' is {count}", f"node.{name}", "give at least 1, or unknown")
    if node.cores is not None and node.usable_cores is not None and node.usable_cores > node.cores:
        message = f"{node.usable_cores} cores are usable of {node.cores}"
        yield _make_fault("site-cores", message, "node.usable_cores", "give no more than 'cores'")


def _build_faults(site: Site) -> Iterator[Finding]:
    build = site.build
    if not build.backends:
        fix = f"allowed: {', '.join(TRAITS)}"
        yield _make_fault("site-backend", "the site has no backend", "build.backends", fix)
    wrapper = next((name for name in build.backends if TRAITS[name].makes_folder), None)
    if wrapper is not None and not build.wrapper_path:
        message = f"{wrapper} is a backend, but the path inside its wrappers is not given"
        yield _make_fault("site-backend", message, "build.backends", "add 'wrapper_path:' to 'build'")
    for key, table in (("backend_modules", build.backend_modules), ("backend_versions", build.backend_versions)):
        for name in table:
            if name not in build.backends:
                fix = suggest_name(name, known=build.backends, noun="backends of the site")
                yield _make_fault("site-backend", f"'{name}' is no backend of the site", f"build.{key}.{name}", fix)


def _check_gpu(site: Site) -> Iterator[Finding]:
    gpu = site.gpu
    if gpu is None:
        return
    for key, count in (("gpu.devices", gpu.devices), ("gpu.scheduled", gpu.scheduled)):
        if count < 1:
            yield _make_fault("site-number", f"'{key}' is {count}", key, "give at least 1, or remove the section 'gpu'")
    for name, releases in (("rocm", gpu.rocm), ("rocm_disputed", gpu.rocm_disputed)):
        for index, release in enumerate(releases):
            key = f"gpu.{name}[{index}]"
            if not RELEASE.fullmatch(release):
                yield _make_fault("site-rocm", f"'{release}' is no ROCm release", key, "write it as X.Y")
            elif name == "rocm_disputed" and release in gpu.rocm:
                yield _make_fault("site-rocm", f"ROCm {release} is served and disputed", key, "give it once")
    if gpu.rocm_safe is not None and gpu.rocm_safe not in gpu.rocm:
        message = f"the safe ROCm {gpu.rocm_safe} is not one that the driver serves"
        yield _make_fault("site-rocm", message, "gpu.rocm_safe", f"served: {', '.join(gpu.rocm) or 'none'}")
    if gpu.vendor == "amd" and not gpu.rocm and gpu.driver is None:
        yield _make_fault("site-rocm", "no ROCm release is given that the driver serves", "gpu", "add 'rocm:' to 'gpu'")


def _check_versions(site: Site) -> Iterator[Finding]:
    """What is compared is a version: tables, base images and the driver are selected by it."""
    gpu = site.gpu
    for name in ("driver", "other_driver") if gpu is not None else ():
        driver = getattr(gpu, name)
        if gpu is not None and driver is not None and not is_driver(driver, vendor=gpu.vendor):
            fix = "write it as the node prints it, e.g. 535.86.10, or unknown"
            yield _make_fault("site-version", f"'{sanitize(driver)}' is not a driver version", f"gpu.{name}", fix)
    if gpu is not None and gpu.cuda_native is not None and not RELEASE.fullmatch(gpu.cuda_native):
        message = f"'{sanitize(gpu.cuda_native)}' is no CUDA release"
        yield _make_fault("site-version", message, "gpu.cuda_native", 'write it as "12.4"')
    for index, image in enumerate(site.base_images):
        key = f"base_images[{index}]"
        for name in ("python", "rocm", "cuda", "glibc"):
            text = getattr(image, name)
            if text is not None and not NUMBERS.fullmatch(text):
                message = f"'{sanitize(text)}' is no version of {name}"
                fix = "write numbers with dots between them, or unknown"
                yield _make_fault("site-version", message, f"{key}.{name}", fix)
        for name, text in image.provides.items():
            if text != "unknown" and not _is_version(text):
                message = f"'{sanitize(text)}' is no version of '{sanitize(name)}'"
                fix = "write it as the image's own package list does, or unknown"
                yield _make_fault("site-version", message, f"{key}.provides.{name}", fix)


def is_driver(text: str, *, vendor: Vendor) -> bool:
    """Whether a text can be the version of a vendor's driver; the numbering of Intel's is unknown."""
    return vendor not in DRIVERS or DRIVERS[vendor].fullmatch(text) is not None


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except ValueError:  # of packaging, and of int() for thousands of digits
        return False
    return True


def _check_jobs(site: Site) -> Iterator[Finding]:
    scheduler = site.scheduler
    if not GPU_OPTION.fullmatch(scheduler.gpu_option):
        message = f"'{scheduler.gpu_option}' does not ask for GPUs"
        fix = "write a long option with {gpus}, e.g. gpus-per-node={gpus}"
        yield _make_fault("site-gpu-option", message, "scheduler.gpu_option", fix)
    if scheduler.kind == "slurm" and not scheduler.jobs:
        message = "the site has Slurm, but no shape of a job"
        yield _make_fault("site-job", message, "scheduler", "add 'jobs:' with gpu, node, nodes or build")
    for purpose, job in scheduler.jobs.items():
        key = f"scheduler.jobs.{purpose}"
        if purpose not in get_args(Purpose):
            fix = suggest_name(purpose, known=get_args(Purpose), noun="allowed")
            yield _make_fault("site-job", f"there is no kind of job '{purpose}'", key, fix)
        yield from _check_job_shape(site, job=job, key=key)
        for option in job.options:
            if not OPTION.fullmatch(option):
                message = f"'{option}' is no long sbatch option"
                yield _make_fault("site-option", message, f"{key}.options.{option}", "write it without dashes")


def _check_job_shape(site: Site, *, job: Job, key: str) -> Iterator[Finding]:
    counts = {"nodes": job.nodes, "tasks_per_node": job.tasks_per_node, "minutes": job.minutes}
    for name, count in {**counts, "cpus_per_task": job.cpus_per_task}.items():
        if count is not None and count < 1:
            yield _make_fault("site-number", f"'{name}' is {count}", f"{key}.{name}", "give at least 1")
    if job.ranks < 0:
        fix = "give at least 1, or leave it out for one a device"
        yield _make_fault("site-number", f"'ranks' is {job.ranks}", f"{key}.ranks", fix)
    cores = job.tasks_per_node * (job.cpus_per_task or 0)
    if site.node.usable_cores is not None and cores > site.node.usable_cores:
        message = f"{job.tasks_per_node} tasks of {job.cpus_per_task} cores on a node of {site.node.usable_cores}"
        yield _make_fault("site-cores", message, key, "ask for no more cores than 'node.usable_cores'")
    for name, count, most in (
        ("gpus", job.gpus, site.gpu.scheduled if site.gpu else 0),
        ("devices", job.devices, site.gpu.devices if site.gpu else 0),
    ):
        if not 0 <= count <= most:
            message = f"a job of {count} {name} on a node that has {most}"
            fix = f"give 0 to {most}" if site.gpu else f"remove '{name}', or add a section 'gpu'"
            yield _make_fault("site-number", message, f"{key}.{name}", fix)
    masks = len(site.launch.cpu_masks)
    if job.bind and job.tasks_per_node != masks:
        message = f"there are {job.tasks_per_node} tasks to bind and {masks} CPU masks"
        yield _make_fault("site-mask", message, f"{key}.bind", "give each task a mask, or remove 'bind'")


def _check_launch(site: Site) -> Iterator[Finding]:
    port = PORT.fullmatch(site.launch.master_port)
    if port is not None and port[1] and not 1024 <= int(port[1]) <= (55536 if port[2] else 65535):
        most = "55536, to which up to 9999 is added" if port[2] else "65535"
        message = f"there is no free port {site.launch.master_port}"
        yield _make_fault("site-port", message, "launch.master_port", f"give 1024 to {most}")
    yield from _check_expectations(site)
    order = site.launch.gpu_order
    if order and site.gpu and sorted(order) != list(range(site.gpu.devices)):
        message = f"the order {', '.join(map(str, order))} is not one of {site.gpu.devices} devices"
        yield _make_fault("site-number", message, "launch.gpu_order", "name each device of a node once, from 0")
    masks = site.launch.cpu_masks
    if masks and site.gpu and len(masks) != site.gpu.devices:
        message = f"{len(masks)} CPU masks for {site.gpu.devices} devices"
        yield _make_fault("site-mask", message, "launch.cpu_masks", "give one mask for each local rank")
    seen = 0
    for index, mask in enumerate(masks):
        key = f"launch.cpu_masks[{index}]"
        if not CPU_MASK.fullmatch(mask) or not int(mask, 16):
            yield _make_fault("site-mask", f"'{mask}' is no CPU mask", key, "write it as 0x00fe")
            continue
        if seen & int(mask, 16):
            message = f"the mask {mask} shares cores with another"
            yield _make_fault("site-mask", message, key, "give each rank its own cores")
        if site.node.cores is not None and int(mask, 16).bit_length() > site.node.cores:
            message = f"the mask {mask} names cores beyond the {site.node.cores} of a node"
            yield _make_fault("site-mask", message, key, "count cores from 0")
        seen |= int(mask, 16)


def _check_expectations(site: Site) -> Iterator[Finding]:
    """What the smoke suite compares with the site: numbers are numbers, paths are paths."""
    launch = site.launch
    for nodes, sizes in launch.bandwidth.items():
        key = f"launch.bandwidth.{nodes}"
        if not NODES.fullmatch(nodes):
            yield _make_fault("site-number", f"'{nodes}' is no number of nodes", key, 'write it as "2": {128MiB: "85"}')
        for size, figure in sizes.items():
            if not SIZE.fullmatch(size) or not FIGURE.fullmatch(figure) or not float(figure):
                message = f"'{size}: {figure}' is no size with a bandwidth"
                yield _make_fault("site-number", message, f"{key}.{size}", 'write it as 128MiB: "85", in GB/s')
    if not 0 <= launch.bandwidth_tolerance < 100:
        message = f"'bandwidth_tolerance' is {launch.bandwidth_tolerance}"
        yield _make_fault("site-number", message, "launch.bandwidth_tolerance", "give 0 to 99 percent")
    for index, path in enumerate(launch.cache_not_under):
        if not PATH.fullmatch(path):
            key = f"launch.cache_not_under[{index}]"
            yield _make_fault("site-unsafe", f"'{sanitize(path)}' is no absolute path", key, "write it as /scratch")
