"""What an installation of tykky was made of: the record that it keeps, and what an update can make of it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from builder.model.text import to_dataclass
from builder.sif.bounded import parse_json

RECORD = "installation.json"  # in the plan folder, and in `share` of the installation
SCHEMA = 1
LIMIT = 16 * 1024 * 1024  # bytes
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class InstalledFile:
    """The environment file without its pip section, the lines of that section, and the commands of the recipe."""

    environment: str
    pip: tuple[str, ...] = ()
    run: tuple[str, ...] = ()


def to_json(record: InstalledFile) -> str:
    """Write a record as JSON text."""
    return json.dumps({"schema": SCHEMA, **dataclasses.asdict(record)}, indent=1, sort_keys=True) + "\n"


def from_json(text: bytes) -> InstalledFile:
    """Read a record; raises ValueError."""
    return to_dataclass(InstalledFile, parse_json(text, limit=LIMIT), schema=SCHEMA, what="record")


def list_obstacles(old: InstalledFile, new: InstalledFile) -> Iterator[str]:
    """Say what an update cannot do: it calls pip for what is new or has another version, and runs new commands."""
    if old.environment != new.environment:
        before, after = old.environment.splitlines(), new.environment.splitlines()
        changed = [f"- {line.strip(' -')}" for line in before if line not in after]
        changed += [f"+ {line.strip(' -')}" for line in after if line not in before]
        yield f"the conda part changed ({', '.join(changed) or 'in its order'})"
    if removed := sorted(_list_names(old.pip) - _list_names(new.pip)):
        yield f"pip removes nothing ({', '.join(removed)})"
    if new.run[: len(old.run)] != old.run:
        yield "a command of container.run that has run was changed or removed"


def _list_names(lines: tuple[str, ...]) -> set[str]:
    """The packages of some lines for pip; a line with a path or an address is its own name."""
    found = set[str]()
    for line in lines:
        match = _NAME.match(line)
        path = match is None or "/" in line.partition("@")[0]
        if not line.startswith("-"):
            found.add(line if match is None or path else canonicalize_name(match.group()))
    return found
