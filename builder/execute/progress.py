"""What the user sees of one build, or of several at once. Nothing else in this package prints.

Plain lines for logs and pipes, those of several with a name before each; on a terminal a row for each build.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO, cast

from builder.model.plan import Step
from builder.model.report import StepResult
from builder.model.text import escape_control, escape_line, format_bytes, format_clock

HEARTBEAT = 30.0  # seconds between two signs of life without a terminal
REFRESH = 0.25  # seconds between two pictures on a terminal
BAR, LEAST_BAR = 20, 4  # columns of a bar
STALE = 5.0  # seconds after which an amount is not what is being done any more

_ENDINGS = {"ok": ("done", "green"), "failed": ("FAILED", "red"), "interrupted": ("stopped", "yellow")}

# What an engine says in every build and what tells nothing of where it is (Apptainer 1.4.5); logs have it all the same.
_NOISE = re.compile(
    r"\s*$"
    r"|INFO:\s+To see mksquashfs output with progress bar enable verbose logging"
    r"|INFO:\s+Non-gzip squashfs compression might not work with some installations"
    r"|verify: (?:\{|the recipe has no torch)"  # what the image answered; a step without torch has its own words
    r"|WARNING: While bind mounting '.*': destination is already in the mount point list"
)


def is_noise(text: str) -> bool:
    """Whether a line of an engine tells nothing of what it is doing."""
    return _NOISE.match(text) is not None


class Progress:
    """What an execution tells while it runs, masked and without terminal codes; this one says nothing."""

    def begin(self, *, title: str, total: int) -> None:
        """It starts; `total` steps will run."""

    def begin_step(self, step: Step, *, number: int) -> None:
        """A step starts; steps are counted from 1."""

    def show_line(self, text: str) -> None:
        """The engine has written a line."""

    def refresh(self) -> None:
        """Time has passed; comes a few times in a second."""

    def end_step(self, result: StepResult) -> None:
        """A step has ended."""

    def show_amount(self, what: str, *, done: int, total: int) -> None:
        """So many bytes of something are done; `total` is 0 where it is not known."""

    def note(self, text: str) -> None:
        """Something else is worth a line."""

    def end(self) -> None:
        """It is over, also after an error."""


class QuietProgress(Progress):
    """Say nothing."""


@dataclass(kw_only=True)
class Bar:
    """How far one thing is: bytes, a bar and the time that is left where the total is known, else bytes alone."""

    what: str = ""
    done: int = 0
    total: int = 0
    _began: dict[str, tuple[int, float]] = field(default_factory=dict)  # of each thing: how far it was, and when
    _seen: float = 0.0

    def update(self, what: str, *, done: int, total: int, now: float) -> None:
        """Take a new amount; what is complete is not shown any more."""
        if done < self._began.setdefault(what, (done, now))[0]:
            self._began[what] = done, now
        self.what, self.done, self.total, self._seen = what, done, total, now
        if total and done >= total:
            self.clear()

    def clear(self) -> None:
        """Show nothing."""
        self.what, self.done, self.total = "", 0, 0

    def format_line(self, now: float, *, width: int = 120) -> str:
        """Itself in one line, "" where there is nothing; of `width` columns the bar has what the numbers leave."""
        if not self.what or now - self._seen > STALE:
            return ""
        if not self.total:
            return f"{self.what}  {format_bytes(self.done)}"
        share = min(self.done / self.total, 1.0)
        first, began = self._began[self.what]
        speed = (self.done - first) / (now - began) if now > began else 0.0
        left = f"  {format_clock((self.total - self.done) / speed)} left" if speed else ""
        numbers = f"{share:.0%}  {format_bytes(self.done)} of {format_bytes(self.total)}{left}"
        columns = min(BAR, width - len(f"{self.what}  [] {numbers}"))
        full = round(share * columns)
        bar = f"[{'#' * full}{'.' * (columns - full)}] " if columns >= LEAST_BAR else ""
        return f"{self.what}  {bar}{numbers}"


class LineProgress(Progress):
    """What lines on a log and on a terminal have in common: the step at work, when it began, the engine's last line."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._total = 0
        self._step = self._last = ""
        self._started = time.monotonic()

    def begin(self, *, title: str, total: int) -> None:
        self._total = total
        self._print(escape_line(title), style="bold")

    def begin_step(self, step: Step, *, number: int) -> None:
        self._step, self._last = escape_line(f"[{number}/{self._total}] {step.name}"), ""
        self._started = time.monotonic()

    def show_line(self, text: str) -> None:
        if not is_noise(text):
            self._last = text
        if self._verbose:
            self._print(f"  {text}", style="dim")

    def end_step(self, result: StepResult) -> None:
        text, style = describe_end(result, step=self._step)
        self._print(text, style=style)

    def note(self, text: str) -> None:
        self._print(text)

    def _print(self, text: str, *, style: str | None = None) -> None:
        raise NotImplementedError


