"""A stand-in for torch._dynamo, torch's compiler, in the Python of the smoke tests: importing it is half of each rank.

An optimizer and DistributedDataParallel import it although nothing is compiled, and ask it for no more than this. The
images of the tests have the whole of torch.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


def disable(function: Any, recursive: bool = True, *, wrapping: bool = True) -> Any:
    """Nothing is compiled: the function as it is."""
    del recursive, wrapping
    return function


def choose_reducer() -> str:
    """What DistributedDataParallel asks for; the folder is one that the real module makes when it is imported."""
    own = f"{tempfile.gettempdir()}/torchinductor_stand_in"
    Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", own)).mkdir(exist_ok=True)
    return "no_optimization"


_MODULE = ModuleType("torch._dynamo", __doc__)
_MODULE.__dict__.update(
    disable=disable,
    graph_break=lambda: None,
    utils=SimpleNamespace(get_optimize_ddp_mode=choose_reducer),
    trace_rules=SimpleNamespace(clear_lru_cache=lambda: None),
)
sys.modules[_MODULE.__name__] = _MODULE
