"""Who can write and who can read a file of settings: it names the folders and servers that builds trust."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from builder.model.config import ConfigFile, Owner
from builder.model.finding import Finding, Location
from builder.model.secrets import has_login
from builder.model.text import sanitize


def find_distrust(path: str, *, owner: Owner) -> Finding | None:
    """Why a file, or the folder that holds it, may be the work of another user; raises OSError."""
    real = Path(os.path.realpath(path))
    for place in dict.fromkeys((real, Path(path).parent, real.parent)):
        found = place.stat()
        who = ""
        # The system's folders may be those of a centre's software, which its staff owns.
        if found.st_uid not in (0, os.geteuid()) and owner == "user":
            who, fix = f"belongs to another user (uid {found.st_uid})", "make one of your own"
        elif found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            who = "may be written by every user of this machine"
            fix = f"look at what is in it, then `chmod o-w {shlex.quote(str(place))}`"
        if who:
            what = "config file" if place == real else "folder of the config file"
            message = f"the {what} '{sanitize(str(place), limit=400)}' {who}: it is not used"
            return Finding(code="config-foreign", message=message, at=Location(file=path), fix=fix, level="warning")
    return None


def find_open_login(file: ConfigFile) -> Iterator[Finding]:
    """Warn of a login that other users can read; raises OSError."""
    indexes = (key for key, value in file.values.items() if key.startswith("indexes.") and has_login(value))
    named = next(indexes, "")
    if named and Path(file.path).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        message = "the address of an index has a login in it, and other users may read the file"
        at, fix = Location(file=file.path, line=file.lines[named], key=named), f"`chmod 600 {shlex.quote(file.path)}`"
        yield Finding(code="config-login", message=message, at=at, fix=fix, level="warning")