class PlainProgress(LineProgress):
    """Plain lines, for logs and pipes: how each step starts and ends, and a sign of life every 30 s."""

    def __init__(self, stream: TextIO, *, verbose: bool = False) -> None:
        super().__init__(verbose=verbose)
        self._stream = stream
        self._spoke = self._started

    def begin_step(self, step: Step, *, number: int) -> None:
        super().begin_step(step, number=number)
        self._print(f"{self._step}: {escape_line(step.why)}")

    def refresh(self) -> None:
        now = time.monotonic()
        if now - self._spoke >= HEARTBEAT:
            last = f": {self._last[:120]}" if self._last else ""
            self._print(f"{self._step}: {format_clock(now - self._started)}{last}")

    def _print(self, text: str, *, style: str | None = None) -> None:
        del style
        self._spoke = time.monotonic()
        self._stream.write(wrap(escape_control(text), stream=self._stream) + "\n")
        self._stream.flush()


class Row(LineProgress):
    """One build on a terminal: a line at its foot with step, time and the engine's last line."""

    def __init__(self, whole: LiveMultiProgress, *, name: str) -> None:
        super().__init__(verbose=whole.verbose)
        self._whole, self._bar = whole, Bar()
        self.name = name

    def format_line(self, width: int) -> str:
        """Return step, time and what it does; an amount is more than the step's name where both do not fit."""
        if not self._step:
            return ""
        now = time.monotonic()
        clock = format_clock(now - self._started)
        head, short = f"{self._step}  {clock}  ", f"{self._step.partition(' ')[0]}  {clock}  "
        if self._bar.format_line(now):
            room = width - len(short)
            amount = self._bar.format_line(now, width=room)
            return (head if len(head) + len(amount) <= width else short) + amount
        return head + self._last

    def begin_step(self, step: Step, *, number: int) -> None:
        super().begin_step(step, number=number)
        self._last = step.why
        self._whole.draw(self)

    def refresh(self) -> None:
        self._whole.draw(self, now=False)

    def end_step(self, result: StepResult) -> None:
        super().end_step(result)
        self._step = self._last = ""
        self._bar.clear()
        self._whole.draw(self)

    def show_amount(self, what: str, *, done: int, total: int) -> None:
        self._bar.update(what, done=done, total=total, now=time.monotonic())
        self.refresh()

    def end(self) -> None:
        self._whole.draw(self, at_work=False)

    def _print(self, text: str, *, style: str | None = None) -> None:
        self._whole.print_line(self, text, style=style)


class LiveProgress(Row):
    """A single build on a terminal."""

    def __init__(self, stream: TextIO, *, verbose: bool = False) -> None:
        super().__init__(LiveMultiProgress(stream, width=0, verbose=verbose), name="")

    def begin(self, *, title: str, total: int) -> None:
        super().begin(title=title, total=total)
        self._whole.live.start()

    def end(self) -> None:
        self._whole.live.stop()


class MultiProgress(Protocol):
    """The display of several builds."""

    def get_progress(self, name: str) -> Progress:
        """The progress of one of them."""

    def show(self) -> AbstractContextManager[object]:
        """While the `with` block lasts."""


