"""Files that a command writes where the user says: no input and no file of another kind is ever replaced."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from builder.model.finding import ConfigError, Finding, Location, ToolError
from builder.model.text import sanitize
from builder.pipeline.own_inputs import check_not_inputs
from builder.system.files import write_atomic

FULL = (errno.ENOSPC, errno.EDQUOT)
HEAD = 64 * 1024  # bytes of an existing file that show its kind


@dataclass(frozen=True, kw_only=True)
class OutputFile:
    """A file to write: `what` it is in words, and whether the first bytes of an existing one are of this kind.

    `option` is what names it, "" where its name is made from that of another file.
    """

    path: Path
    what: str
    is_own: Callable[[bytes], bool]
    option: str = ""
    inputs: Iterable[tuple[str, Path]] = ()

    def check(self) -> None:
        """Raise ConfigError where the file exists and is an input, not regular, or of another kind."""
        check_not_inputs(self.inputs, image=self.path, folder=None, option=self.option or "-o")
        if not os.path.lexists(self.path):
            return
        other = f"choose another file with {self.option}" if self.option else "rename the file that it is made from"
        if self.path.is_dir():
            raise self._make_error("output-exists", "is a folder", fix=other)
        if not self.path.is_file():
            raise self._make_error("output-exists", "exists and is not a regular file", fix=other)
        if not self.is_own(_read_head(self.path)):
            raise self._make_error("output-exists", f"exists and is not {self.what}", fix=f"remove it, or {other}")

    def write(self, text: str) -> None:
        """Write the file, or replace an earlier one of this kind; raises ConfigError, and ToolError on a full disk."""
        self.check()
        try:
            write_atomic(self.path, text)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            fix = f"choose another file with {self.option}"
            if error.errno in FULL:
                at = Location(file=str(self.path))
                message = f"'{sanitize(str(self.path), limit=400)}' cannot be written: {reason}"
                raise ToolError(Finding(code="no-space", message=message, fix=f"make room, or {fix}", at=at)) from None
            raise self._make_error("output-unwritable", f"cannot be written: {reason}", fix=fix) from None

    def _make_error(self, code: str, says: str, *, fix: str) -> ConfigError:
        shown = sanitize(str(self.path), limit=400)
        return ConfigError(Finding(code=code, message=f"'{shown}' {says}", fix=fix, at=Location(file=shown)))


def _read_head(path: Path) -> bytes:
    """The first bytes of a file, b"" where it cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(HEAD)
    return b""
