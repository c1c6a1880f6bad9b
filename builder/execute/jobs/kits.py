"""A folder of kits: kits.json, which names them, and the arrays that run them."""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from builder.execute.names import KITS_FILE, PLAN_FILE
from builder.execute.tree import write_whole
from builder.execute.trust import read_below
from builder.layering.bounded import parse_json
from builder.model.finding import ConfigError, Finding, Place
from builder.model.plain_path import is_plain
from builder.model.plan import Plan
from builder.model.safe import shown
from builder.model.typed import typed

SCHEMA = 1

LIMIT = 16 * 1024 * 1024  # bytes


@dataclass(frozen=True, kw_only=True)
class NamedKit:
    """One kit: the name it is shown by, its site, and its plan folder beside kits.json."""

    name: str
    site: str
    folder: str


@dataclass(frozen=True, kw_only=True)
class _Index:
    kits: tuple[NamedKit, ...]


def write_kits(folder: Path, *, kits: Sequence[NamedKit], arrays: Sequence[Plan]) -> None:
    """Write the index and the arrays' scripts; arrays of an earlier call for the same sites go, other kits stay listed.

    Raises ConfigError when the folder cannot be written.
    """
    names = {kit.name for kit in kits}
    others = [
        kit for kit in read_kits(folder) or () if kit.name not in names and (folder / kit.folder / PLAN_FILE).is_file()
    ]
    try:
        for plan in arrays:
            _remove_old(folder, plan)
            for file in plan.files:
                write_whole(folder / file.path, file.text)
                if file.executable:
                    mode = stat.S_IMODE((folder / file.path).stat().st_mode)
                    (folder / file.path).chmod(mode | (mode & 0o444) >> 2)  # whoever may read it may run it
        content = {"schema": SCHEMA, "kits": [asdict(kit) for kit in (*others, *kits)]}
        write_whole(folder / KITS_FILE, json.dumps(content, indent=1) + "\n")
    except OSError as error:
        message = f"the folder '{folder}' cannot be written: {(error.strerror or str(error)).lower()}"
        fix = "choose another folder with -o, or give it the rights and the space"
        raise ConfigError(Finding(code="folder-unwritable", message=message, fix=fix)) from None


def _remove_old(folder: Path, plan: Plan) -> None:
    now = {file.path for file in plan.files}
    for path in folder.glob(f"array-{plan.site}-[0-9]-*.sbatch"):
        if path.name not in now:
            with suppress(OSError):
                path.unlink()


def read_kits(folder: Path) -> tuple[NamedKit, ...] | None:
    """Read the index, None when there is none; raises ConfigError when it is damaged."""
    path = folder / KITS_FILE
    try:
        content = read_below(folder, KITS_FILE, limit=LIMIT)
        kits = typed(_Index, parse_json(content), schema=SCHEMA, what="list of kits").kits
        if not all(is_plain(kit.folder) and "/" not in kit.folder for kit in kits):
            raise ValueError("it leads out of its folder")
        if len({kit.name for kit in kits}) < len(kits):
            raise ValueError("two kits have one name")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        message = f"the list of kits in '{folder}' cannot be read: {shown(str(error), limit=200)}"
        fix = "write it again with `recipe plan`, or name one kit"
        raise ConfigError(Finding(code="kits-file", message=message, at=Place(file=str(path)), fix=fix)) from None
    return kits
