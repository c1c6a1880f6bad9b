"""Run as a folder, ``python3 -B DIR/layering build``, or as a module, ``python3 -m builder.layers build``.

A plan has this folder as `layering/`, with `sif/` and `audit/` inside; in the package they are in one folder.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types


def _find_package() -> str:
    """Return the name of the package; as a folder it is "layering.layers", with "layering.sif" and "layering.audit".

    Python puts the folder itself on sys.path: it is removed, so that no module here hides one of the standard library.
    """
    if __package__:
        return __package__
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    sys.modules["layering"] = parent = types.ModuleType("layering")
    parent.__path__ = []
    for name in ("sif", "audit"):
        inside = os.path.join(here, name)
        _load(f"layering.{name}", inside if os.path.isdir(inside) else os.path.join(os.path.dirname(here), name))
    _load("layering.layers", here)
    return "layering.layers"


def _load(name: str, folder: str) -> None:
    start = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location(name, start, submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        raise ImportError(f'"{start}" is missing')
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    if sys.version_info < (3, 10):  # noqa: UP036 - by hand it may be any Python
        sys.exit(f"Python {sys.version.split()[0]} is too old: this takes 3.10")
    sys.exit(importlib.import_module(_find_package() + ".commands").main(sys.argv[1:]))
