"""Exceptions as findings: expected failures of a machine, and faults of the program itself."""

from __future__ import annotations

import ast
import errno
import os
import re

from builder.model.finding import BuilderError, ConfigError, Finding, Location, ToolError

RIGHTS = "choose a place of your own, or ask its owner for the right"
FIXES = {
    errno.ENOENT: "make the folder first, or check the path",
    errno.EACCES: RIGHTS,
    errno.EPERM: RIGHTS,
    errno.EROFS: "choose a place that can be written",
    errno.ENOSPC: "free space there, or choose another place",
    errno.EDQUOT: "free space there (your quota is used up), or choose another place",
    errno.ENAMETOOLONG: "use a shorter name",
    errno.EISDIR: "name a file, not a folder",
    errno.ENOTDIR: "a part of the path is a file: check the path",
    errno.EMFILE: "raise the limit of open files with `ulimit -n`",
    errno.ELOOP: "a link in the path leads back to itself: check the path",
}
# Before Python 3.13 Path.resolve reports a link that leads back to itself so, not as an OSError.
_LOOP = re.compile(r"Symlink loop from (.+)", re.DOTALL)
FULL = (errno.ENOSPC, errno.EDQUOT)


def expected(error: Exception) -> BuilderError | None:
    """The findings and exit code of an expected exception; None for a fault of the program."""
    if isinstance(error, BuilderError):
        return error
    # What Python raises where the system refuses a thread has no class of its own.
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't start new thread" in str(error)):
        message, fix = "there is not enough memory for this", "free some, or run it on a node with more"
        return ToolError(Finding(code="no-memory", message=message, fix=fix))
    if isinstance(error, OSError) and error.errno is not None:
        return _refused(error, error.errno)
    if isinstance(error, RuntimeError) and (loop := _LOOP.fullmatch(str(error))):
        return _refused(OSError(errno.ELOOP, os.strerror(errno.ELOOP), ast.literal_eval(loop[1])), errno.ELOOP)
    return None


def _refused(error: OSError, number: int) -> BuilderError:
    """A finding for an error of the system: the path, the reason and the fix."""
    path = next((str(name) for name in (error.filename2, error.filename) if name), "")
    reason = (error.strerror or str(error)).lower()
    message = f"'{path}': {reason}" if path else f"the system reported: {reason}"
    code = "no-space" if number in FULL else "path-refused"
    fix = FIXES.get(number, "check the path and its permissions")
    finding = Finding(code=code, message=message, at=Location(file=path) if path else None, fix=fix)
    return ToolError(finding) if number in FULL else ConfigError(finding)
