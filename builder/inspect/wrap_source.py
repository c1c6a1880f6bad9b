"""What is to get wrappers: a folder with installed programs, or an image. It is read, and nothing of it is run."""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from builder.model.finding import ConfigError, Finding, Location
from builder.model.text import sanitize
from builder.system.publish import measure_image

if TYPE_CHECKING:
    from builder.sif.reader import Reader

HEAD = 4096  # bytes of a script that name its Python
MOST = 4  # names in a message
GIB = 1024**3
# The first line of a script, or the second where the path is too long for the first (pip, conda).
SHEBANG = re.compile(rb"(?:#![ \t]*|'''exec' \"?)(/[^\0\n\"]*?)/bin/(?:python|pypy)[\w.]*[\" \t\n]")
FOLDERS = ("/opt/env/bin", "/opt/conda/bin", "/usr/local/bin", "/usr/bin")  # where images have their programs
LINKS = 40  # that a path may lead through, as in the kernel
SYSTEM = ("", "/usr", "/usr/local")  # whose Python a script may name that belongs to no environment
# tykky writes paths into bash within double quotes, separates them by commas and binds them.
PLAIN = re.compile(r"[\w./+=@%-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A folder of programs: the paths that its scripts say it is at, its own Python ("" without), its size."""

    prefixes: tuple[str, ...]
    python: str
    gib: float


def check_plain(path: str, *, what: str) -> None:
    """Raise ConfigError for a path that tykky's scripts would split or expand."""
    if not PLAIN.fullmatch(path) or path.startswith("-"):
        message = f"tykky cannot be given the path of {what} '{sanitize(path, limit=400)}'"
        fix = "rename it to letters, digits and any of ._/+=@%-"
        raise ConfigError(Finding(code="wrap-path", message=message, fix=fix))


def read_installation(folder: Path, *, programs: Sequence[str]) -> Installation:
    """Read a folder that is to get wrappers; raises ConfigError where they could not start its programs."""
    if (folder / "common.sh").is_file() and (folder / "_bin").is_dir():
        message = f"'{sanitize(folder.name)}' has wrappers of tykky already"
        fix = f"add its 'bin' to PATH: export PATH={folder}/bin:$PATH"
        raise _make_error("wrap-done", message, folder, fix=fix)
    for program in programs:
        _check_program(folder, program)
    python, size = _find_python(folder), 0
    with suppress(OSError):  # what cannot be read is for the program that copies it to say
        size = measure_image(folder)
    return Installation(prefixes=tuple(_list_prefixes(folder)) if python else (), python=python, gib=size / GIB)


def _check_program(folder: Path, program: str) -> None:
    path = folder / program
    if program.startswith("/") or ".." in Path(program).parts:
        message = f"'{sanitize(program)}' is not a path in the folder '{sanitize(folder.name)}'"
        raise _make_error("wrap-path", message, folder, fix="write it without the folder, as in --wrap bin")
    executable = [path] if path.is_file() else path.iterdir() if path.is_dir() else []
    if not any(one.is_file() and os.access(one, os.X_OK) for one in executable):
        what = "no executable file" if path.exists() else "nothing"
        message = f"there is {what} at '{sanitize(program)}' in '{sanitize(folder.name)}'"
        found = list(_list_folders(folder))
        fix = f"name a folder that has programs: {', '.join(f'--wrap {name}' for name in found[:MOST])}"
        raise _make_error("wrap-missing", message, path, fix=fix if found else "name the folder of its programs")


def _list_folders(folder: Path) -> Iterator[str]:
    """The folders below a folder that have programs, by their usual names."""
    for name in ("bin", "usr/bin", "usr/local/bin", "sbin"):
        with suppress(OSError):
            if any(os.access(one, os.X_OK) for one in (folder / name).iterdir()):
                yield name


def _find_python(folder: Path) -> str:
    """The folder's own Python, "" where it has none; raises ConfigError where it is one that is not here."""
    home = _read_home(folder)
    for name in ("bin/python3", "bin/python"):
        path = folder / name
        if (path.is_symlink() and not path.exists()) or (path.is_file() and not Path(home).is_dir()):
            of = str(path.readlink()) if path.is_symlink() else home
            message = f"'{name}' of '{sanitize(folder.name)}' is of '{sanitize(of)}', which is not here"
            fix = (
                "a virtual environment has no Python of its own: write its packages down where it was made, with"
                " `pip freeze >requirements.txt`, and build that file"
            )
            raise _make_error("wrap-python", message, path, fix=fix)
        if path.is_file() and os.access(path, os.X_OK):
            return name
    return ""


def _read_home(folder: Path) -> str:
    """Where the Python of a virtual environment has its modules; the folder itself for any other."""
    with suppress(OSError, ValueError):
        for line in (folder / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home":
                return value.strip()
    return str(folder)


def _list_prefixes(folder: Path) -> Iterator[str]:
    """The paths of the environment that its scripts start their Python from, the most frequent first."""
    found: Counter[str] = Counter()
    for path in sorted((folder / "bin").iterdir()):
        with suppress(OSError):
            if not path.is_symlink() and path.is_file():
                with path.open("rb") as file:
                    head = file.read(HEAD)
                if head.startswith(b"#!") and (match := SHEBANG.search(head)):
                    found[os.fsdecode(match[1])] += 1
    for prefix, _ in found.most_common():
        if prefix not in SYSTEM and prefix.isprintable():
            yield prefix


def check_programs(image: Path, *, programs: Sequence[str]) -> None:
    """Raise ConfigError for a program or folder that an image does not have, as far as its files can be listed."""
    for program in programs:
        if not program.startswith("/"):
            message = f"'{sanitize(program)}' is not a whole path in the image '{sanitize(image.name)}'"
            raise _make_error("wrap-path", message, image, fix=f"write it from the root, as in --wrap /{program}")
        if _is_in_image(image, program) is False:
            known = [folder for folder in FOLDERS if _is_in_image(image, folder)]
            message = f"there is no program at '{sanitize(program)}' in the image '{sanitize(image.name)}'"
            fix = f"name a program, or a folder that has some: {', '.join(f'--wrap {name}' for name in known)}"
            raise _make_error("wrap-missing", message, image, fix=fix if known else "name the folder of its programs")


def _is_in_image(image: Path, path: str) -> bool | None:
    """Whether a file, or a folder that is not empty, is in an image; None where that cannot be read."""
    from builder.sif.reader import Reader
    from builder.sif.sif import SifError, read_sif
    from builder.sif.squashfs import SquashfsError

    try:
        with image.open("rb") as source:
            packed = source.read(4) == b"hsqs"
            offsets = [0] if packed else [item.offset for item in read_sif(image).objects if item.partition]
            return any(_is_in_squashfs(Reader(source, offset=offset), path) for offset in offsets) if offsets else None
    except (SifError, SquashfsError, OSError):
        return None


def _is_in_squashfs(reader: Reader, path: str) -> bool:
    from builder.sif.squashfs import FOLDER, LINK

    at, rest, links = "/", [part for part in path.split("/") if part], 0
    while rest:
        found = reader.find(place := posixpath.normpath(f"{at}/{rest.pop(0)}"))
        if found is None:
            return False
        if found.kind != LINK:
            at = place
            continue
        links += 1
        if links > LINKS:
            return False
        rest = [part for part in found.target.split("/") if part] + rest
        at = "/" if found.target.startswith("/") else at
    last = reader.find(at)
    return last is not None and (last.kind != FOLDER or bool(reader.list_names(at)))


def _make_error(code: str, message: str, path: Path, *, fix: str) -> ConfigError:
    return ConfigError(Finding(code=code, message=message, at=Location(file=sanitize(str(path), limit=400)), fix=fix))
