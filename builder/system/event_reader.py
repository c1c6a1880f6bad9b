"""The events that the programs of a step report, read while they work: lines of JSON that may hold anything.

Only whole lines are read, and no more of a file than its writers fill; what is no event of ours is left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builder.sif.bounded import parse_json
from builder.sif.events import LIMIT
from builder.sif.tree import READ
from builder.system.trust import open_below

LINE = 64 * 1024  # bytes; what is longer is no event
MOST = LIMIT + LINE  # bytes of a file: several writers may pass the limit by a line each


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event: `whole`, `answer`, `error` or `progress`, and what belongs to it."""

    name: str
    data: Mapping[str, Any]

    def get_text(self, key: str) -> str:
        """A text of it, "" where there is none."""
        value = self.data.get(key)
        return value if isinstance(value, str) else ""

    def count(self, key: str) -> int:
        """A number of it that is not negative, 0 where there is none."""
        value = self.data.get(key)
        return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0

    def get_table(self, key: str) -> Mapping[str, Any]:
        """A table of it, empty where there is none."""
        value = self.data.get(key)
        return value if isinstance(value, dict) else {}


@dataclass(kw_only=True)
class EventReader:
    """The new events of a growing file; `opened` gives a handle of it, and raises OSError while there is none."""

    opened: Callable[[], int]
    mask: Callable[[str], str] = str
    _offset: int = 0
    _rest: bytes = b""
    _skip: bool = field(default=False)  # the rest of a line that is too long

    def read(self) -> list[Event]:
        try:
            with os.fdopen(self.opened(), "rb", buffering=0) as file:
                file.seek(self._offset)
                data = file.read(MOST - self._offset) if self._offset < MOST else b""
        except OSError:
            return []
        self._offset += len(data or b"")
        *lines, self._rest = (self._rest + (data or b"")).split(b"\n")
        if self._skip and lines:
            lines, self._skip = lines[1:], False
        if len(self._rest) > LINE:
            self._rest, self._skip = b"", True
        return [event for line in lines if (event := self._parse_event(line)) is not None]

    def _parse_event(self, line: bytes) -> Event | None:
        if len(line) > LINE or not line.lstrip().startswith(b"{"):
            return None
        try:
            found = parse_json(self.mask(line.decode("utf-8", errors="replace")))
        except ValueError:
            return None
        if not isinstance(found, dict) or not isinstance(found.get("event"), str):
            return None
        return Event(name=found["event"], data=found)


def open_events(path: Path, *, mask: Callable[[str], str] = str) -> EventReader:
    """The events of a file that this process has made, in a folder of its own."""

    def opened() -> int:
        handle = os.open(path, READ)
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            os.close(handle)
            raise OSError(f"'{path}' is no file of events")
        return handle

    return EventReader(opened=opened, mask=mask)


def open_events_below(folder: Path, name: str, *, mask: Callable[[str], str] = str) -> EventReader:
    """The events of a file below a plan folder, all of which is ours and none of it a link."""
    return EventReader(opened=lambda: open_below(folder, name), mask=mask)


def make_events_file(path: Path) -> None:
    """Make an empty file for events, for this user alone; raises OSError."""
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
