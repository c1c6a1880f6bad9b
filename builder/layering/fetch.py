"""The base image as a file of this machine."""

from __future__ import annotations

import os
from pathlib import Path

from .failure import LayeringError, say
from .programs import clean_environment, follow
from .sif import normalise
from .store import Store, key_of

EPOCH = 315532800


def base_image(reference: str, *, store: Store, runtime: str, work: Path) -> Path:
    """A SIF of the base: the file that is named, or what the engine makes of an image in a registry.

    An image of a registry is kept by its digest. A tag may have moved since: the registry is asked where it points.
    """
    if reference.startswith("/"):
        path = Path(reference)
        if not path.is_file():
            raise LayeringError(f"the base image '{reference}' is not there", fix="give another one by --base")
        return path
    from .registry import pinned  # most bases are files, and what speaks to registries takes its time to load

    exact = reference if "@sha256:" in reference else pinned(reference)
    last = key_of(["reference", reference])
    if exact is None:
        known = store.recall("known", last)
        entry = store.look("bases", known) if isinstance(known, str) else None
        if entry is not None:
            say(f"the registry does not say where {reference} points: the image that it was before is used")
            return entry.path
        target = work / "moving.sif"
        _fetch(reference, target, runtime=runtime)
        return target
    key = key_of([exact, os.uname().machine])
    entry, _ = store.get("bases", key, title=exact, make=lambda path: _fetch(exact, path, runtime=runtime))
    store.remember("known", last, key)
    return entry.path


def _fetch(reference: str, target: Path, *, runtime: str) -> None:
    say(f"base image {reference}")
    part = target.with_name("base.part.sif")
    code = follow([runtime, "build", "--force", str(part), reference], env=clean_environment())
    if code:
        raise LayeringError(f"the base image '{reference}' could not be fetched", told=True)
    normalise(part, time=EPOCH)
    part.rename(target)
