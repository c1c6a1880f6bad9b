"""Paths below a plan folder, as they are written and as they are believed when they are read."""

from __future__ import annotations


def is_plain(path: str) -> bool:
    """Whether a path is relative, printable and has no part that leads elsewhere."""
    parts = path.split("/")
    return path.isprintable() and not any(part in ("", ".", "..") for part in parts) and len(path) <= 4096
