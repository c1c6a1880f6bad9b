"""Run as a folder, ``python3 -B DIR/smoke mnist``, or as a module, ``python3 -m builder.smoke mnist``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys


def _package() -> str:
    """Name the package this file is in; one run as a folder is made the package "smoke" without touching others.

    Python put the folder itself on sys.path: it is taken off, so that no module here hides one of the image's.
    """
    if __package__:
        return __package__
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    start = os.path.join(here, "__init__.py")
    spec = importlib.util.spec_from_file_location("smoke", start, submodule_search_locations=[here])
    if spec is None or spec.loader is None:
        raise ImportError(f'"{start}" is missing')
    module = importlib.util.module_from_spec(spec)
    sys.modules["smoke"] = module
    spec.loader.exec_module(module)
    return "smoke"


if __name__ == "__main__":
    sys.exit(importlib.import_module(_package() + ".main").main(sys.argv[1:]))
