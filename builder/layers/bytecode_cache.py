"""Cached .pyc files of a wheel or a conda package: after a changed pin that package alone is compiled."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..sif.pack import Piece
from . import bytecode
from .cache import Store


@dataclass(frozen=True, kw_only=True)
class PackageSources:
    """The .py files of one package; `key` is the digest of everything that decides their .pyc files."""

    key: str
    title: str
    paths: tuple[str, ...]


def compile_packages(
    packages: Sequence[PackageSources],
    *,
    more: Sequence[str] = (),
    compile_files: Callable[[list[str]], list[Piece]],
    tag: str,
    store: Store,
    work: Path,
    run_in_background: Callable[[Callable[[], object]], None],
) -> list[Piece]:
    """Take the .pyc files of packages from the cache, and compile all missing ones in one run.

    Files of several packages are compiled each time, and so are `more`: no package is known to own them. The cache is
    written by `run_in_background`.
    """
    often = Counter(path for package in packages for path in package.paths)
    shared = {path for path, count in often.items() if count > 1}
    unsure = {bytecode.name_compiled_file(path, tag) for path in shared}
    pieces, missing = list[Piece](), dict[PackageSources, list[str]]()
    place = tempfile.mkdtemp(prefix="kept-", dir=work)  # layers with the same package may be made in parallel
    for package in packages:
        paths = [path for path in package.paths if path not in shared]
        if not paths:
            continue
        entry = store.find("compiled", package.key)
        own = Path(place, f"{package.key}.pycs")  # no other process removes it while it is read
        if entry is not None and store.check(entry) and _link(entry.path, own):
            pieces += [piece for piece in bytecode.load(own) if piece.path not in unsure]
        else:
            missing[package] = paths
    made = {piece.path: piece for piece in compile_files(sorted({*more, *shared}.union(*missing.values())))}
    for package, paths in missing.items():
        names = [bytecode.name_compiled_file(path, tag) for path in paths]
        run_in_background(partial(_store, store, package, [made[name] for name in names if name in made]))
    return [*pieces, *made.values()]


def _store(store: Store, package: PackageSources, pieces: Sequence[Piece]) -> None:
    store.get("compiled", package.key, title=package.title, make=lambda target: bytecode.save(pieces, target))


def _link(source: Path, target: Path) -> bool:
    """Link a file under another name, or copy it; return False if it is gone."""
    try:
        target.unlink(missing_ok=True)
        os.link(source, target)
    except FileNotFoundError:
        return False
    except OSError:
        shutil.copyfile(source, target)
    return True
