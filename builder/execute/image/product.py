"""Products of a step: there, not empty, and new."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What can be seen of a path from outside. No clock is compared: a file server's may differ from ours."""

    device: int
    inode: int
    size: int
    modified: int  # nanoseconds
    changed: int  # nanoseconds


def look(path: Path) -> Seen | None:
    """Look at a product, None when it is not there; a link is looked at as such."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return Seen(
        device=found.st_dev,
        inode=found.st_ino,
        size=found.st_size,
        modified=found.st_mtime_ns,
        changed=found.st_ctime_ns,
    )


def fault(path: Path, *, before: Seen | None) -> str:
    """Say what is wrong with a product after its step, "" when nothing is."""
    if not path.exists():
        return f"wrote no '{path.name}'"
    if path.is_dir():
        with os.scandir(path) as entries:
            if next(entries, None) is None:
                return f"left the folder '{path.name}' empty"
    elif path.stat().st_size == 0:
        return f"left '{path.name}' empty"
    if before is not None and look(path) == before:
        return f"left the old '{path.name}' as it was"
    return ""


def faults(folder: Path, names: Sequence[str], *, before: dict[str, Seen | None]) -> str:
    """Say what is wrong with all products of a step, "" when nothing is."""
    found = [text for name in names if (text := fault(folder / name, before=before.get(name)))]
    return ", ".join(found)
