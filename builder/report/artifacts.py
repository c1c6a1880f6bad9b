"""Files of a build that a report names or quotes: logs, plan, SBOM, provenance, the image itself.

A plan folder may come from a stranger: no link in it is followed, a path must be below it, and what is read is bounded.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from stat import S_ISREG
from typing import Any

from builder.inspect.attestations import name_attestations
from builder.inspect.origin import is_image_of
from builder.model.mask import Mask
from builder.model.results import Artifact, Results, SbomPackage, Stage
from builder.model.text import is_plain_path, to_dict, to_integer, to_list, to_text
from builder.sif import tree
from builder.sif.bounded import read_json
from builder.system.layout import PLAN_FILE, README_FILE, REPORT_FILE, plan_folder
from builder.system.log import Lines

TAIL_LINES = 20
TAIL_BYTES = 64 * 1024
LINE_LIMIT = 300  # characters
SBOM_BYTES = 64 * 1024 * 1024
PACKAGE_LIMIT = 20_000
FIRST_KINDS = ("pypi", "conda")  # what the recipe names is among these


def add_artifacts(results: Results, folder: Path, *, report: Mapping[str, Any], named: Path) -> Results:
    """Add what is in a plan folder and next to it: the image, the files to link to, logs' ends, installed packages.

    `report` is the report of the build, `named` the path that the user gave.
    """
    image = find_image(folder, results.image)
    is_earlier = not results.is_built and not results.image
    sbom, provenance = name_attestations(image) if image is not None else (None, None)
    titled = [
        ("SBOM", sbom),
        ("provenance", provenance),
        ("plan", _below(folder, PLAN_FILE)),
        ("commands without recipe", _below(folder, README_FILE)),
        ("report as JSON", _below(folder, REPORT_FILE)),
        *((f"log of {stage.name}", _below(folder, stage.log)) for stage in results.stages if stage.log),
    ]
    found = [Artifact(title=title, path=str(path)) for title, path in titled if path is not None and _is_regular(path)]
    mask = Mask(os.environ)
    return replace(
        results,
        image_path=str(image) if image is not None else "",
        image_now=describe_image_now(report, image, folder=folder, named=named),
        earlier_image=_find_build_time(image, provenance) if image is not None and is_earlier else "",
        artifacts=tuple(found),
        stages=tuple(_with_tail(stage, folder, mask=mask) for stage in results.stages),
        installed=tuple(read_installed_packages(sbom)) if sbom is not None else (),
    )


def find_image(folder: Path, recorded: str) -> Path | None:
    """Find the image that a plan folder belongs to, None where there is none next to it.

    The recorded path may be another machine's, or a stranger's: only its last part counts.
    """
    folder = folder.absolute()
    stem = folder.name.removesuffix(".plan")
    for name in (Path(recorded).name, f"{stem}.sif", stem):
        if name and name != ".." and plan_folder(folder.with_name(name)) == folder:
            path = folder.with_name(name)
            with suppress(OSError):
                if path.is_file() or path.is_dir():
                    return path
    return None


def describe_image_now(report: Mapping[str, Any], image: Path | None, *, folder: Path, named: Path) -> str:
    """What is wrong with the image that a report says was built: it is missing, or another; "" where nothing is.

    A copy of a plan folder has no image next to it, and misses none.
    """
    recorded = Path(to_text(report.get("image")))
    if not recorded.name:
        return ""
    if image is None:
        in_place = plan_folder(recorded) == folder.resolve() or plan_folder(named.absolute()) == folder.absolute()
        return "is missing now" if in_place else ""
    if not image.is_file():
        return ""  # a folder of tykky, which has no digest
    if (built := to_integer(report.get("image_bytes"))) is None:
        return ""
    found = image.stat().st_size
    if found != built:
        return f"is not the one of this report: it has {found} bytes now, and had {built}"
    try:
        return "" if is_image_of(report, image) else "is not the one of this report: its SHA-256 is another"
    except KeyError:
        return ""  # a report of an earlier version
    except OSError as error:
        return f"cannot be read now: {(error.strerror or str(error)).lower()}"


def _find_build_time(image: Path, provenance: Path | None) -> str:
    """When an image was built: as its provenance says, else the time of its file."""
    with suppress(OSError, ValueError, RecursionError):
        content = to_dict(read_json(provenance)) if provenance is not None else {}
        details = to_dict(to_dict(content.get("predicate")).get("runDetails"))
        if found := to_text(to_dict(details.get("metadata")).get("startedOn"), limit=40):
            return found
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(image.lstat().st_mtime))


def read_installed_packages(sbom: Path) -> Iterator[SbomPackage]:
    """List the packages of a CycloneDX file, Python's and conda's first; nothing where it cannot be read."""
    try:
        content = to_dict(read_json(sbom, limit=SBOM_BYTES))
    except (OSError, ValueError, RecursionError):
        return
    found = set()
    for item in map(to_dict, to_list(content.get("components"), limit=PACKAGE_LIMIT)):
        name, version = to_text(item.get("name"), limit=120), to_text(item.get("version"), limit=80)
        kind = to_text(item.get("purl")).removeprefix("pkg:").partition("/")[0][:20]
        if name and item.get("type") == "library":
            found.add(SbomPackage(name=name, version=version, kind=kind))
    yield from sorted(found, key=lambda one: (one.kind not in FIRST_KINDS, one.kind, one.name.lower(), one.version))


def read_log_tail(folder: Path, log: str, *, mask: Callable[[str], str]) -> tuple[str, ...]:
    """Return the last lines of a log below a plan folder, masked and without terminal codes; empty without a log."""
    if not log or not is_plain_path(log):
        return ()
    above, _, name = log.rpartition("/")
    try:
        with tree.open_folder_below(folder, above) as at, os.fdopen(tree.open_file(name, at, log), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            content = file.read(TAIL_BYTES)
    except OSError:
        return ()
    lines = Lines()
    found = [line.text for line in (*lines.feed(content), *lines.close()) if not line.passing]
    if size > TAIL_BYTES:
        found = found[1:]  # it was cut, and half of a secret is not recognised
    shown = [mask(line) for line in found if line.strip()][-TAIL_LINES:]
    return tuple(line if len(line) <= LINE_LIMIT else f"{line[:LINE_LIMIT]} ..." for line in shown)


def _with_tail(stage: Stage, folder: Path, *, mask: Callable[[str], str]) -> Stage:
    if stage.status in ("ok", "skipped"):
        return stage
    return replace(stage, fix=mask(stage.fix), tail=read_log_tail(folder, stage.log, mask=mask))


def _below(folder: Path, name: str) -> Path | None:
    """The path of an ordinary file below the folder, None for a link or for what is not there."""
    if is_plain_path(name):
        with suppress(OSError):
            found = tree.stat_path(folder, name)
            return folder / name if found is not None and S_ISREG(found.st_mode) else None
    return None


def _is_regular(path: Path) -> bool:
    with suppress(OSError):
        return S_ISREG(path.lstat().st_mode)
    return False
