"""What the user sees of several builds at once: plain lines with a name before each, or a row a build on a terminal.

Several builds at once: each in a thread of this process, so many at a time, all ended by one signal.

Threads and not processes of ours: what takes time in a build are programs, each in a session of its own that ends with
its step; nothing in this package changes the folder, the environment or the umask of the process; and reports,
findings and progress come back as they are. A signal reaches the main thread alone, which tells the others
at their next tick, a few times in a second: a build is stopped where it waits for a program and never in the middle of
publishing an image, and cleans up as it does when it is alone.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Generic, Protocol, TextIO, TypeVar, cast

from builder.execute.build_options import SignalInterrupt, Signals
from builder.execute.progress import (
    REFRESH,
    Bar,
    PlainProgress,
    Progress,
    QuietProgress,
    describe_end,
    format_duration,
    is_noise,
    wants_plain,
    wrap,
)
from builder.model.plan import Step
from builder.model.report import StepResult
from builder.model.text import escape_control, escape_line


class MultiProgress(Protocol):
    """The display of several builds."""

    def get_progress(self, name: str) -> Progress:
        """The progress of one of them."""

    @contextmanager
    def show(self) -> Iterator[None]:
        """While the `with` block lasts."""


class SingleProgress:
    """A single build: its own progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def get_progress(self, name: str) -> Progress:
        del name
        return self._progress

    @contextmanager
    def show(self) -> Iterator[None]:
        yield


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
        """Have them out."""
        with self._lock:
            self._stream.flush()


class PlainMultiProgress:
    """Plain lines, for logs and pipes."""

    def __init__(self, stream: TextIO, *, width: int, verbose: bool) -> None:
        self._stream, self._width, self._verbose = stream, width, verbose
        self._lock = threading.Lock()

    def get_progress(self, name: str) -> Progress:
        stream = PrefixedStream(self._stream, name=name.ljust(self._width), lock=self._lock)
        return PlainProgress(cast(TextIO, stream), verbose=self._verbose)

    @contextmanager
    def show(self) -> Iterator[None]:
        yield


class QuietMultiProgress:
    """Nothing."""

    def get_progress(self, name: str) -> Progress:
        del name
        return QuietProgress()

    @contextmanager
    def show(self) -> Iterator[None]:
        yield


