"""The table of what backends can do."""

from __future__ import annotations

from importlib import import_module
from typing import get_args

from builder.model.backend import TRAITS
from builder.model.site import BackendName


def test_each_backend_has_a_row_and_a_module() -> None:
    assert sorted(TRAITS) == sorted(get_args(BackendName))
    for name in TRAITS:
        module = import_module(f"builder.compile.backends.{name}")
        assert callable(module.check), name
        assert callable(module.plan), name
