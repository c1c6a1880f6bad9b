"""What the user sees of an execution. Nothing else in this package prints."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from builder.model.plan import Step
from builder.model.report import StepResult
from builder.model.text import escape_control, escape_line

HEARTBEAT = 30.0  # seconds between two signs of life without a terminal
REFRESH = 0.25  # seconds between two pictures on a terminal
BAR = 20  # columns of a bar
STALE = 5.0  # seconds after which an amount is not what is being done any more

_ENDINGS = {"ok": ("done", "green"), "failed": ("FAILED", "red"), "interrupted": ("stopped", "yellow")}

# What an engine says in every build and what tells nothing of where it is (Apptainer 1.4.5); logs have it all the same.
_NOISE = re.compile(
    r"\s*$"
    r"|INFO:\s+To see mksquashfs output with progress bar enable verbose logging"
    r"|INFO:\s+Non-gzip squashfs compression might not work with some installations"
    r"|verify: \{.*"  # what the image answered, as JSON
    r"|WARNING: While bind mounting '.*': destination is already in the mount point list"
)


def is_noise(text: str) -> bool:
    """Whether a line of an engine tells nothing of what it is doing."""
    return _NOISE.match(text) is not None


class Progress(Protocol):
    """What an execution tells while it runs; every text is masked and without terminal codes."""

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


class QuietProgress:
    """Say nothing."""

    def begin(self, *, title: str, total: int) -> None: ...

    def begin_step(self, step: Step, *, number: int) -> None: ...

    def show_line(self, text: str) -> None: ...

    def refresh(self) -> None: ...

    def end_step(self, result: StepResult) -> None: ...

    def show_amount(self, what: str, *, done: int, total: int) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


@dataclass(kw_only=True)
class Bar:
    """How far one thing is: bytes, a bar and the time that is left where the total is known, else bytes alone."""

    what: str = ""
    done: int = 0
    total: int = 0
    _first: int = 0
    _began: float = 0.0
    _seen: float = 0.0

    def update(self, what: str, *, done: int, total: int, now: float) -> None:
        """Take a new amount; what is complete is not shown any more."""
        if what != self.what or done < self.done:
            self._first, self._began = done, now
        self.what, self.done, self.total, self._seen = what, done, total, now
        if total and done >= total:
            self.clear()

    def clear(self) -> None:
        """Show nothing."""
        self.what, self.done, self.total = "", 0, 0

    def format_line(self, now: float) -> str:
        """Itself in one line, "" where there is nothing."""
        if not self.what or now - self._seen > STALE:
            return ""
        if not self.total:
            return f"{self.what}  {format_size(self.done)}"
        share = min(self.done / self.total, 1.0)
        full = round(share * BAR)
        bar = "#" * full + "." * (BAR - full)
        speed = (self.done - self._first) / (now - self._began) if now > self._began else 0.0
        left = f"  {format_duration((self.total - self.done) / speed)} left" if speed else ""
        return f"{self.what}  [{bar}] {share:.0%}  {format_size(self.done)} of {format_size(self.total)}{left}"


class PlainProgress:
    """Plain lines, for logs and pipes: how each step starts and ends, and a sign of life every 30 s."""

    def __init__(self, stream: TextIO, *, verbose: bool = False) -> None:
        self._stream = stream
        self._verbose = verbose
        self._total = 0
        self._step = ""
        self._last = ""
        self._started = self._spoke = time.monotonic()

    def begin(self, *, title: str, total: int) -> None:
        self._total = total
        self._print_line(escape_line(title))

    def begin_step(self, step: Step, *, number: int) -> None:
        self._step, self._last = f"[{number}/{self._total}] {step.name}", ""
        self._started = time.monotonic()
        self._print_line(f"{self._step}: {step.why}")

    def show_line(self, text: str) -> None:
        if not is_noise(text):
            self._last = text
        if self._verbose:
            self._print_line(f"  {text}")

    def refresh(self) -> None:
        now = time.monotonic()
        if now - self._spoke >= HEARTBEAT:
            last = f": {self._last[:120]}" if self._last else ""
            self._print_line(f"{self._step}: {format_duration(now - self._started)}{last}")

    def end_step(self, result: StepResult) -> None:
        self._print_line(describe_end(result, step=self._step)[0])

    def show_amount(self, what: str, *, done: int, total: int) -> None: ...

    def note(self, text: str) -> None:
        self._print_line(text)

    def end(self) -> None: ...

    def _print_line(self, text: str) -> None:
        self._spoke = time.monotonic()
        self._stream.write(wrap(escape_control(text), stream=self._stream) + "\n")
        self._stream.flush()


class LiveProgress:
    """A moving line at the foot of a terminal: step, time, the engine's last line; what has ended scrolls up."""

    def __init__(self, stream: TextIO, *, verbose: bool = False, color: bool = True) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, no_color=not color, highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._verbose = verbose
        self._total = 0
        self._step = ""
        self._last = ""
        self._started = self._drawn = time.monotonic()
        self._bar = Bar()

    def begin(self, *, title: str, total: int) -> None:
        self._total = total
        self._print(escape_line(title), style="bold")
        self._live.start()

    def begin_step(self, step: Step, *, number: int) -> None:
        self._step, self._last = f"[{number}/{self._total}] {step.name}", step.why
        self._started = time.monotonic()
        self._draw()

    def show_line(self, text: str) -> None:
        if not is_noise(text):
            self._last = text
        if self._verbose:
            self._print(f"  {text}", style="dim")

    def refresh(self) -> None:
        if time.monotonic() - self._drawn >= REFRESH:
            self._draw()

    def end_step(self, result: StepResult) -> None:
        text, style = describe_end(result, step=self._step)
        self._print(text, style=style)
        self._step = self._last = ""
        self._bar.clear()
        self._draw()

    def show_amount(self, what: str, *, done: int, total: int) -> None:
        self._bar.update(what, done=done, total=total, now=time.monotonic())
        self.refresh()

    def note(self, text: str) -> None:
        self._print(text)

    def end(self) -> None:
        self._live.stop()

    def _print(self, text: str, *, style: str | None = None) -> None:
        text = wrap(escape_control(text), stream=self._console.file)
        self._console.print(text, style=style, soft_wrap=True)

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._live.update(self._render(), refresh=True)

    def _render(self) -> Any:
        from rich.text import Text

        if not self._step:
            return Text("")
        now = self._bar.format_line(self._drawn) or self._last
        text = f"{self._step}  {format_duration(self._drawn - self._started)}  {now}"
        return Text(escape_control(text), no_wrap=True, overflow="ellipsis")


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
    return f"{step}: {word} after {format_duration(result.seconds)}", style


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


def format_size(count: int) -> str:
    """Show bytes as people say them, in powers of ten: 512 B, 34 MB, 1.2 GB."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    for unit, factor in (("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count // factor} {unit}"
    return f"{count} B"


def format_duration(seconds: float) -> str:
    """Show seconds as people say them: 4.2 s, 3 min 05 s, 1 h 02 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
