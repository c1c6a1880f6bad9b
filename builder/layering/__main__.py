"""Run as a folder, ``python3 -B DIR/layering build``, or as a module, ``python3 -m builder.layering build``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys


def _package() -> str:
    """Name the package this file is in; one run as a folder is made the package "layering" without touching others.

    Python put the folder itself on sys.path: it is taken off, so that no module here hides one of the library.
    """
    if __package__:
        return __package__
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    start = os.path.join(here, "__init__.py")
    spec = importlib.util.spec_from_file_location("layering", start, submodule_search_locations=[here])
    if spec is None or spec.loader is None:
        raise ImportError(f'"{start}" is missing')
    module = importlib.util.module_from_spec(spec)
    sys.modules["layering"] = module
    spec.loader.exec_module(module)
    return "layering"


if __name__ == "__main__":
    if sys.version_info < (3, 10):  # noqa: UP036 - by hand it may be any Python
        sys.exit(f"Python {sys.version.split()[0]} is too old: this takes 3.10")
    sys.exit(importlib.import_module(_package() + ".command").main(sys.argv[1:]))
