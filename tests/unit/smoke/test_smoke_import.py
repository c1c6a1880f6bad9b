"""How the workload imports torch: without a search for garbage, of which an import leaves none."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.smoke import hardware
from builder.smoke.options import RunError

TORCH = "import gc\ncollects = gc.isenabled()\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which Python looks for torch first."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    del sys.modules["torch"]
    yield tmp_path
    gc.unfreeze()
    gc.enable()


@pytest.mark.parametrize("collect", [False, True])
def test_garbage_is_collected_only_where_the_import_is_timed(folder: Path, collect: bool) -> None:
    (folder / "torch.py").write_text(TORCH)
    torch = hardware.load_torch(collect=collect)
    assert (torch.collects, gc.isenabled()) == (collect, True)


def test_garbage_is_collected_again_after_a_failed_import(folder: Path) -> None:
    (folder / "torch.py").write_text("raise OSError('no such library')\n")
    with pytest.raises(RunError, match="no such library"):
        hardware.load_torch()
    assert gc.isenabled()
