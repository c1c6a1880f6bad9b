"""The environment of a step: the user's, without what would reach into the image while it is built.

The temporary folder of one build, and what a killed build left behind.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import builder
from builder.layers.private import PrivateError, temporary_parent
from builder.layers.uv import VARIABLE, own_uv
from builder.model.finding import Finding, Place, ToolError
from builder.sif.bounded import parse_json
from builder.system.files import remove_tree, write_whole
from builder.system.layout import STATE_FILE
from builder.system.process import end_marked
from builder.system.trust import read_below

TMPDIR = "RECIPE_TMPDIR"
RESULTS = "RECIPE_RESULTS"  # for kits that are run by hand: the tool reads results where the plan folder has them

# Site modules set these for running. While an image is built, a bind to a path it does not have ends the build
# (OLCF documentation, "Containers on Frontier"; LUMI training Q&A).
BINDS = ("BIND", "BINDPATH", "MOUNT", "CONTAINLIBS")
REMOVED = tuple(f"{program}_{name}" for program in ("APPTAINER", "SINGULARITY") for name in BINDS)


def step_environment(user: Mapping[str, str], *, scratch: Path) -> dict[str, str]:
    """Give the environment that a step's script runs in."""
    kept = {name: value for name, value in user.items() if name not in (*REMOVED, RESULTS)}
    # The programs that came with us where the user's PATH has none of that name; our own Python.
    path = os.pathsep.join([kept.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    return {
        **kept,
        TMPDIR: str(scratch),
        "PATH": path,
        VARIABLE: kept.get(VARIABLE) or own_uv(),
        "RECIPE_PYTHON": kept.get("RECIPE_PYTHON") or sys.executable,
        # What the plan folder has a copy of; ours is compiled already.
        "RECIPE_LAYERING": str(Path(builder.__file__).with_name("layers")),
    }


LIMIT = 64 * 1024  # bytes
_OURS = re.compile(r"recipe-\d+-.+|\..+\.recipe-\d+(?:-[0-9a-f]{8})?(?:\.old)?")


def remove_leftovers(folder: Path) -> tuple[Path, ...]:
    """Remove what an earlier build in this folder recorded and did not live to remove; returns what it removed.

    The caller holds the folder's lock: no other build is alive in it.
    """
    state = folder / STATE_FILE
    removed = []
    with suppress(OSError, ValueError, TypeError, KeyError):
        recorded = parse_json(read_below(folder, STATE_FILE, limit=LIMIT))
        paths = [path for text in recorded["temporary"] if _is_ours(path := Path(str(text)))]
        if recorded.get("host") == os.uname().nodename:
            # A build that was killed could not end its step, which would write into this folder under the next one.
            for path in paths:
                end_marked(f"{TMPDIR}={path}\0".encode())
        removed += [path for path in paths if remove_tree(path)]
    with suppress(OSError):
        state.unlink(missing_ok=True)
    return tuple(removed)


@contextmanager
def scratch_folder(folder: Path, *, parent: Path, also: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Make the build's own temporary folder in `parent`, recorded in the plan folder and removed at the end.

    `also` are paths that the build may make elsewhere and that the next one removes if this one is killed. Raises
    ToolError when the folder cannot be made.
    """
    parent = private_parent(parent)
    path = parent / f"recipe-{os.getpid()}-{os.urandom(6).hex()}"
    state = folder / STATE_FILE
    try:
        content = {"pid": os.getpid(), "host": os.uname().nodename, "temporary": [str(path), *map(str, also)]}
        write_whole(state, json.dumps(content, indent=1) + "\n")  # before there is something to remove
        try:
            path.mkdir(0o700)
        except OSError as error:
            raise ToolError(_no_folder(parent, error)) from None
        yield path
    finally:
        if all([remove_tree(left) for left in (path, *also)]):  # noqa: C419 - every one, not up to the first failure
            state.unlink(missing_ok=True)


def private_parent(path: Path, *, make: bool = False) -> Path:
    """A folder for temporary folders, which no other user can exchange under a build; its path without links.

    With `make` it is made where it is missing. Raises ToolError where it is missing, foreign or writable for others,
    and with `make` OSError where it cannot be made.
    """
    try:
        if not make:
            path.stat()
        return temporary_parent(path, instead=f"choose a folder of your own with --tmpdir ({TMPDIR})")
    except PrivateError as error:
        finding = Finding(code="no-tmpdir", message=str(error), at=Place(file=str(error.path)), fix=error.fix)
        raise ToolError(finding) from None
    except OSError as error:
        if make:
            raise
        raise ToolError(_no_folder(path, error)) from None


def check_parent(path: Path) -> None:
    """Raise ToolError where a build can make no temporary folder in a folder; makes nothing."""
    parent = private_parent(path)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ToolError(_no_folder(parent, PermissionError(errno.EACCES, os.strerror(errno.EACCES))))


@contextmanager
def work_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder of a command, removed at its end; raises ToolError where none can be made safely."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix=prefix, dir=private_parent(Path(tempfile.gettempdir()))) as folder:
        yield Path(folder)


def _no_folder(parent: Path, error: OSError) -> Finding:
    message = f"no temporary folder can be made in '{parent}': {(error.strerror or str(error)).lower()}"
    fix = "choose another place with --tmpdir"
    return Finding(code="no-tmpdir", message=message, at=Place(file=str(parent)), fix=fix)


def _is_ours(path: Path) -> bool:
    """Whether a recorded path can be nothing but a build's own: its name, its owner, and no link."""
    try:
        return path.is_absolute() and bool(_OURS.fullmatch(path.name)) and path.lstat().st_uid == os.getuid()
    except OSError:
        return False
