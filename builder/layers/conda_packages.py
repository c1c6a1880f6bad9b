"""Conda packages in layers: how they are grouped, and what is changed in linked packages for an image.

Large packages have a layer each; packages that have files of the same name share one.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..sif import removal, tree
from ..sif.bounded import hash_file
from ..sif.errors import AlteredError, LayeringError
from ..sif.programs import call, require_program
from ..sif.tree import read
from .base_facts import list_squashfs
from .cache import CacheEntry, Store
from .conda_solver import CondaPackage
from .wheels import normalize_name

SCRIPT = re.compile(r"/bin/\.(.+)-post-link\.sh")
ACTIVATE = re.compile(r"/etc/conda/activate\.d/([^/]+\.sh)")
DIST = re.compile(r"/lib/python3\.\d+/site-packages/([^/]+?)-([^-/]+)(?:-py3\.\d+)?\.(?:dist|egg)-info")
RECORD = 64 << 20  # bytes of one package's record
META = re.compile(r"/conda-meta/[^/]+\.json")


@dataclass(frozen=True, kw_only=True)
class LayerContents:
    """What the rest of a build has to know of a conda layer, by its files."""

    provided: Mapping[str, str] = field(default_factory=dict)  # Python distributions, by normalised name
    scripts: tuple[str, ...] = ()  # packages with a script that runs when they are installed
    activate: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()  # of all files and links, below the environment's folder


def read_layer_contents(entry: CacheEntry, *, prefix: str, store: Store) -> LayerContents:
    """Return the contents of a conda layer, cached by its sha256."""
    known = store.recall("facts", f"conda-2-{entry.sha256}")
    if not isinstance(known, dict):
        try:
            folders, links, files = list_squashfs(entry.path, offset=0)
        except LayeringError:
            _check_entry(entry)
            raise
        paths = sorted(path.removeprefix(prefix) for path in {*links, *files} if path.startswith(prefix))
        names = [*(path.removeprefix(prefix) for path in sorted(folders) if path.startswith(prefix)), *paths]
        known = {
            "provided": {normalize_name(found[1]): found[2] for name in names if (found := DIST.fullmatch(name))},
            "scripts": [found[1] for name in names if (found := SCRIPT.fullmatch(name))],
            "activate": [found[1] for name in names if (found := ACTIVATE.fullmatch(name))],
            "paths": paths,
        }
        store.remember("facts", f"conda-2-{entry.sha256}", known)
    return LayerContents(
        provided=known["provided"],
        scripts=tuple(known["scripts"]),
        activate=tuple(known["activate"]),
        paths=tuple(known["paths"]),
    )


def find_shared_paths(layers: Sequence[LayerContents]) -> set[str]:
    """Return files that are in several layers, and files that are a folder in another, with its content."""
    seen, twice = set[str](), set[str]()
    for found in layers:
        twice.update(seen.intersection(found.paths))
        seen.update(found.paths)
    folders = {path.rpartition("/")[0] for path in seen}
    for folder in tuple(folders):
        above = folder.rpartition("/")[0]
        while above and above not in folders:
            folders.add(above)
            above = above.rpartition("/")[0]
    files = tuple(f"{path}/" for path in folders & seen)
    return twice | (folders & seen) | {path for path in seen if path.startswith(files)}


def find_owners(entry: CacheEntry, found: LayerContents, paths: set[str], *, prefix: str, work: Path) -> set[str]:
    """Return the packages in a layer that own one of these files; raises AlteredError and LayeringError."""
    if paths.isdisjoint(found.paths):
        return set()
    _check_entry(entry)
    place = work / f"meta-{entry.sha256}"
    records = [f"{prefix}{path}".lstrip("/") for path in found.paths if META.fullmatch(path)]
    program = require_program("unsquashfs", fix="install squashfs-tools")
    call([program, "-quiet", "-no-progress", "-dest", place, entry.path, *records], what=f"reading '{entry.path}'")
    names = set()
    for record in records:
        noted = json.loads(read(place, record, limit=RECORD))
        if not paths.isdisjoint(f"/{path}" for path in noted["files"]):
            names.add(str(noted["name"]))
    return names


def _check_entry(entry: CacheEntry) -> None:
    if hash_file(entry.path) != entry.sha256:
        raise AlteredError(str(entry.path))


LARGE = 50_000_000  # bytes of a package's file: a layer of its own, so that a small pin never packs it again
MOST = 16  # of such layers: each asks py-rattler once
# All others, if packing takes more than a second, are in several layers: the name alone decides which one,
# so that another version of one package, or one package more, packs an eighth of them.
MANY, SHARES = 64_000_000, 8
TOGETHER = "conda, together"


def group_packages(
    packages: Sequence[CondaPackage], *, together: Collection[str] = ()
) -> dict[str, tuple[CondaPackage, ...]]:
    """Return packages by the title of their layer, the lowest first; Python is with small ones, above all others."""
    same = tuple(sorted((one for one in packages if one.name in together), key=lambda package: package.name))
    ordered = sorted((one for one in packages if one.name not in together), key=lambda package: package.name)
    large = sorted((one for one in ordered if one.name != "python"), key=lambda one: -one.size)
    apart = {one.name for one in large[:MOST] if one.size >= LARGE}
    shares = SHARES if sum(one.size for one in ordered if one.name not in apart) >= MANY else 1
    rows: dict[str, list[CondaPackage]] = {}
    for package in ordered:
        share = 0 if package.name == "python" else zlib.crc32(package.name.encode()) % shares
        title = f"conda {package.name}" if package.name in apart else f"conda, share {share}" if share else "conda"
        rows.setdefault(title, []).append(package)
    order = sorted(rows, key=lambda title: (title == "conda", title.startswith("conda,"), title))
    return ({TOGETHER: same} if same else {}) | {title: tuple(rows[title]) for title in order}


FLAT = "build with --backend apptainer"
# Where py-rattler keeps files that another package has too. Which of them is in the environment is always the same;
# empty folders here and the order of the records are random (0.28).
LOST = "__clobbers__"
HISTORY = "conda-meta/history"
LIMIT = 64 << 20  # bytes of one package's record
# Keys of a package's own description that the image's record of it has.
KEPT = ("build", "build_number", "constrains", "license", "license_family", "name", "noarch", "subdir", "timestamp",
        "track_features", "version")  # fmt: skip


def _record_path(package: CondaPackage) -> str:
    return f"conda-meta/{package.name}-{package.version}-{package.build}.json"


def read_record(package: CondaPackage, place: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(tree.read(place, _record_path(package), limit=LIMIT))
    except (OSError, ValueError):
        message = f"'{package.file_name}' is not the package that its channel names"
        raise LayeringError(message, fix="ask the owner of the channel") from None
    return found


def find_original_path(path: str) -> str:
    """Return the path that a file would have if no other package had it too."""
    return re.sub(rf"^{LOST}/[^/]+/", "", path)


def check_conflicts(files: Mapping[str, Sequence[str]]) -> None:
    """Refuse packages if one has a file where another has a folder: which of them wins is random."""
    find_owners = {find_original_path(path): name for name, paths in files.items() for path in paths}
    for path, name in sorted(find_owners.items()):
        for folder in Path(path).parents:
            other = find_owners.get(str(folder))
            if other is not None:
                message = f"'{folder}' is a folder of the package '{name}' and a file of '{other}'"
                raise LayeringError(message, fix=f"leave out one of them, or {FLAT}")


def remove_package(package: CondaPackage, place: Path) -> None:
    """Remove a package's files, and the folders that it alone had."""
    files = read_record(package, place)["files"]
    for name in files:
        removal.remove(Path(name), below=place)
    for folder in sorted({parent for name in files for parent in Path(name).parents if parent.parts}, reverse=True):
        removal.remove_empty(place, str(folder))
    removal.remove(Path(_record_path(package)), below=place)


def write_record(package: CondaPackage, place: Path) -> None:
    """Write the image's record of a package, as conda reads it, without times and folders of this machine."""
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
    tree.write(place, _record_path(package), (json.dumps(document, indent=1, sort_keys=True) + "\n").encode())


def clean_prefix(place: Path, *, whole: bool) -> None:
    """Remove what no program needs in an image, and .pyc files that are stale by the times of an image."""
    for name in (LOST, HISTORY, "CACHEDIR.TAG"):
        removal.remove(Path(name), below=place)
    if whole:
        tree.write(place, HISTORY, b"")  # conda takes a folder with this file for an environment
    for entry in tree.walk(place):
        compiled = entry.name.endswith(".pyc") and entry.above is not None and entry.above.name == "__pycache__"
        if entry.kind != tree.FOLDER and (entry.name.endswith(".a") or compiled):
            entry.unlink()
