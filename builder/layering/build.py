"""One build: all of it is put together; what was altered in the cache is made again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from .builder import Builder, opened
from .cache import limit_bytes
from .failure import AlteredError, LayeringError, say
from .inside import Containers
from .locks import NO_LOCKS
from .shared import shared_cache
from .spec import Spec
from .store import Entry, Store

WHOLE = "{} is whole, its work folder is removed"  # recipe reads the image meanwhile


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
                say(WHOLE.format(target.name))
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