class SingleProgress:
    """The progress of a single build, or one for all where it says nothing."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def get_progress(self, name: str) -> Progress:
        del name
        return self._progress

    def show(self) -> AbstractContextManager[object]:
        return nullcontext()


class PrefixedStream:
    """A stream whose every line begins with a name; lines of several are never mixed."""

    def __init__(self, stream: TextIO, *, name: str, lock: threading.Lock) -> None:
        self._stream, self._name, self._lock = stream, name, lock

    def write(self, text: str) -> int:
        """Write whole lines."""
        text = wrap(text, stream=self._stream, indent=len(self._name) + 2)
        lines = "".join(f"{self._name}  {line}\n" for line in text.splitlines())
        with self._lock:
            self._stream.write(lines)
        return len(text)

    def flush(self) -> None:
        with self._lock:
            self._stream.flush()


class PlainMultiProgress:
    """Plain lines, for logs and pipes."""

    def __init__(self, stream: TextIO, *, width: int, verbose: bool) -> None:
        self._stream, self._width, self._verbose = stream, width, verbose
        self._lock = threading.Lock()

    def get_progress(self, name: str) -> Progress:
        stream = PrefixedStream(self._stream, name=escape_line(name).ljust(self._width), lock=self._lock)
        return PlainProgress(cast(TextIO, stream), verbose=self._verbose)

    def show(self) -> AbstractContextManager[object]:
        return nullcontext()


class LiveMultiProgress:
    """Rows at the foot of a terminal, one for each build at work; what has ended scrolls up.

    Names are `width` wide; of a single build none is shown.
    """

    def __init__(self, stream: TextIO, *, width: int, verbose: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self.live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._console, self._indent, self.verbose = console, width + 2 if width else 0, verbose
        self._lock = threading.RLock()
        self._rows: dict[str, Row] = {}
        self._drawn = 0.0

    def get_progress(self, name: str) -> Progress:
        return Row(self, name=name)

    def show(self) -> AbstractContextManager[object]:
        return self.live

    def print_line(self, row: Row, text: str, *, style: str | None = None) -> None:
        with self._lock:
            text = wrap(escape_control(text), stream=self._console.file, indent=self._indent)
            name = escape_line(row.name)
            lines = "\n".join(f"{name.ljust(self._indent)}{line}" for line in text.split("\n"))
            self._console.print(lines, style=style, soft_wrap=True)

    def draw(self, row: Row, *, at_work: bool = True, now: bool = True) -> None:
        """The rows as they are; unless `now`, only when the last picture is old enough."""
        with self._lock:
            if at_work:
                self._rows[row.name] = row
            else:
                self._rows.pop(row.name, None)
            if now or time.monotonic() - self._drawn >= REFRESH:
                self._drawn = time.monotonic()
                self.live.update(self._render(), refresh=True)

    def _render(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        width = self._console.width - self._indent
        rows = [(name.ljust(self._indent), row.format_line(width)) for name, row in self._rows.items()]
        lines = [escape_line(name + line) for name, line in rows if line]
        return Group(*[Text(line, no_wrap=True, overflow="ellipsis") for line in lines])


def choose_multi_progress(
    stream: TextIO, *, width: int, environment: Mapping[str, str], quiet: bool, verbose: bool, color: bool
) -> MultiProgress:
    """Choose what fits the stream, as for one build; names are `width` wide."""
    if quiet:
        return SingleProgress(QuietProgress())
    if wants_plain(stream, environment=environment, color=color):
        return PlainMultiProgress(stream, width=width, verbose=verbose)
    return LiveMultiProgress(stream, width=width, verbose=verbose)


def choose_progress(
    stream: TextIO, *, environment: Mapping[str, str], quiet: bool = False, verbose: bool = False, color: bool = True
) -> Progress:
    """Choose what fits the stream: nothing when quiet, a moving line on a terminal, else plain lines."""
    if quiet:
        return QuietProgress()
    if wants_plain(stream, environment=environment, color=color):
        return PlainProgress(stream, verbose=verbose)
    return LiveProgress(stream, verbose=verbose)


def wants_plain(stream: TextIO, *, environment: Mapping[str, str], color: bool) -> bool:
    """Whether a stream gets plain lines."""
    plain = bool(environment.get("NO_COLOR")) or not color or environment.get("TERM", "dumb") in ("", "dumb")
    return plain or not stream.isatty()


def describe_end(result: StepResult, *, step: str) -> tuple[str, str]:
    """How a step ended, in words, and their style on a terminal."""
    if result.status == "skipped":
        return f"{result.name}: skipped", "dim"
    word, style = _ENDINGS[result.status]
    return f"{step}: {word} after {format_clock(result.seconds)}", style


def wrap(text: str, *, stream: Any, indent: int = 0) -> str:
    """Wrap lines between words at the width of a terminal; `indent` columns before them are taken.

    No word is broken, and what goes into a pipe or a file stays as it is.
    """
    width, is_terminal = shutil.get_terminal_size().columns - indent, getattr(stream, "isatty", None)
    if len(text) <= width or is_terminal is None or not is_terminal():
        return text
    import textwrap  # few lines are that long

    def wrapped(line: str) -> str:
        hang = " " * (len(line) - len(line.lstrip()) + 2)
        words = textwrap.TextWrapper(
            width=max(width, 20), subsequent_indent=hang, break_long_words=False, break_on_hyphens=False,
            replace_whitespace=False,
        )  # fmt: skip
        return words.fill(line) or line

    return "\n".join(wrapped(line) for line in text.split("\n"))
