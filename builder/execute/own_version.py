"""What a package in a folder of the recipe knows of its version from git: its `.git` is not copied into an image.

setuptools-scm, and hatch-vcs by it, read the file `.git_archival.txt` of a git archive instead: version and
list of files (https://setuptools-scm.readthedocs.io/en/latest/usage/#git-archives). It has no address.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from builder.system.process import find_program, read_output

ARCHIVAL = ".git_archival.txt"
READERS = ("setuptools_scm", "setuptools-scm", "hatch-vcs", "vcs-versioning")
NAMED_IN = ("pyproject.toml", "setup.py", "setup.cfg")
LARGEST = 1 << 20  # bytes of one of these
SECONDS = 30.0
# Of a foreign repository nothing is run and nothing fetched; git itself refuses one of another user.
ALONE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks", "--no-pager")
CLOSED = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C.UTF-8"}


def make_archival(source: Path, *, environment: Mapping[str, str]) -> str:
    """Make that file's text for a package in a folder of its own repository, "" where nothing would read it."""
    if not (source / ".git").exists() or not any(_names_reader(source / name) for name in NAMED_IN):
        return ""
    if "$Format" not in _read(source / ARCHIVAL, missing="$Format"):
        return ""  # it is that of an archive already
    node = _ask(source, "rev-parse", "HEAD", environment=environment)
    if not node:
        return ""
    described = _ask(source, "describe", "--tags", "--long", "--match", "*[0-9]*", environment=environment)
    return f"node: {node}\n" + (f"describe-name: {described}\n" if described else "")


def _names_reader(path: Path) -> bool:
    text = _read(path)
    return any(name in text for name in READERS)


def _read(path: Path, *, missing: str = "") -> str:
    if not path.is_file():
        return missing
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(LARGEST)
    except OSError:
        return missing


def _ask(source: Path, *words: str, environment: Mapping[str, str]) -> str:
    git = find_program("git", env=environment)
    if git is None:
        return ""
    kept = {name: value for name, value in environment.items() if not name.startswith("GIT_")}
    argv = [os.fspath(git), "-C", os.fspath(source), *ALONE, *words]
    said = read_output(
        argv, env={**kept, **CLOSED, "GIT_CEILING_DIRECTORIES": os.fspath(source.parent)}, limit=4096, timeout=SECONDS
    )
    text = (said or b"").decode(errors="replace").strip()
    return text if text.isprintable() else ""
