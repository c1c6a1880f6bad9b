"""The site of this machine with the GPU that the machine has."""

from __future__ import annotations

from dataclasses import replace

from builder.model.finding import ConfigError
from builder.model.recipe import Recipe
from builder.model.site import GPU_FLAGS, THIS_MACHINE, Gpu, Site
from builder.parse.gpu_tables import load_torch_table
from builder.resolve.driver import apply_driver
from builder.resolve.tokens import list_tokens


def apply_machine(site: Site, gpu: Gpu | None, *, recipe: Recipe | None = None) -> Site:
    """Return the site with the GPU of this machine, if it is the site of this machine and the recipe takes such a GPU.

    A GPU that no torch of the tables can use, by its driver or its kernels, is left out: the processor of a laptop
    holds one, too.
    """
    if gpu is None or site.name != THIS_MACHINE or site.gpu is not None or (recipe and not recipe.wants(gpu.vendor)):
        return site
    runtime = replace(site.runtime, gpu_flag=GPU_FLAGS[gpu.vendor])
    try:
        own = apply_driver(replace(site, gpu=gpu, runtime=runtime), "")
    except ConfigError:  # the driver is in no table
        return site
    return own if gpu.driver and _is_served(own, target=gpu.target) else site


def _is_served(site: Site, *, target: str) -> bool:
    """Whether some release of torch has a build for the driver, and on AMD's GPUs code for the target in it."""
    table = load_torch_table()
    known = {row.torch for row in table.gfx if target in (*row.gfx.split(), *row.gfx_from_rocm6.split())}
    return any(
        list_tokens(row, site=site)
        for row in table.releases
        if site.vendor != "amd" or ".".join(row.torch.split(".")[:2]) in known
    )
