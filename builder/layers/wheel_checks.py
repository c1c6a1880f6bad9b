"""Whether wheels that were unpacked here are whole: an installer trusts what they say of themselves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..sif.errors import LayeringError
from ..sif.programs import ask
from ..sif.tree import TreeError, open_folder_below, read
from .wheels import NAME, Group, Pin, Resolver, name_wheel, normalize_name

METADATA = 16 << 20  # bytes of the METADATA of one wheel
UNLISTED = ("/", ".pyc", "/RECORD", "/RECORD.jws", "/RECORD.p7s")  # folders, what is compiled again, and signatures
SHOWN = 3  # names in a message
CLEANING = 60.0  # seconds
# uv 0.13; older ones leave the RECORD as it is.
_CORRECTED = re.compile(r"Files? (`.+`) (?:is|are) listed in `RECORD` but missing [^`]*`([^`=]+)==([^`]+)`")
_UNLISTED = re.compile(r"Failed to \w+ `([^`=]+)==([^`]+)`\n[^\n]*\.dist-info/RECORD`: No such file")
_PLAIN = re.compile(rf"{NAME.pattern}(?![A-Za-z0-9+._-]*:)[^;]*$")  # a name, without a condition; no address
_REQUIRES = re.compile(r"^Requires-Dist:", re.MULTILINE | re.IGNORECASE)
Rows = Mapping[str, Sequence[str]]  # paths of a RECORD, by the folder of the distribution


def check_said(text: str, *, resolver: Resolver) -> None:
    """Raise LayeringError where uv says that it has corrected the RECORD of a wheel that is not whole.

    It has put the wheel into its cache, where the next build would not learn of it: it is removed there. Raise it as
    well for a wheel without a RECORD, which uv cannot install.
    """
    if found := _UNLISTED.search(text):
        message = f"the wheel of '{found[1]} {found[2]}' is damaged: it has no RECORD, the list of its files"
        raise LayeringError(message, fix=_suggest(found[1]))
    for found in _CORRECTED.finditer(text):
        if missing := _select_listed(re.findall(r"`([^`]+)`", found[1])):
            with suppress(LayeringError):
                env = resolver.make_environment()
                ask([resolver.uv, "cache", "clean", "--quiet", found[2]], env=env, seconds=CLEANING)
            raise _make_error(found[2], found[3], missing)


def _select_listed(paths: Iterable[str]) -> list[str]:
    """The files of a RECORD that must be there, with slashes: tools on Windows have written folders and backslashes."""
    names = (path.replace("\\", "/") for path in paths)
    return [name for name in names if not name.endswith(UNLISTED)]


def check_wheels(group: Group, tree: Path, inside: str, *, records: Rows, requested: Iterable[str]) -> None:
    """Raise LayeringError for a wheel of a group that is not there, lacks files, or is empty where it should not be.

    A wheel without files is usual for a package that only requires others; not for one that the recipe names.
    """
    names, wanted = _Names(tree), set(requested)
    found = {normalize_name(info.removesuffix(".dist-info").rsplit("-", 1)[0]): info for info in records}
    for pin in group.pins:
        info = found.get(pin.name)
        if info is None:
            message = f"'{_write(pin)}' was installed without an error, and it is not there"
            raise LayeringError(message, fix=_suggest(pin.name))
        own = [path for path in records[info] if not path.startswith(f"{info}/")]
        missing = [path for path in _select_listed(records[info]) if not names.has(inside, path)]
        if missing:
            raise _make_error(pin.name, pin.version, missing)
        if not own and _expects_module(tree, f"{inside}/{info}", requested=pin.name in wanted):
            message = f"the wheel of '{_write(pin)}' is empty: it has no module and requires no other package"
            raise LayeringError(message, fix=f"name another version of '{pin.name}', or remove its line")


def _write(pin: Pin) -> str:
    return f"{pin.name} {pin.version}"


def _make_error(name: str, version: str, missing: Sequence[str]) -> LayeringError:
    """The error for a wheel without files of its RECORD."""
    outside = [path for path in missing if ".." in path.split("/") or path.startswith("/")]
    listed = outside or missing
    shown = ", ".join(f"'{path}'" for path in listed[:SHOWN])
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    message = f"the wheel of '{name} {version}' is not whole: its RECORD names files that it lacks: {shown}{more}"
    if outside:
        message = f"the wheel of '{name} {version}' names files outside its own folder: {shown}{more}"
        return LayeringError(message, fix=f"do not use it: name another version of '{name}', or another index")
    return LayeringError(message, fix=_suggest(name))


def _suggest(name: str) -> str:
    return (
        f"name another version of '{name}'; if the wheel on the index is whole, remove the downloaded one with "
        "`recipe cache prune --downloads`"
    )


def list_requested(texts: Iterable[str]) -> set[str]:
    """The packages that requirements files name without a condition; of a lock, which names all, none."""
    found = set[str]()
    for text in texts:
        lines = [] if "--require-hashes" in text else text.splitlines()
        found |= {normalize_name(match[1]) for line in map(name_wheel, lines) if (match := _PLAIN.match(line))}
    return found


def check_requested(requested: Iterable[str], *, present: Iterable[str]) -> None:
    """Raise LayeringError for packages that the recipe names and that no layer has."""
    if missing := sorted(set(requested) - set(present)):
        message = f"uv reported no error, and these packages are not in the image: {', '.join(missing)}"
        raise LayeringError(message, fix="name their versions in the recipe, or build with --backend apptainer")


def _expects_module(tree: Path, info: str, *, requested: bool) -> bool:
    """Whether a wheel without files names a module, or is one that the recipe names and requires nothing."""
    modules = _read_text(tree, f"{info}/top_level.txt").split()
    return bool(modules) or (requested and not _REQUIRES.search(_read_text(tree, f"{info}/METADATA")))


def _read_text(tree: Path, path: str) -> str:
    try:
        return read(tree, path, limit=METADATA).decode(errors="replace")
    except (OSError, TreeError):
        return ""


class _Names:
    """The names in folders of a tree, each folder read once."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._known: dict[str, frozenset[str]] = {}

    def has(self, inside: str, path: str) -> bool:
        """Whether a file of a RECORD is there; one that is outside the tree is not looked up."""
        place = os.path.normpath(f"{inside}/{path}")
        if path.startswith("/") or place.startswith("../"):
            return True
        folder, _, name = place.rpartition("/")
        if folder not in self._known:
            self._known[folder] = self._list(folder)
        return name in self._known[folder]

    def _list(self, folder: str) -> frozenset[str]:
        try:
            with open_folder_below(self._tree, folder) as at:
                return frozenset(os.listdir(at))
        except (OSError, TreeError):
            return frozenset()
