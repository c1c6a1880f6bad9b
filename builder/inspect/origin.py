"""What an image was made from: the digest of its plan, the identity of its files, and the report that is kept with it.

A build that is stopped or fails leaves the earlier image, and report.json says how that build ended. What is known of
the image is then in a file of its own, until a build that passes removes it.
"""

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

from builder.inspect.attestations import PLAN_PROPERTY
from builder.inspect.source_rules import SourceRules
from builder.model.finding import ConfigError
from builder.model.plan import Plan, Step, from_json, to_json
from builder.model.text import to_dict
from builder.sif import bounded
from builder.sif.bounded import hash_file, parse_json
from builder.system.files import write_atomic
from builder.system.layout import KEPT_FILE, MADE_OF, OLD_FILE, PLAN_FILE, README_FILE, REPORT_FILE, SOURCES_FILE
from builder.system.trust import read_below

LIMIT = 64 * 1024 * 1024  # bytes of a bill or a report


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

    What is not copied does not count, such as the plan `folder` and its image.
    """
    named = {"base": compute_identity(Path(plan.base).resolve())} if Path(plan.base).is_absolute() else {}
    for copy in plan.copies:
        if not copy.bundled:
            rules = SourceRules(copy, recipe_folder=recipe_folder, folder=folder)
            named[copy.path] = compute_identity((recipe_folder / copy.source).resolve(), rules=rules)
    named = {name: found for name, found in named.items() if found}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest() if named else ""


def compute_identity(path: Path, *, rules: SourceRules | None = None) -> str:
    """What changes with the content of a file, or of anything in a folder; "" where there is nothing.

    The change time is the kernel's: unlike the other times no program sets it back. No clock is compared.
    """
    try:
        rows = list(_list_rows(path, rules=rules))
    except OSError:
        return ""
    return hashlib.sha256(json.dumps(rows).encode("utf-8", "surrogateescape")).hexdigest()


def _list_rows(top: Path, *, rules: SourceRules | None) -> Iterator[tuple[str | int, ...]]:
    yield _make_row("", top.stat())
    for root, folders, files in os.walk(top):
        kept = [name for name in (*folders, *files) if rules is None or not rules.covers(Path(root, name), top=top)]
        folders[:] = sorted({*folders} & {*kept})
        for name in sorted(kept):
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
    if any(_is_old(folder, name) for name in _list_skipped_products(plan, steps)):
        return Origin()
    return read_origin(folder, plan)


def find_old_product(plan: Plan, steps: Sequence[Step], *, folder: Path, sources: str) -> str:
    """The first product of a step that is left out which another plan has made, "" where there is none.

    Read before the plan is written into its folder; `sources` is the identity of the files that go into its image.
    """
    names = [name for name in _list_skipped_products(plan, steps) if os.path.lexists(folder / name)]
    try:
        held = read_origin(folder, from_json(_read_note(folder, PLAN_FILE))) if names else None
    except ConfigError:
        held = None
    same = held == Origin(plan=compute_plan_digest(plan), sources=sources)
    return next((name for name in names if not same or _is_old(folder, name)), "")


def _list_skipped_products(plan: Plan, steps: Sequence[Step]) -> list[str]:
    runs = {step.name for step in steps}
    skipped = (step for step in plan.steps if step.name not in runs and step.kind != "smoke")
    return [name for step in skipped for name in step.produces]


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


FAULTS = (OSError, ValueError, KeyError, TypeError, RecursionError)


def keep_image_report(folder: Path) -> None:
    """Keep the report of a plan folder, where it is of an image that is there; raises OSError."""
    report = _read(folder, REPORT_FILE)
    if _may_be_of(report, Path(str(report.get("image") or ""))):
        kept = {"schema": 1, "report": report, "made_of": _read(folder, MADE_OF)}
        write_atomic(folder / KEPT_FILE, json.dumps(kept, sort_keys=True) + "\n")


def read_image_report(folder: Path, image: Path) -> tuple[dict[str, Any], bool]:
    """The report of a plan folder that is of an image, and whether it is the kept one.

    It is that of the folder's last build where no kept one is of the image, {} where there is none. Raises ConfigError
    for a file of another user.
    """
    last = _read(folder, REPORT_FILE)
    if not _is_of(last, image):
        kept = to_dict(_read(folder, KEPT_FILE).get("report"))
        if _is_of(kept, image):
            return kept, True
    return last, False


def read_made_of(folder: Path) -> dict[str, Any]:
    """What the kept report's build noted of its layers."""
    return to_dict(_read(folder, KEPT_FILE).get("made_of"))


def restore_report(folder: Path) -> None:
    """Make the kept report that of the folder again, whose plan is that of the image; raises OSError."""
    with suppress(KeyError):
        text = json.dumps(_read(folder, KEPT_FILE)["report"], indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        write_atomic(folder / REPORT_FILE, text)
        remove_kept_report(folder)


def remove_kept_report(folder: Path) -> None:
    """Remove it: another image has taken the place of the earlier one."""
    with suppress(OSError):
        (folder / KEPT_FILE).unlink(missing_ok=True)


def _may_be_of(report: Mapping[str, Any], image: Path) -> bool:
    """Whether a report may be of an image, which a copy put back has another identity of; nothing is read to decide."""
    with suppress(OSError):
        same = image.is_file() and image.stat().st_size == report.get("image_bytes")
        return same or (image.is_dir() and image.name != "" and compute_identity(image) == report.get("identity"))
    return False


def _is_of(report: Mapping[str, Any], image: Path) -> bool:
    with suppress(*FAULTS):
        return bool(report.get("image")) and is_image_of(report, image)
    return False


def _read(folder: Path, name: str) -> dict[str, Any]:
    with suppress(*FAULTS):
        return to_dict(parse_json(read_below(folder, name, limit=LIMIT)))
    return {}
