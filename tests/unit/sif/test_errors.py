"""Which disk a failed build has filled."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from builder.sif.errors import LayeringError, describe_written_place


@pytest.mark.parametrize(("full", "said"), [("tmp", "the temporary folder '{}'"), ("cache", "the cache '{}/cache'")])
def test_the_disk_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str, said: str) -> None:
    def measure(path: str | Path) -> SimpleNamespace:
        return SimpleNamespace(f_bavail=0 if Path(path) == tmp_path / full else 1 << 20, f_frsize=4096)

    monkeypatch.setattr(os, "statvfs", measure)
    error = LayeringError("No space left on device")
    place = describe_written_place(error, cache=tmp_path / "cache", output=None, temporary=str(tmp_path / "tmp"))
    assert place.endswith(said.format(tmp_path))
