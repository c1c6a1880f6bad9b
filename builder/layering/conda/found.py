"""What is in the layers of conda packages, as far as the rest of a build has to know it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..bases.facts import listed
from ..digest import sha256_of
from ..failure import AlteredError, LayeringError
from ..programs import call, needed_program
from ..store import Entry, Store
from ..tree import read
from ..wheels.resolve import normal

SCRIPT = re.compile(r"/bin/\.(.+)-post-link\.sh")
ACTIVATE = re.compile(r"/etc/conda/activate\.d/([^/]+\.sh)")
DIST = re.compile(r"/lib/python3\.\d+/site-packages/([^/]+?)-([^-/]+)(?:-py3\.\d+)?\.(?:dist|egg)-info")
RECORD = 64 << 20  # bytes of one package's record
META = re.compile(r"/conda-meta/[^/]+\.json")


@dataclass(frozen=True, kw_only=True)
class Found:
    """What of a conda layer the rest of a build has to know, by its files."""

    provided: Mapping[str, str] = field(default_factory=dict)  # Python distributions, by normal name
    scripts: tuple[str, ...] = ()  # packages that want to run something when they are installed
    activate: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()  # of all files and links, below the environment's folder


def learn(entry: Entry, *, prefix: str, store: Store) -> Found:
    """What is in a conda layer, kept by its sha256."""
    known = store.recall("facts", f"conda-2-{entry.sha256}")
    if not isinstance(known, dict):
        try:
            folders, links, files = listed(entry.path, offset=0)
        except LayeringError:
            _check(entry)
            raise
        paths = sorted(path.removeprefix(prefix) for path in {*links, *files} if path.startswith(prefix))
        names = [*(path.removeprefix(prefix) for path in sorted(folders) if path.startswith(prefix)), *paths]
        known = {
            "provided": {normal(found[1]): found[2] for name in names if (found := DIST.fullmatch(name))},
            "scripts": [found[1] for name in names if (found := SCRIPT.fullmatch(name))],
            "activate": [found[1] for name in names if (found := ACTIVATE.fullmatch(name))],
            "paths": paths,
        }
        store.remember("facts", f"conda-2-{entry.sha256}", known)
    return Found(
        provided=known["provided"],
        scripts=tuple(known["scripts"]),
        activate=tuple(known["activate"]),
        paths=tuple(known["paths"]),
    )


def in_several(layers: Sequence[Found]) -> set[str]:
    """Paths of files that lie in several layers, and of files that are a folder elsewhere, with what is in it."""
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


def owners(entry: Entry, found: Found, paths: set[str], *, prefix: str, work: Path) -> set[str]:
    """The packages in a layer that have one of these files; raises AlteredError and LayeringError."""
    if paths.isdisjoint(found.paths):
        return set()
    _check(entry)
    place = work / f"meta-{entry.sha256}"
    records = [f"{prefix}{path}".lstrip("/") for path in found.paths if META.fullmatch(path)]
    program = needed_program("unsquashfs", fix="install squashfs-tools")
    call([program, "-quiet", "-no-progress", "-dest", place, entry.path, *records], what=f"reading '{entry.path}'")
    names = set()
    for record in records:
        noted = json.loads(read(place, record, limit=RECORD))
        if not paths.isdisjoint(f"/{path}" for path in noted["files"]):
            names.add(str(noted["name"]))
    return names


def _check(entry: Entry) -> None:
    if sha256_of(entry.path) != entry.sha256:
        raise AlteredError(str(entry.path))
