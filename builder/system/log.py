"""Output of a child process for a log: lines without terminal codes, in a file of limited size."""

from __future__ import annotations

import codecs
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from builder.sif.tree import keep

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
