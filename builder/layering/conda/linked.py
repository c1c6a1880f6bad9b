"""Packages as py-rattler has linked them on this machine, made into what an image has of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import tree
from ..failure import LayeringError
from .client import CondaPackage

FLAT = "build with --backend apptainer"
# Where py-rattler keeps files of packages that have the same one as another. Which of them is in the environment is
# always the same; empty folders here and the order of the records are decided by a race (0.28).
LOST = "__clobbers__"
HISTORY = "conda-meta/history"
LIMIT = 64 << 20  # bytes of one package's record
# What of a package's own description goes into the image's record of it.
KEPT = ("build", "build_number", "constrains", "license", "license_family", "name", "noarch", "subdir", "timestamp",
        "track_features", "version")  # fmt: skip


def _meta(package: CondaPackage) -> str:
    return f"conda-meta/{package.name}-{package.version}-{package.build}.json"


def read_record(package: CondaPackage, place: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(tree.read(place, _meta(package), limit=LIMIT))
    except (OSError, ValueError):
        message = f"'{package.file_name}' is not the package that its channel says it is"
        raise LayeringError(message, fix="ask whoever keeps the channel") from None
    return found


def meant(path: str) -> str:
    """Where a file would lie if no other package had it too."""
    return re.sub(rf"^{LOST}/[^/]+/", "", path)


def check_apart(files: Mapping[str, Sequence[str]]) -> None:
    """Refuse packages of which one has a file where another has a folder: which of them wins is left to chance."""
    owners = {meant(path): name for name, paths in files.items() for path in paths}
    for path, name in sorted(owners.items()):
        for folder in Path(path).parents:
            other = owners.get(str(folder))
            if other is not None:
                message = f"'{folder}' is a folder of the package '{name}' and a file of '{other}'"
                raise LayeringError(message, fix=f"leave out one of them, or {FLAT}")


def take_out(package: CondaPackage, place: Path) -> None:
    """Remove a package's files, and the folders that were only its own."""
    files = read_record(package, place)["files"]
    for name in files:
        tree.remove(Path(name), below=place)
    for folder in sorted({parent for name in files for parent in Path(name).parents if parent.parts}, reverse=True):
        tree.remove_empty(place, str(folder))
    tree.remove(Path(_meta(package)), below=place)


def write_record(package: CondaPackage, place: Path) -> None:
    """The image's record of a package: what conda and others read, without times and folders of this machine."""
    noted = read_record(package, place)
    own = json.loads(Path(noted["extracted_package_dir"], "info", "index.json").read_text(encoding="utf-8"))
    kept = {name: own[name] for name in KEPT if name in own}
    paths = [row for row in noted["paths_data"]["paths"] if not row["_path"].startswith(f"{LOST}/")]
    document = {
        **kept,
        "depends": list(package.depends),
        "sha256": package.sha256,
        "fn": package.file_name,
        "url": package.address,
        "channel": package.address.rsplit("/", 2)[0],
        "requested_specs": [],
        "files": sorted(name for name in noted["files"] if not name.startswith(f"{LOST}/")),
        "paths_data": {**noted["paths_data"], "paths": sorted(paths, key=lambda row: str(row["_path"]))},
    }
    tree.write(place, _meta(package), (json.dumps(document, indent=1, sort_keys=True) + "\n").encode())


def tidy(place: Path, *, whole: bool) -> None:
    """Leave out what no program needs in an image, and .pyc files that are stale by the times of an image."""
    for name in (LOST, HISTORY, "CACHEDIR.TAG"):
        tree.remove(Path(name), below=place)
    if whole:
        tree.write(place, HISTORY, b"")  # conda and others take a folder with this file for an environment
    for entry in tree.walk(place):
        compiled = entry.name.endswith(".pyc") and entry.above is not None and entry.above.name == "__pycache__"
        if entry.kind != tree.FOLDER and (entry.name.endswith(".a") or compiled):
            entry.unlink()
