"""Checks of Triton without torch: each vendor's has a name of its own, on PyTorch's index alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from builder.model.finding import Finding, Location
from builder.model.site import Site
from builder.model.target import Target
from builder.parse.gpu_tables import TorchRelease, load_torch_table
from builder.resolve.indexes import TORCH_HOST
from builder.resolve.requested import TRITON
from builder.resolve.tokens import list_tokens


def check_triton_index(target: Target) -> Iterator[Finding]:
    """Report a vendor's Triton where no address of the recipe has it: the default index has none, or old copies."""
    recipe, site = target.recipe, target.site
    options = recipe.pip_options
    urls = (*options.extra_index_urls, *options.find_links)
    if options.index_url or any(TORCH_HOST in url or "://" not in url for url in urls):
        return
    own = {row.package for row in load_torch_table().triton if row.vendor == site.vendor} - {"triton"}
    for line in recipe.pip:
        if line.name in own and not line.url and not line.hashes and line.text in target.environment.pip_lines:
            fix = suggest_triton(line.specifier, site=site, python=target.environment.python)
            message = f"'{line.text}' is on PyTorch's index, and no line names that one"
            at = Location(file=line.file or recipe.file, line=line.line)
            yield Finding(code="default-wheel", message=message, at=at, fix=fix or "add torch, which brings it")


def suggest_triton(specifier: str, *, site: Site, python: str | None) -> str:
    """Suggest the site's Triton of the same release, else of the newest, with the index that has it; "" for none."""
    served = [
        (row, list_tokens(row, site=site)[0])
        for row in load_torch_table().releases
        if site.vendor in ("amd", "intel") and (python is None or python in row.pythons) and list_tokens(row, site=site)
    ]
    found = [(row, token) for row, token in served if _allows(specifier, row)] or served
    known = [(text, token) for row, token in found if (text := _name(row, site=site))]
    if not known:
        return ""
    text, token = known[-1]
    index = load_torch_table().index.format(token=token)
    lines = f"write {text} and, in a line before it, --extra-index-url {index}"
    return f"{lines}; or add torch, which brings the Triton of '{site.name}'"


def is_triton(name: str) -> bool:
    """Whether a package is Triton, under the name of any vendor."""
    return name in TRITON


def _allows(specifier: str, row: TorchRelease) -> bool:
    try:
        return bool(re.fullmatch(r"[\d.]+", row.triton)) and SpecifierSet(specifier).contains(row.triton)
    except InvalidSpecifier:
        return False


def _name(row: TorchRelease, *, site: Site) -> str:
    """The requirement of a release's build: as it was read, else the vendor's name with the same release."""
    read = row.triton_rocm if site.vendor == "amd" else row.triton_xpu
    torch = Version(row.torch)
    names = [
        one.package
        for one in load_torch_table().triton
        if one.vendor == site.vendor
        and (not one.torch_min or Version(one.torch_min) <= torch)
        and (not one.torch_max or torch <= Version(one.torch_max))
    ]
    same = re.fullmatch(r"[\d.]+", row.triton)
    return read or (f"{names[0]}=={row.triton}" if names and same else "")
