"""A site's GPU as the audit of compiled packages needs it."""

from __future__ import annotations

from dataclasses import replace

from packaging.version import Version

from builder.audit.gpu_verdict import Machine
from builder.model.site import Gpu, Site
from builder.parse.gpu_tables import load_driver_table
from builder.resolve.driver import apply_driver


def make_machine(site: Site) -> Machine:
    """What the audit has to know of a site; the driver of CUDA serves majors by minor-version compatibility."""
    glibc = next((image.glibc for image in site.base_images[:1] if image.glibc), "")
    plain = Machine(vendor=site.vendor, arch=site.node.arch, glibc=glibc)
    gpu = apply_driver(site, "").gpu
    if gpu is None:
        return plain
    return replace(plain, targets=(gpu.target,), majors=_list_majors(gpu), cuda=gpu.cuda_native or "")


def _list_majors(gpu: Gpu) -> tuple[int, ...]:
    """Majors of CUDA or ROCm that the driver serves, none where that is not known."""
    if gpu.vendor == "amd":
        return tuple(sorted({Version(version).major for version in gpu.rocm}))
    if gpu.vendor == "nvidia" and gpu.driver:
        driver = Version(gpu.driver)
        return tuple(sorted(row.major for row in load_driver_table().cuda_majors if Version(row.min_driver) <= driver))
    return ()
