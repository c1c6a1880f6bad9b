"""The temporary folder of one build, and the environment of its steps.

The environment is the user's, without variables that would change the image while it is built.
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
from builder.layers.private_folders import PrivateError, ensure_temporary_parent
from builder.layers.uv import VARIABLE, find_own_uv
from builder.model.finding import Finding, Location, ToolError
from builder.sif.bounded import parse_json
from builder.system.files import remove_tree, write_atomic
from builder.system.layout import STATE_FILE
from builder.system.process_tree import end_marked
from builder.system.trust import read_below

TMPDIR = "RECIPE_TMPDIR"
RESULTS_VARIABLE = "RECIPE_RESULTS"  # for plan folders that are run by hand: recipe reads results in the plan folder

# Site modules set these for running. While an image is built, a bind to a path it does not have ends the build
# (OLCF documentation, "Containers on Frontier"; LUMI training Q&A).
BINDS = ("BIND", "BINDPATH", "MOUNT", "CONTAINLIBS")
REMOVED = tuple(f"{program}_{name}" for program in ("APPTAINER", "SINGULARITY") for name in BINDS)


def make_step_environment(user: Mapping[str, str], *, scratch: Path) -> dict[str, str]:
    """Return the environment of a step's script."""
    kept = {name: value for name, value in user.items() if name not in (*REMOVED, RESULTS_VARIABLE)}
    # Programs that were installed with recipe come last; our own Python.
    path = os.pathsep.join([kept.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    return {
        **kept,
        TMPDIR: str(scratch),
        "PATH": path,
        VARIABLE: kept.get(VARIABLE) or find_own_uv(),
        "RECIPE_PYTHON": kept.get("RECIPE_PYTHON") or sys.executable,
        # The plan folder has a copy of it; ours is compiled already.
        "RECIPE_LAYERING": str(Path(builder.__file__).with_name("layers")),
    }


LIMIT = 64 * 1024  # bytes
_OURS = re.compile(r"recipe-\d+-.+|\..+\.recipe-\d+(?:-[0-9a-f]{8})?(?:\.old)?")


def remove_leftovers(folder: Path) -> tuple[Path, ...]:
    """Remove what an earlier build in this folder recorded and could not remove; return what was removed.

    The caller holds the folder's lock: no other build is alive in it.
    """
    state = folder / STATE_FILE
    removed = []
    with suppress(OSError, ValueError, TypeError, KeyError):
        recorded = parse_json(read_below(folder, STATE_FILE, limit=LIMIT))
        paths = [path for text in recorded["temporary"] if _is_ours(path := Path(str(text)))]
        if recorded.get("host") == os.uname().nodename:
            # A killed build could not stop its step, which would still write into this folder.
            for path in paths:
                end_marked(f"{TMPDIR}={path}\0".encode())
        removed += [path for path in paths if remove_tree(path)]
    with suppress(OSError):
        state.unlink(missing_ok=True)
    return tuple(removed)


@contextmanager
def make_scratch_folder(folder: Path, *, parent: Path, also: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Make the build's own temporary folder in `parent`, recorded in the plan folder and removed at the end.

    `also` are paths that the build may make elsewhere and that the next one removes if this one is killed. Raises
    ToolError when the folder cannot be made.
    """
    parent = find_private_parent(parent)
    path = parent / f"recipe-{os.getpid()}-{os.urandom(6).hex()}"
    state = folder / STATE_FILE
    try:
        content = {"pid": os.getpid(), "host": os.uname().nodename, "temporary": [str(path), *map(str, also)]}
        write_atomic(state, json.dumps(content, indent=1) + "\n")  # before there is anything to remove
        try:
            path.mkdir(0o700)
        except OSError as error:
            raise ToolError(_make_folder_finding(parent, error)) from None
        yield path
    finally:
        if all([remove_tree(left) for left in (path, *also)]):  # noqa: C419 - all of them, also after a failure
            state.unlink(missing_ok=True)


def find_private_parent(path: Path, *, make: bool = False) -> Path:
    """Return a folder for temporary folders that no other user can replace, as a path without links.

    With `make` it is created if it is missing. Raises ToolError if it is missing, another user's or writable for
    others, and with `make` OSError if it cannot be created.
    """
    try:
        if not make:
            path.stat()
        return ensure_temporary_parent(path, instead=f"choose a folder of your own with --tmpdir ({TMPDIR})")
    except PrivateError as error:
        finding = Finding(code="no-tmpdir", message=str(error), at=Location(file=str(error.path)), fix=error.fix)
        raise ToolError(finding) from None
    except OSError as error:
        if make:
            raise
        raise ToolError(_make_folder_finding(path, error)) from None


def check_parent(path: Path) -> None:
    """Raise ToolError if a build cannot make a temporary folder in a folder; make nothing."""
    parent = find_private_parent(path)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ToolError(_make_folder_finding(parent, PermissionError(errno.EACCES, os.strerror(errno.EACCES))))


@contextmanager
def make_work_folder(prefix: str) -> Iterator[Path]:
    """Make a temporary folder for a command, removed at its end; raises ToolError if that is not safe."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix=prefix, dir=find_private_parent(Path(tempfile.gettempdir()))) as folder:
        yield Path(folder)


def _make_folder_finding(parent: Path, error: OSError) -> Finding:
    message = f"no temporary folder can be made in '{parent}': {(error.strerror or str(error)).lower()}"
    fix = "choose another place with --tmpdir"
    return Finding(code="no-tmpdir", message=message, at=Location(file=str(parent)), fix=fix)


def _is_ours(path: Path) -> bool:
    """Whether a recorded path is certainly a build's own: its name, its owner, and not a link."""
    try:
        return path.is_absolute() and bool(_OURS.fullmatch(path.name)) and path.lstat().st_uid == os.getuid()
    except OSError:
        return False
