"""All that a build needs from elsewhere, here before it begins: base image and packages, downloaded and compiled."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .build import forget
from .builder import Builder, opened
from .failure import AlteredError, LayeringError, say
from .image.draft import Layer
from .inside import Containers
from .shared import shared_cache
from .spec import Spec
from .squash.pieces import Piece
from .store import Store
from .tree import remove


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
