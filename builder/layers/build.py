"""One build: all of it is put together; what was altered in the cache is made again.

All that a build needs from elsewhere, here before it begins: base image and packages, downloaded and compiled.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..sif.errors import AlteredError, LayeringError, say
from ..sif.events import report
from ..sif.pack import Piece
from ..sif.tree import remove
from .assemble import Layer
from .builder import Builder, opened
from .cache import Entry, Store, limit_bytes
from .container import Containers
from .locks import NO_LOCKS
from .shared_cache import shared_cache
from .spec import Spec


def build(
    spec: Spec,
    target: Path,
    *,
    runtime: str,
    binds: Sequence[str],
    given: Path | None,
    cache: Path,
    environment: Mapping[str, str],
    umask: int,
) -> None:
    """Make the image of a plan at `target`, with the rights that `umask` leaves; raises LayeringError and OSError."""
    store = Store(cache, shared=shared_cache(environment))
    store.sweep()
    containers = Containers(
        runtime=runtime, folder=spec.folder, binds=tuple(binds), given=given, cache=cache, environment=environment
    )
    for _ in range(3):
        with opened(Builder, spec, store=store, containers=containers, environment=environment) as builder:
            try:
                builder.build(target)
            except AlteredError as error:
                altered = error.path
            else:
                target.chmod(0o755 & ~umask)
                report("whole", image=target.name)  # recipe reads the image meanwhile
                say(f"{target.name} is whole, its work folder is removed")
                _report(builder, target, umask=umask)
                break
        say(f"the cached file '{altered}' is not what it was: it is made again")
        forget(store, altered)
    else:
        raise LayeringError("the cache changes while it is read", fix="see `recipe cache verify`")
    for entry in store.prune(limit_bytes(environment)):
        say(f"removed from the cache: {entry.title}")
    if store.locks.missing:
        say(f"note: the cache {cache}: {NO_LOCKS}")


def forget(store: Store, path: str) -> None:
    """Take an altered file out of the cache."""
    for entry in store.entries():
        if str(entry.path) == path:
            store.forget(entry)


def _report(builder: Builder, target: Path, *, umask: int) -> None:
    """`made-of.json` beside the image: what it is made of."""
    rows: list[Entry] = [layer.entry for layer in builder.layers]
    document = {
        "base": {"reference": builder.spec.base, "sha256": builder.facts.sha256},
        "layers": [{"title": row.title, "sha256": row.sha256, "bytes": row.size, "key": row.key} for row in rows],
        "packages": builder.packages,
    }
    path = target.with_name("made-of.json")
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    path.chmod(0o666 & ~umask)


class _NeedsLayersError(LayeringError):
    """A container has to go on from layers that were not made."""


@dataclass(kw_only=True)
class Fetcher(Builder):
    """A build that ends when nothing more is to come from elsewhere.

    Layers are made of what only a container can install, and of conda's packages: what pip has to bring depends on
    them. Wheels are downloaded and compiled; they become layers when an image is built.
    """

    whole: bool = False  # make layers of wheels too
    left: int = 0  # layers that were not made

    def fetch(self) -> None:
        """Fetch everything; raises LayeringError and OSError."""
        self.begin()
        self.gather()
        for job in self.jobs:
            job.result()

    def take(self, layers: Iterable[Layer | None]) -> None:
        """Add layers as they come; there is no image that they would be copied into."""
        self.layers += [layer for layer in layers if layer is not None]

    def of_wheels(self, title: str, inputs: Sequence[object], fill: Callable[[Path], Sequence[Piece]]) -> Layer | None:
        """A layer where something has to go on from it or it is there, else only what goes into it."""
        if self.whole or self.store.look("layers", self.key(title, inputs)) is not None:
            return super().of_wheels(title, inputs, fill)
        tree = Path(tempfile.mkdtemp(prefix="fetched-", dir=self.work))
        fill(tree)
        remove(tree)
        self.left += 1
        say(f"{title}: downloaded and compiled")
        return None

    def inside(self, title: str, *, parts: Sequence[str], files: Sequence[str], asks: bool = False) -> None:
        """A layer that a container has to make, where it asks servers."""
        if self.left:
            raise _NeedsLayersError(f"'{title}' is installed in a container, on other layers: these are made too")
        super().inside(title, parts=parts, files=files, asks=asks)


def fetch(
    spec: Spec, *, runtime: str, binds: Sequence[str], given: Path | None, cache: Path, environment: Mapping[str, str]
) -> None:
    """Have all that a plan's image is made of in the caches; raises LayeringError."""
    store = Store(cache, shared=shared_cache(environment))
    store.sweep()
    containers = Containers(
        runtime=runtime, folder=spec.folder, binds=tuple(binds), given=given, cache=cache, environment=environment
    )
    whole = False
    for _ in range(4):
        with opened(Fetcher, spec, store=store, containers=containers, environment=environment) as fetcher:
            fetcher.whole = whole
            try:
                fetcher.fetch()
            except _NeedsLayersError as reason:
                say(str(reason))
                whole = True
            except AlteredError as error:
                say(f"the cached file '{error.path}' is not what it was: it is made again")
                forget(store, error.path)
            else:
                say("everything is here")
                return
    raise LayeringError("the cache changes while it is read", fix="see `recipe cache verify`")
