"""What a path of the user's is, and what is in this folder that a command takes: for messages that name a whole line.

Only read where something is wrong already.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from builder.model.finding import ConfigError
from builder.parse.yaml import PROJECTS, USUAL
from builder.system.layout import JOBS, PLAN_FILE, REPORT_FILE, SUBMITTED_FILE, plan_folder

Kind = Literal[
    "an environment file", "a site file", "a lock", "an image", "an archive", "a plan folder", "a folder",
    "an empty file", "a text file", "a file of another kind", "a pipe, a socket or a device",
]  # fmt: skip
HEAD = 65_536  # bytes of a file that say what it is
# Keys that every site file of a user's has, and that no environment file has.
SITE_KEYS = re.compile(r"^(?:extends|scheduler|base_images)\s*:", re.MULTILINE)
ENVIRONMENT_KEYS = re.compile(r"^(?:dependencies|channels|container)\s*:", re.MULTILINE)
# Of a project that lists packages, and of an environment in JSON; many a pyproject.toml is for a linter alone.
PROJECT_KEYS = (
    r"^\[(?:project|dependency-groups|workspace|dependencies|pypi-dependencies|tool\.pixi\.[^\]\n]*)\]"
    r"|^\s*\{?\s*\"(?:dependencies|channels)\"\s*:"
)
IMAGES, ARCHIVES, LISTS = (".sif", ".sqsh", ".squashfs"), (".tar",), (".txt", ".in")
_MAGIC = (32, b"SIF_MAGIC")  # where it is in a SIF, and what
_SQUASHFS = b"hsqs"


def find_kind(path: Path) -> Kind | None:
    """What a path is, by its name and its first bytes; None where it does not exist or cannot be read."""
    try:
        if path.is_dir():
            return "a plan folder" if (path / PLAN_FILE).is_file() or path.suffix == ".plan" else "a folder"
        if not path.is_file():
            return "a pipe, a socket or a device" if path.exists() else None
        with path.open("rb") as file:
            head = file.read(HEAD)
        return _find_kind_of_file(path, head)
    except (OSError, ValueError):
        return None


def _find_kind_of_file(path: Path, head: bytes) -> Kind:
    start, magic = _MAGIC
    if not head:
        return "an empty file"
    if head[start : start + len(magic)] == magic or head.startswith(_SQUASHFS):
        return "an image"
    if b"\0" in head:  # as in every archive
        return "an archive" if _is_archive(path) else "a file of another kind"
    text = head.decode(errors="replace")
    if path.suffix in (".yml", ".yaml"):
        if path.name.endswith(".lock.yml"):
            return "a lock"
        if ENVIRONMENT_KEYS.search(text):
            return "an environment file"
        return "a site file" if SITE_KEYS.search(text) else "a text file"
    if path.suffix in (".toml", ".json"):
        return "an environment file" if re.search(PROJECT_KEYS, text, re.MULTILINE) else "a text file"
    return "an environment file" if path.suffix in LISTS else "a text file"


def _is_archive(path: Path) -> bool:
    from builder.sif.archive import ArchiveError, is_archive  # few paths are looked at so closely

    try:
        return is_archive(path)
    except ArchiveError:
        return False


def find_free_name(target: Path) -> Path:
    """A name that nothing has yet: the file's own, else NAME-2.yml ..."""
    number, found = 1, target
    while os.path.lexists(found):
        number += 1
        found = target.with_name(f"{target.stem}-{number}{target.suffix or '.yml'}")
    return found


def list_environments() -> list[str]:
    """The environment files of this folder, those with a usual name first."""
    found = [name for name in USUAL if Path(name).is_file()]
    yaml = [path for path in _here(".yml", ".yaml") if find_kind(Path(path)) == "an environment file"]
    lists = (name for name in _here(".txt") if name.startswith("req"))
    projects = [name for name in (*PROJECTS, *_here(".json")) if find_kind(Path(name)) == "an environment file"]
    return list(dict.fromkeys([*found, *yaml, *lists, *projects]))


def list_images() -> list[str]:
    """The images of this folder, those whose build was recorded first."""
    found = [name for name in _here(*IMAGES) if _is_whole(Path(name))]
    return sorted(found, key=lambda name: not (plan_folder(Path(name)) / REPORT_FILE).is_file())


def list_archives() -> list[str]:
    """The archives of this folder."""
    return [name for name in _here(*ARCHIVES) if find_kind(Path(name)) == "an archive"]


def list_measured() -> list[str]:
    """The images with a report next to them, then the plan folders with one."""
    images = [name for name in list_images() if (plan_folder(Path(name)) / REPORT_FILE).is_file()]
    plans = [str(path.parent) for path in sorted(Path().glob(f"*/{REPORT_FILE}"))]
    return [*images, *(name for name in plans if f"{name.removesuffix('.plan')}.sif" not in images)]


def list_submitted(folder: Path) -> list[str]:
    """The plan folders in a folder from which jobs were submitted."""
    found = [path.parents[1] for path in sorted(folder.glob(f"*/{JOBS}/{SUBMITTED_FILE}"))]
    return [str(path) for path in found if (path / PLAN_FILE).is_file()]


def _is_whole(path: Path) -> bool:
    """Whether a path is an image that does not end before its end."""
    from builder.inspect.image import check_image

    try:
        check_image(path)
    except (ConfigError, OSError):
        return False
    return True


def _here(*ends: str) -> list[str]:
    try:
        return sorted(item.name for item in os.scandir() if item.name.endswith(ends) and not item.name.startswith("."))
    except OSError:
        return []
