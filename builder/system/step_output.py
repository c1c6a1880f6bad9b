"""What the programs of a step write, read while they work: their output for a log, and the events that they report.

Only whole lines are read, and no more of a file than its writers fill; what is no event of ours is left out.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from builder.sif.bounded import parse_json
from builder.sif.errors import LIMIT
from builder.sif.tree import READ, keep
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


LINE_LIMIT = 4_000  # characters of one line that are kept
HOLD_LIMIT = 65_536  # characters that are held while a line has no end
LOG_LIMIT = 32 * 1024 * 1024  # characters of a log before only its end is kept
TAIL_LINES = 400  # what explain() looks at

_TERMINAL_CODES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor, clear line
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|\x1b[ -/]*[0-~]"  # all other two- and three-letter codes
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f]"  # what is left of control characters; the tab stays
)


@dataclass(frozen=True)
class Line:
    """One line of output; a passing one was written to be overwritten (a spinner, a progress bar)."""

    text: str
    passing: bool = False


def clean(text: str) -> str:
    """Take terminal codes and control characters out of one line."""
    return text if text.isprintable() else _TERMINAL_CODES.sub("", text).rstrip()


def shorten(text: str) -> str:
    """Cut a line that is too long to read."""
    left_out = len(text) - LINE_LIMIT
    return text if left_out <= 0 else f"{text[:LINE_LIMIT]} ... ({left_out} characters more)"


class Lines:
    """Split a stream of bytes into lines. Of frames that overwrite one another only the last becomes a line."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""
        self._frame = ""
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[Line]:
        """Yield the lines that these bytes complete."""
        *whole, rest = (self._rest + self._decoder.decode(data)).split("\n")
        for text in whole:
            if self._skipping:
                self._skipping = False
            else:
                yield Line(self._find_last_frame(text))
        self._rest = rest
        yield from self._split_frames()
        if len(self._rest) > HOLD_LIMIT:
            if not self._skipping:
                yield Line(clean(self._rest))
            self._rest, self._frame, self._skipping = "", "", True

    def close(self) -> Iterator[Line]:
        """Yield what was written without a line end."""
        text = self._find_last_frame(self._rest + self._decoder.decode(b"", final=True))
        if text and not self._skipping:
            yield Line(text)
        self._rest = ""

    def _split_frames(self) -> Iterator[Line]:
        if "\r" not in self._rest or self._skipping:
            return
        *frames, self._rest = self._rest.split("\r")
        shown = next((text for frame in reversed(frames) if (text := clean(frame))), "")
        if shown:
            self._frame = shown
            yield Line(shown, passing=True)

    def _find_last_frame(self, text: str) -> str:
        if "\r" in text or self._frame:
            frames = text.split("\r")
            last = next((found for frame in reversed(frames) if (found := clean(frame))), self._frame)
            self._frame = ""
            return last
        return clean(text)


class StepLog:
    """The log file of one step, written as the output comes; the last lines are kept in memory too."""

    def __init__(self, path: Path, *, on_line: Callable[[str], None], mask: Callable[[str], str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Never through a link that somebody has put there. Closed by __exit__.
        handle = keep(path.parent.parent.resolve(), f"{path.parent.name}/{path.name}")
        self._file = os.fdopen(handle, "w", encoding="utf-8", errors="replace")
        with suppress(OSError):
            self._file.truncate(0)
        self._on_line = on_line
        self._mask = mask
        self._lines = Lines()
        self._written = 0
        self._left_out = 0
        self._recent: deque[str] = deque(maxlen=TAIL_LINES)
        self._full_disk = False

    def __enter__(self) -> StepLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._left_out:
            kept = list(self._recent)[-min(self._left_out, TAIL_LINES) :]
            self._write_line([f"... {self._left_out - len(kept)} lines are left out here ...", *kept])
        with suppress(OSError):
            self._file.close()

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines, masked and short."""
        return tuple(self._recent)

    def receive(self, data: bytes) -> None:
        """Add output of the child."""
        self._keep(self._lines.feed(data))

    def finish(self) -> None:
        """Add output without a line end."""
        self._keep(self._lines.close())

    def _keep(self, lines: Iterator[Line]) -> None:
        batch: list[str] = []
        try:
            for line in lines:
                text = shorten(self._mask(line.text))
                if not line.passing:
                    batch.append(text)
                    self._recent.append(text)
                self._on_line(text)
        finally:
            self._write(batch)

    def _write(self, batch: list[str]) -> None:
        if not batch:
            return
        if self._written > LOG_LIMIT:
            self._left_out += len(batch)
            return
        self._write_line(batch)
        self._written += sum(map(len, batch)) + len(batch)

    def _write_line(self, batch: list[str]) -> None:
        # The build may have filled the very disk that the log is on: its own message is in `tail` then.
        if self._full_disk:
            return
        try:
            self._file.write("\n".join(batch) + "\n")
            self._file.flush()
        except OSError:
            self._full_disk = True
