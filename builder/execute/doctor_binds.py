"""What the administrator binds into every container: `bind path` in the files of Apptainer and SingularityCE."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from builder.execute.doctor_readings import Reading
from builder.model.text import sanitize

ENGINES = ("apptainer", "singularity")
LIMIT = 1 << 20  # bytes of a configuration; the one of Apptainer 1.4.5 has 20 KB
_BIND = re.compile(r"^\s*bind path\s*=\s*([^:\s]+)", re.MULTILINE)
_AROUND = "`apptainer run --no-mount bind-paths` leaves it out of one run"


def examine_bind_paths(found: Mapping[str, Path], *, root: Path) -> list[Reading]:
    """A reading for each bind path that is missing here or that other users can change."""
    readings = list[Reading]()
    for file in dict.fromkeys(_list_configurations(found, root=root)):
        try:
            with file.open("rb") as source:
                text = source.read(LIMIT).decode(errors="replace")
        except OSError:
            continue
        for path in dict.fromkeys(_BIND.findall(text)):
            if fault := _find_fault(path, root=root):
                says = f"{sanitize(path, limit=200)} of {file} {fault}"
                fix = f"ask the administrator to correct the line `bind path` there; {_AROUND}"
                readings.append(Reading(name="bind path", state="none", says=says, fix=fix, group="engines"))
    return readings


def _list_configurations(found: Mapping[str, Path], *, root: Path) -> Iterator[Path]:
    """The file of each engine: below its own prefix, else in /etc; one program may have both names."""
    for name in {path.resolve(): name for name in reversed(ENGINES) if (path := found.get(name))}.values():
        prefix = found[name].resolve().parent.parent
        for top in (prefix / "etc", root / "etc"):
            if (file := top / name / f"{name}.conf").is_file():
                yield file
                break


def _find_fault(path: str, *, root: Path) -> str:
    """What is wrong with a source of a bind, "" where nothing is."""
    place = root / path.lstrip("/")
    try:
        where = place.resolve(strict=True)
    except (OSError, RuntimeError):
        return "is not on this machine: each start of an image warns of it"
    for part in (where, *where.parents):
        mode = part.stat().st_mode
        if part == root.resolve():
            break
        if mode & stat.S_IWOTH and not (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
            whose = "it" if part == where else f"'{part}'"
            return f"can be changed by every user, who can write to {whose}: they choose what your containers see there"
    return ""
