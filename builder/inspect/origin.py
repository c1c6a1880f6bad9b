"""What an image was made from: the digest of its plan, and the identity of the files that the plan only names."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from builder.inspect.sbom import PLAN_PROPERTY
from builder.model.finding import ConfigError
from builder.model.plan import Plan, Step, from_json, to_json
from builder.sif import bounded
from builder.sif.digest import hash_file
from builder.system.files import write_atomic
from builder.system.layout import OLD_FILE, PLAN_FILE, README_FILE, SOURCES_FILE
from builder.system.trust import read_below

LIMIT = 64 * 1024 * 1024  # bytes of a bill


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What an image was made from; "" where that is not known."""

    plan: str = ""
    sources: str = ""


def compute_plan_digest(plan: Plan) -> str:
    """SHA-256 of a plan without its findings, which name the recipe's folder, and its README."""
    files = tuple(file for file in plan.files if file.path != README_FILE)
    return hashlib.sha256(to_json(replace(plan, files=files, findings=())).encode()).hexdigest()


def compute_sources_identity(plan: Plan, *, recipe_folder: Path, folder: Path) -> str:
    """The identity of the base image and the files of this machine that go into an image; "" where there are none.

    A plan `folder` among them is left out.
    """
    paths = {"base": Path(plan.base)} if Path(plan.base).is_absolute() else {}
    paths |= {copy.path: recipe_folder / copy.source for copy in plan.copies if not copy.bundled}
    skip = folder.resolve()
    named = {name: found for name, path in paths.items() if (found := compute_identity(path.resolve(), skip=skip))}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest() if named else ""


def compute_identity(path: Path, *, skip: Path | None = None) -> str:
    """What changes with the content of a file, or of anything in a folder; "" where there is nothing.

    The change time is the kernel's: unlike the other times no program sets it back. No clock is compared.
    """
    try:
        rows = list(_list_rows(path, skip=skip))
    except OSError:
        return ""
    return hashlib.sha256(json.dumps(rows).encode("utf-8", "surrogateescape")).hexdigest()


def _list_rows(top: Path, *, skip: Path | None) -> Iterator[tuple[str | int, ...]]:
    yield _make_row("", top.stat())
    for root, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if skip is None or Path(root, name) != skip)
        for name in sorted([*folders, *files]):
            path = Path(root, name)
            yield _make_row(os.fsencode(path.relative_to(top)).hex(), path.lstat())


def _make_row(name: str, found: os.stat_result) -> tuple[str | int, ...]:
    if stat.S_ISDIR(found.st_mode):
        return name, found.st_mode  # what is in it has rows of its own
    return name, found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def is_image_of(report: Mapping[str, Any], image: Path) -> bool:
    """Whether a report is of this image: by what the system notes of a file, else (a copy put back) by its bytes.

    Raises OSError, and KeyError for a report that does not have what is compared.
    """
    found = compute_identity(image)
    if found and found == report["identity"]:
        return True
    same_size = image.is_file() and image.stat().st_size == report["image_bytes"]
    return same_size and hash_file(image) == report["image_sha256"]


def note_sources(folder: Path, sources: str) -> None:
    """Note in the plan folder which files of this machine its copies are of; raises OSError."""
    if sources:
        write_atomic(folder / SOURCES_FILE, sources + "\n")
    else:
        (folder / SOURCES_FILE).unlink(missing_ok=True)


def read_origin(folder: Path, plan: Plan) -> Origin:
    """What is made in a plan folder that holds this plan."""
    return Origin(plan=compute_plan_digest(plan), sources=_read_note(folder, SOURCES_FILE).strip())


def find_origin(plan: Plan, steps: Sequence[Step], *, folder: Path) -> Origin:
    """What is made by these steps; not known where one that is left out has left a product of another plan."""
    runs = {step.name for step in steps}
    skipped = [step for step in plan.steps if step.name not in runs and step.kind != "smoke"]
    if any(_is_old(folder, name) for step in skipped for name in step.produces):
        return Origin()
    return read_origin(folder, plan)


def read_plan_digest(folder: Path) -> str:
    """The digest of the plan that a folder holds, "" where it holds none that can be read."""
    with suppress(ConfigError):
        return compute_plan_digest(from_json(_read_note(folder, PLAN_FILE)))
    return ""


def note_old(folder: Path, new: Plan, *, sources: str) -> None:
    """Before another plan takes the folder: note which products in it are not of the new one. Raises OSError."""
    try:
        old = from_json(_read_note(folder, PLAN_FILE))
        if read_origin(folder, old) == Origin(plan=compute_plan_digest(new), sources=sources):
            return
        names = {name for plan in (old, new) for step in plan.steps if step.kind != "smoke" for name in step.produces}
    except ConfigError:
        names = {name for step in new.steps if step.kind != "smoke" for name in step.produces}
    found = {name: seen for name in sorted(names) if (seen := compute_identity(folder / name))}
    write_atomic(folder / OLD_FILE, json.dumps(found, indent=1) + "\n")


def _is_old(folder: Path, name: str) -> bool:
    """Whether a product was made by a plan that the folder held before."""
    with suppress(ValueError, AttributeError):
        noted = bounded.parse_json((_read_note(folder, OLD_FILE) or "{}").encode()).get(name)
        return noted is not None and noted == compute_identity(folder / name)
    return True  # a note that cannot be read: nothing is known


def read_image_plan(image: Path) -> str:
    """The digest of the plan that a SIF says it was made from, "" where it says none."""
    from builder.inspect.sif_objects import SBOM  # few builds ask
    from builder.sif.sif import SifError, read_object, read_sif

    with suppress(OSError, SifError, ValueError, KeyError, TypeError, RecursionError):
        for item in read_sif(image).objects:
            if item.kind == SBOM and item.size <= LIMIT:
                component = json.loads(read_object(image, item))["metadata"]["component"]
                return next((str(one["value"]) for one in component["properties"] if one["name"] == PLAN_PROPERTY), "")
    return ""


def _read_note(folder: Path, name: str) -> str:
    try:
        return read_below(folder, name, limit=bounded.LIMIT).decode()
    except (OSError, ValueError):
        return ""
