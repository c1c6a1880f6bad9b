"""The commands build and fetch: make an image, or fetch all that it is made of; altered entries are made again."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..sif.errors import AlteredError, LayeringError, say
from ..sif.events import report
from ..sif.tree import remove
from .assemble import Layer
from .builder import add_package_layers, build_image, find_conda_client, prepare_base
from .cache import Entry, Store
from .cache_folders import limit_bytes
from .container_steps import ContainerRunner
from .context import BuildContext, Fill, open_context
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
    """Make the image of a plan at `target`, with the permissions of `umask`; raises LayeringError and OSError."""
    store = Store(cache, shared=shared_cache(environment))
    store.sweep()
    containers = ContainerRunner(
        runtime=runtime, folder=spec.folder, binds=tuple(binds), given=given, cache=cache, environment=environment
    )
    for _ in range(3):
        with open_context(BuildContext, spec, store=store, containers=containers, environment=environment) as context:
            try:
                build_image(context, target)
            except AlteredError as error:
                altered = error.path
            else:
                target.chmod(0o755 & ~umask)
                report("whole", image=target.name)  # recipe reads the image meanwhile
                say(f"{target.name} is whole, its work folder is removed")
                _write_made_of(context, target, umask=umask)
                break
        say(f"the cached file '{altered}' was altered: it is made again")
        _forget(store, altered)
    else:
        raise LayeringError("the cache changes while it is read", fix="see `recipe cache check`")
    for entry in store.prune(limit_bytes(environment)):
        say(f"removed from the cache: {entry.title}")
    if store.locks.missing:
        say(f"note: the cache {cache}: {NO_LOCKS}")


def _forget(store: Store, path: str) -> None:
    """Remove an altered file from the cache."""
    for entry in store.entries():
        if str(entry.path) == path:
            store.forget(entry)


def _write_made_of(context: BuildContext, target: Path, *, umask: int) -> None:
    """Write `made-of.json` next to the image: its base, layers and packages."""
    rows: list[Entry] = [layer.entry for layer in context.layers]
    document = {
        "base": {"reference": context.spec.base, "sha256": context.facts.sha256},
        "layers": [{"title": row.title, "sha256": row.sha256, "bytes": row.size, "key": row.key} for row in rows],
        "packages": context.packages,
    }
    path = target.with_name("made-of.json")
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    path.chmod(0o666 & ~umask)


class _NeedsLayersError(LayeringError):
    """A container step needs layers that were not made."""


@dataclass(kw_only=True)
class FetchContext(BuildContext):
    """A build that ends when everything that comes from a server is in the cache.

    Layers are made of what only a container can install, and of conda's packages: what pip has to install depends on
    them. Wheels are downloaded and compiled; they become layers when an image is built.
    """

    all_layers: bool = False  # make layers of wheels too
    skipped: int = 0  # layers that were not made

    def make_wheel_layer(self, title: str, inputs: Sequence[object], fill: Fill) -> Layer | None:
        """Return the layer if a container step needs it or it is in the cache; else download and compile only."""
        if self.all_layers or self.store.find("layers", self.layer_key(title, inputs)) is not None:
            return super().make_wheel_layer(title, inputs, fill)
        tree = Path(tempfile.mkdtemp(prefix="fetched-", dir=self.work))
        fill(tree)
        remove(tree)
        self.skipped += 1
        say(f"{title}: downloaded and compiled")
        return None

    def add_container_layer(
        self, title: str, *, parts: Sequence[str], files: Sequence[str], network: bool = False
    ) -> None:
        """Append a layer that a container makes; raises _NeedsLayersError if layers below it were not made."""
        if self.skipped:
            raise _NeedsLayersError(f"'{title}' is installed in a container, on other layers: these are made too")
        super().add_container_layer(title, parts=parts, files=files, network=network)


def fetch(
    spec: Spec, *, runtime: str, binds: Sequence[str], given: Path | None, cache: Path, environment: Mapping[str, str]
) -> None:
    """Fetch everything that a plan's image is made of into the caches; raises LayeringError."""
    store = Store(cache, shared=shared_cache(environment))
    store.sweep()
    containers = ContainerRunner(
        runtime=runtime, folder=spec.folder, binds=tuple(binds), given=given, cache=cache, environment=environment
    )
    all_layers = False
    for _ in range(4):
        with open_context(FetchContext, spec, store=store, containers=containers, environment=environment) as context:
            context.all_layers = all_layers
            try:
                client = find_conda_client(context)
                prepare_base(context)
                add_package_layers(context, client)
                context.wait_for_tasks()
            except _NeedsLayersError as reason:
                say(str(reason))
                all_layers = True
            except AlteredError as error:
                say(f"the cached file '{error.path}' was altered: it is made again")
                _forget(store, error.path)
            else:
                say("everything is here")
                return
    raise LayeringError("the cache changes while it is read", fix="see `recipe cache check`")
