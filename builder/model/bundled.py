"""Find the files that ship with recipe: inside the package in a wheel, next to the package in a checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def find_data_folder(name: str) -> Path:
    """Return the folder of "recipes" or "sites"."""
    inside = PACKAGE / "data" / name
    return inside if inside.is_dir() else PACKAGE.parent / name