class LiveMultiProgress:
    """Rows at the foot of a terminal, one for each build at work; what has ended scrolls up."""

    def __init__(self, stream: TextIO, *, width: int, verbose: bool, color: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=stream, no_color=not color, highlight=False, markup=False, emoji=False)
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._console, self._width, self.verbose = console, width, verbose
        self._lock = threading.RLock()
        self._rows: dict[str, Row] = {}
        self._drawn = 0.0

    def get_progress(self, name: str) -> Progress:
        return Row(self, name=name)

    @contextmanager
    def show(self) -> Iterator[None]:
        with self._live:
            yield

    def print_line(self, row: Row, text: str, *, style: str | None = None) -> None:
        """A line that stays."""
        with self._lock:
            text = wrap(escape_control(text), stream=self._console.file, indent=self._width + 2)
            lines = "\n".join(f"{row.name.ljust(self._width)}  {line}" for line in text.split("\n"))
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
                self._live.update(self._render(), refresh=True)

    def _render(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        lines = [f"{name.ljust(self._width)}  {escape_control(row.format_line())}" for name, row in self._rows.items()]
        return Group(*[Text(line, no_wrap=True, overflow="ellipsis") for line in lines])


class Row:
    """One build of a LiveMultiProgress."""

    def __init__(self, whole: LiveMultiProgress, *, name: str) -> None:
        self.name = name
        self._whole = whole
        self._total = 0
        self._step = self._last = ""
        self._started = time.monotonic()
        self._bar = Bar()

    def format_line(self) -> str:
        """What it is at."""
        now = time.monotonic()
        what = self._bar.format_line(now) or self._last
        return f"{self._step}  {format_duration(now - self._started)}  {what}" if self._step else ""

    def begin(self, *, title: str, total: int) -> None:
        self._total = total
        self._whole.print_line(self, escape_line(title), style="bold")

    def begin_step(self, step: Step, *, number: int) -> None:
        self._step, self._last = f"[{number}/{self._total}] {step.name}", step.why
        self._started = time.monotonic()
        self._whole.draw(self)

    def show_line(self, text: str) -> None:
        if not is_noise(text):
            self._last = text
        if self._whole.verbose:
            self._whole.print_line(self, f"  {text}", style="dim")

    def refresh(self) -> None:
        self._whole.draw(self, now=False)

    def end_step(self, result: StepResult) -> None:
        text, style = describe_end(result, step=self._step)
        self._whole.print_line(self, text, style=style)
        self._step = self._last = ""
        self._bar.clear()

    def show_amount(self, what: str, *, done: int, total: int) -> None:
        self._bar.update(what, done=done, total=total, now=time.monotonic())
        self._whole.draw(self, now=False)

    def note(self, text: str) -> None:
        self._whole.print_line(self, text)

    def end(self) -> None:
        self._whole.draw(self, at_work=False)


def choose_multi_progress(
    stream: TextIO, *, width: int, environment: Mapping[str, str], quiet: bool, verbose: bool, color: bool
) -> MultiProgress:
    """Choose what fits the stream, as for one build; names are `width` wide."""
    if quiet:
        return QuietMultiProgress()
    if wants_plain(stream, environment=environment, color=color):
        return PlainMultiProgress(stream, width=width, verbose=verbose)
    return LiveMultiProgress(stream, width=width, verbose=verbose, color=color)


T = TypeVar("T")

LOOK = 0.25  # seconds in which a signal is dealt with where the platform wakes no thread
MOST = 4  # builds at once, unless someone says so: they share a network, and often a login node
BUILD_CORES, BUILD_GIB = 1, 3  # what one build keeps busy: compiling and packing; a solver and a packer in memory


class CancelToken(Signals):
    """The word to stop, for all builds: a signal that was caught is noted, wherever the main thread is just then."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def check(self) -> None:
        """Raise SignalInterrupt when it was given."""
        if self.number:
            raise SignalInterrupt(self.number)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.number = self.number or number


class CancellableProgress:
    """A build's progress that hears the word to stop."""

    def __init__(self, inner: Progress, *, halt: CancelToken) -> None:
        self._inner, self._halt = inner, halt

    def begin(self, *, title: str, total: int) -> None:
        self._halt.check()
        self._inner.begin(title=title, total=total)

    def begin_step(self, step: Step, *, number: int) -> None:
        self._inner.begin_step(step, number=number)

    def show_line(self, text: str) -> None:
        self._inner.show_line(text)

    def refresh(self) -> None:
        self._halt.check()
        self._inner.refresh()

    def end_step(self, result: StepResult) -> None:
        self._inner.end_step(result)

    def show_amount(self, what: str, *, done: int, total: int) -> None:
        self._inner.show_amount(what, done=done, total=total)

    def note(self, text: str) -> None:
        self._inner.note(text)

    def end(self) -> None:
        self._inner.end()


class ParallelRunner(Generic[T]):
    """Runs builds and keeps what each has returned or raised."""

    def __init__(self, *, jobs: int, halt: CancelToken) -> None:
        self._jobs, self._halt = jobs, halt

    def run(self, builds: Sequence[Callable[[], T]]) -> list[T | BaseException]:
        """Run them all; the result of each, or its exception: SignalInterrupt also for one that had not begun.

        A single one runs in the thread of the caller, where a signal stops it at once.
        """
        if len(builds) == 1:
            try:
                return [builds[0]()]
            except (Exception, SignalInterrupt) as error:
                return [error]
        from concurrent.futures import ThreadPoolExecutor, wait  # a tenth of a start: only several builds need it

        with self._halt.catch(), ThreadPoolExecutor(max_workers=max(1, min(self._jobs, len(builds)))) as pool:
            futures = [pool.submit(self._begin, build) for build in builds]
            left = set(futures)
            while left:
                _, left = wait(left, timeout=LOOK)
        ended: list[T | BaseException] = []
        for future in futures:
            ended.append(future.exception() or future.result())
        return ended

    def _begin(self, build: Callable[[], T]) -> T:
        self._halt.check()
        return build()


def choose_parallelism(builds: int) -> int:
    """How many builds this machine bears at a time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(builds, MOST, cores // BUILD_CORES, int(_measure_free_gib() // BUILD_GIB)))


def _measure_free_gib() -> float:
    """Memory that is free for new work, in GiB; much where that is unknown."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("MemAvailable:")) / 2**20
    except (OSError, ValueError, StopIteration):
        return 1024.0
