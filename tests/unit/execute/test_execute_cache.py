"""What builds keep: what was compiled of a download goes with it, layers stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder.execute.layer_cache import list_items, prune, prune_downloads
from builder.layers.cache import Store
from builder.model.finding import ToolError


def keep(store: Store, kind: str, *, size: int) -> None:
    def make(path: Path) -> None:
        path.write_bytes(bytes(size))

    store.get(kind, kind, title=kind, make=make)


def test_what_was_compiled_of_downloads_is_removed_with_them(tmp_path: Path) -> None:
    environment = {"RECIPE_CACHE_DIR": str(tmp_path)}
    store = Store(tmp_path)
    keep(store, "compiled", size=300)
    keep(store, "layers", size=70)
    (tmp_path / "conda" / "package").write_bytes(bytes(5))
    with store.lock_downloads(), pytest.raises(ToolError, match="a build is using"):
        prune_downloads(store, environment)
    assert {one.kind for one in list_items(store)} == {"compiled", "layers"}
    assert prune_downloads(store, environment) == 305
    assert {one.kind for one in list_items(store)} == {"layers"}


def test_what_would_be_removed_is_named_and_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    keep(store, "compiled", size=300)
    keep(store, "layers", size=70)
    assert prune(store, {"RECIPE_CACHE_GIB": "1"}, gib=None, dry_run=True) == ()
    named = prune(store, {}, gib=0, dry_run=True)
    assert {one.kind for one in named} == {"compiled", "layers"}
    assert {one.kind for one in list_items(store)} == {"compiled", "layers"}
    assert prune(store, {}, gib=0) == named
