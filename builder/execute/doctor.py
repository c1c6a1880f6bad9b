"""What this machine has of what a build or a run needs; it looks, and changes nothing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from builder.execute.asking import which
from builder.execute.preflight import HOW_TO_GET, ask_versions
from builder.layering.cache import cache_folder
from builder.model.site import Site

PROGRAMS = (
    "apptainer", "singularity", "cotainr", "conda-containerize", "docker", "mksquashfs", "unsquashfs", "uv", "sbatch",
    "srun", "mpiexec",
)  # fmt: skip
NEEDS = {
    "apptainer": ("apptainer|singularity",),
    "cotainr": ("cotainr", "singularity|apptainer"),
    "docker": ("docker", "apptainer|singularity"),
    "layers": ("mksquashfs", "unsquashfs", "apptainer|singularity"),
    "tykky": ("conda-containerize",),
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One thing that was looked at; `state` is `bad` only where the named site needs it."""

    name: str
    state: Literal["ok", "bad", "none"]
    says: str
    fix: str = ""


def examine(site: Site | None, *, environment: Mapping[str, str], root: Path = Path("/")) -> tuple[Reading, ...]:
    """Look at programs, kernel features, space and GPU driver; `root` is where the system's files lie."""
    readings = [*programs(site, environment=environment), *kernel(root, environment=environment)]
    readings += [space(environment), cache(environment), *drivers(site, root=root)]
    return tuple(readings)


def programs(site: Site | None, *, environment: Mapping[str, str]) -> list[Reading]:
    """Which engines are here, in which version; what the site's default backend needs must be."""
    found = {name: path for name in PROGRAMS if (path := which(name, env=environment)) is not None}
    versions = ask_versions(found, environment=environment)
    readings = [Reading(name=name, state="ok", says=versions.get(name, str(path))) for name, path in found.items()]
    for need in NEEDS[site.build.backends[0]] if site else ():
        names = need.split("|")
        if not any(name in found for name in names):
            says = f"needed by the backend {site.build.backends[0]}" if site else ""
            readings.append(Reading(name=" or ".join(names), state="bad", says=says, fix=HOW_TO_GET[names[0]]))
    return readings


def kernel(root: Path, *, environment: Mapping[str, str]) -> list[Reading]:
    """User namespaces, sub-ids and FUSE: what unprivileged builds and fast starts rest on (Apptainer admin guide)."""
    limit = _text(root / "proc/sys/user/max_user_namespaces")
    spaces = limit.isdecimal() and int(limit) > 0
    user = environment.get("USER", "")
    subuid = any(line.startswith(f"{user}:") for line in _text(root / "etc/subuid").splitlines()) if user else False
    fuse = root / "dev/fuse"
    usable = fuse.exists() and os.access(fuse, os.R_OK | os.W_OK)
    return [
        Reading(
            name="user namespaces",
            state="ok" if spaces else "none",
            says="allowed" if spaces else "not allowed",
            fix="" if spaces else "definition files need them, or a setuid installation: ask the site",
        ),
        Reading(
            name="sub-ids",
            state="ok" if subuid else "none",
            says=f"{user} has a range in /etc/subuid" if subuid else "no range in /etc/subuid",
            fix="" if subuid else "packages that make users cannot be installed in %post without one",
        ),
        Reading(
            name="/dev/fuse",
            state="ok" if usable else "none",
            says="usable" if usable else "not usable",
            fix="" if usable else "without it every start unpacks the image: ask the administrator",
        ),
    ]


def space(environment: Mapping[str, str]) -> Reading:
    """Free space of the temporary folder, in GiB; an image with torch needs some 30 while it is built."""
    folder = Path(environment.get("RECIPE_TMPDIR") or environment.get("TMPDIR") or "/tmp")
    try:
        free = shutil.disk_usage(folder).free / 2**30
    except OSError:
        return Reading(
            name="temporary folder", state="bad", says=f"{folder} cannot be used", fix="set TMPDIR or --tmpdir"
        )
    return Reading(name="temporary folder", state="ok", says=f"{folder}, {free:.0f} GiB free")


def cache(environment: Mapping[str, str]) -> Reading:
    """Free space of the cache, in GiB, where the backend `layers` works; what is there can be used again."""
    folder = cache_folder(environment).absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        says, fix = f"you may not write to {there}", "set RECIPE_CACHE_DIR to a folder of your own"
        return Reading(name="cache", state="bad", says=says, fix=fix)
    return Reading(name="cache", state="ok", says=f"{folder}, {shutil.disk_usage(there).free / 2**30:.0f} GiB free")


def drivers(site: Site | None, *, root: Path) -> list[Reading]:
    """The GPU drivers of this node, held against the site's; only a node with the site's GPUs can tell."""
    found = {vendor: version for vendor, version in _drivers(root).items() if version}
    readings = [Reading(name=f"{vendor} driver", state="ok", says=version) for vendor, version in found.items()]
    if site is None or site.gpu is None:
        return readings
    here = found.get(site.gpu.vendor)
    if here is None:
        says = f"none here; the site's is {site.gpu.driver or 'unknown'}"
        return [*readings, Reading(name=f"{site.gpu.vendor} driver", state="none", says=says, fix="look on a GPU node")]
    if here != site.gpu.driver:
        says = f"{here} here, {site.gpu.driver or 'unknown'} in the site's file"
        fix = f"check and build with --driver {here}, or write it into a site of your own"
        return [Reading(name=f"{site.gpu.vendor} driver", state="bad", says=says, fix=fix)]
    return readings


def _drivers(root: Path) -> dict[str, str]:
    nvidia = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", _text(root / "proc/driver/nvidia/version"))
    intel = _text(root / "sys/module/xe/version") or _text(root / "sys/module/i915/version")
    return {
        "amd": _text(root / "sys/module/amdgpu/version"),
        "nvidia": nvidia.group(1) if nvidia else "",
        "intel": intel,
    }


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
