"""Readings of `recipe doctor`, and those of the folders that builds use: space, files and quota."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from builder.execute.cache_maintenance import find_backend_cache
from builder.execute.preflight import IN_CONTAINER, KEPT, MOVE_CACHE, NEW_CACHE, TEMPORARY, find_shortage
from builder.layers.private_folders import INSTEAD, find_cache_folder
from builder.model.finding import ToolError
from builder.model.text import escape_line, sanitize
from builder.sif.errors import LayeringError
from builder.system.process import BackgroundCommand, find_program
from builder.system.scratch import check_parent

State = Literal["ok", "bad", "none"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One thing that was looked at; `state` is `bad` only where the named site's default backend needs it."""

    name: str
    state: State
    says: str
    fix: str = ""
    group: str = "machine"


GROUP = "places"
SECONDS = 1.0  # for quota, which asks a server
SMALLEST_GIB = 1.0  # unpacked, of an image that a build would make
CACHED = ("layers", "apptainer")  # these backends check the cache before they begin
LOW_GIB = 10.0  # an image with torch needs some 30 while it is built, its layers less


def examine_places(*, environment: Mapping[str, str], backend: str) -> list[Reading]:
    """`backend` is the site's default one, "" without a site: a cache that it refuses is a fault."""
    quota = _start_quota_commands(environment)
    temporary = Path(environment.get("RECIPE_TMPDIR") or environment.get("TMPDIR") or "/tmp")
    name = "RECIPE_TMPDIR" if environment.get("RECIPE_TMPDIR") else "TMPDIR"
    readings = [_examine_place("temporary folder", temporary, needed=True, there=True, fix=f"set {name} or --tmpdir")]
    least = IN_CONTAINER if backend in CACHED else TEMPORARY
    if readings[0].state == "ok":
        try:
            check_parent(temporary)
        except ToolError as error:
            refusal = error.findings[0]
            readings = [replace(readings[0], state="bad", says=refusal.message, fix=refusal.fix)]
    if shortage := find_shortage("the temporary folder", temporary, least, fix=f"set {name} or --tmpdir"):
        readings = [replace(readings[0], state="bad", says=shortage.message, fix=shortage.fix)]
    readings += _examine_cache(environment, backend=backend)
    for name in ("APPTAINER_CACHEDIR", "SINGULARITY_CACHEDIR"):
        if said := environment.get(name):
            fix = f"set {name} to a folder of your own"
            readings.append(_examine_place(name, Path(said), needed=False, there=False, fix=fix))
    for name, question in quota:
        answer = question.wait(timeout=SECONDS)
        lines = [escape_line(line).strip() for line in answer.text.splitlines() if line.strip()]
        if answer.exit_code == 0 and lines:
            readings.append(Reading(name=name, state="ok", says="; ".join(lines)[:300], group=GROUP))
    return readings


def _examine_cache(environment: Mapping[str, str], *, backend: str) -> list[Reading]:
    """What a build says of its cache, and whether the smallest image has room there."""
    bad: State = "bad" if backend in CACHED else "none"
    try:
        # Without a site as for layers: most sites have them.
        find_backend_cache(backend if backend in CACHED else "layers", environment)
        own = find_cache_folder(environment).absolute()
    except ToolError as error:
        return [
            Reading(name="cache", state=bad, says=finding.message, fix=finding.fix, group=GROUP)
            for finding in error.findings
        ]
    except LayeringError as error:  # of the backend apptainer, which works without a cache
        return [Reading(name="cache", state="none", says=str(error), fix=error.fix, group=GROUP)]
    found = _examine_place("cache", own, needed=backend == "layers", there=False, fix=INSTEAD)
    needed = SMALLEST_GIB * (KEPT if (own / "uv").is_dir() else NEW_CACHE)
    if found.state == "none" and backend == "layers" and (shortage := find_shortage("the cache", own, needed, fix="")):
        return [replace(found, state="bad", says=shortage.message, fix=MOVE_CACHE)]
    return [found]


def _examine_place(name: str, folder: Path, *, needed: bool, there: bool, fix: str) -> Reading:
    """A folder that is there, or can be made; its free GiB, and the files that may still be made there."""
    bad: State = "bad" if needed else "none"
    try:
        found = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        free, files = shutil.disk_usage(found).free / 2**30, os.statvfs(found)
    except OSError as error:
        says = f"{sanitize(str(folder), limit=200)} cannot be used: {(error.strerror or str(error)).lower()}"
        return Reading(name=name, state=bad, says=says, fix=fix, group=GROUP)
    if (there and not folder.is_dir()) or not os.access(found, os.W_OK | os.X_OK):
        says = f"{folder} cannot be used" if there and not folder.is_dir() else f"you may not write to {found}"
        return Reading(name=name, state=bad, says=says, fix=fix, group=GROUP)
    says = f"{folder}, {free:.0f} GiB free"
    if files.f_files:
        says += f", {files.f_favail} files"
    low = free < LOW_GIB or bool(files.f_files and files.f_favail < 100_000)
    return Reading(
        name=name, state="none" if low else "ok", says=says, fix=f"little room: {fix}" if low else "", group=GROUP
    )


def _start_quota_commands(environment: Mapping[str, str]) -> list[tuple[str, BackgroundCommand]]:
    """What `quota` and `lfs quota` are asked, where they are."""
    home, asked = environment.get("HOME", ""), []
    if program := find_program("quota", env=environment):
        asked.append(("quota", BackgroundCommand([str(program), "-s"], env=environment)))
    if (program := find_program("lfs", env=environment)) and home:
        words = [str(program), "quota", "-q", "-h", "-u", str(os.getuid()), home]
        asked.append(("lfs quota", BackgroundCommand(words, env=environment)))
    return asked
