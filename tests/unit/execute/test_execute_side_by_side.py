"""Several builds at once: results, failures, the word to stop, and what is shown of them."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable

import pytest

from builder.execute.build_options import SignalInterrupt
from builder.execute.parallel import CancellableProgress, CancelToken, ParallelRunner, choose_parallelism
from builder.execute.progress import (
    LiveMultiProgress,
    PlainMultiProgress,
    QuietProgress,
    SingleProgress,
    choose_multi_progress,
)
from builder.model.plan import Step
from builder.model.report import StepResult

STEP = Step(name="build", kind="build", why="build the image", script="1.sh")


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def fails() -> int:
    raise ValueError("no")


def test_results_come_in_order_and_one_that_fails_stops_no_other() -> None:
    found = ParallelRunner[int](jobs=2, halt=CancelToken()).run([lambda: 1, fails, lambda: 3])
    assert (found[0], type(found[1]), found[2]) == (1, ValueError, 3)
    assert ParallelRunner[int](jobs=2, halt=CancelToken()).run([]) == []


def test_they_work_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=120)  # nobody passes alone
    found = ParallelRunner[int](jobs=2, halt=CancelToken()).run([meeting.wait, meeting.wait])
    assert sorted(number for number in found if isinstance(number, int)) == [0, 1]


def test_never_more_than_asked_for() -> None:
    lock = threading.Lock()

    def alone() -> bool:
        return lock.acquire(blocking=False) and (lock.release() is None)

    assert ParallelRunner[bool](jobs=1, halt=CancelToken()).run([alone] * 5) == [True] * 5


def test_a_signal_ends_running_and_waiting_builds() -> None:
    halt, began = CancelToken(), threading.Event()
    progress = CancellableProgress(QuietProgress(), halt=halt)

    def work() -> None:
        began.set()
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            progress.refresh()

    found = ParallelRunner[None](jobs=1, halt=halt).run([work, began.clear])
    codes = [stop.exit_code for stop in found if isinstance(stop, SignalInterrupt)]
    assert (codes, began.is_set()) == ([143, 143], True)


def test_how_many_at_once() -> None:
    assert choose_parallelism(1) == 1
    assert 1 <= choose_parallelism(100) <= 4


def play(side: Callable[[str], object]) -> None:
    for name in ("lumi-g", "one"):
        progress = side(name)
        progress.begin(title=f"demo.{name}", total=1)  # type: ignore[attr-defined]
        progress.begin_step(STEP, number=1)  # type: ignore[attr-defined]
        progress.show_line("Collecting torch")  # type: ignore[attr-defined]
        progress.refresh()  # type: ignore[attr-defined]
        progress.end_step(StepResult(name="build", status="ok", seconds=4.21))  # type: ignore[attr-defined]
        progress.note("two\nlines")  # type: ignore[attr-defined]
        progress.end()  # type: ignore[attr-defined]


def test_plain_lines_begin_with_the_name() -> None:
    stream = io.StringIO()
    play(PlainMultiProgress(stream, width=6, verbose=False).get_progress)
    lines = stream.getvalue().splitlines()
    assert lines[:5] == [
        "lumi-g  demo.lumi-g",
        "lumi-g  [1/1] build: build the image",
        "lumi-g  [1/1] build: done after 4.2 s",
        "lumi-g  two",
        "lumi-g  lines",
    ]
    assert lines[5:] == [line.replace("lumi-g", "one").replace("one  ", "one     ", 1) for line in lines[:5]]


def test_rows_on_a_terminal() -> None:
    stream = Terminal()
    together = LiveMultiProgress(stream, width=6, verbose=True)
    with together.show():
        play(together.get_progress)
    text = stream.getvalue()
    for said in ("lumi-g  [1/1] build  0.0 s", "one       Collecting torch", "lumi-g  [1/1] build: done after 4.2 s"):
        assert said in text


@pytest.mark.parametrize(
    ("stream", "quiet", "kind"),
    [
        (Terminal(), True, SingleProgress),
        (Terminal(), False, LiveMultiProgress),
        (io.StringIO(), False, PlainMultiProgress),
    ],
)
def test_what_fits_the_stream_is_chosen(stream: io.StringIO, quiet: bool, kind: type) -> None:
    environment = {"TERM": "xterm"}
    found = choose_multi_progress(stream, width=3, environment=environment, quiet=quiet, verbose=False, color=True)
    assert type(found) is kind
