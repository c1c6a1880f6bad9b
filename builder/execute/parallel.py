"""Several builds at once: each in a thread of this process, so many at a time, all ended by one signal.

Threads and not processes of ours: what takes time in a build are programs, each in a session of its own that ends with
its step; nothing in this package changes the folder, the environment or the umask of the process; and reports,
findings and progress come back as they are. A signal reaches the main thread alone, which tells the others
at their next tick, a few times in a second: a build is stopped where it waits for a program and never in the middle of
publishing an image, and cleans up as it does when it is alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar, cast

from builder.execute.build_options import SignalInterrupt, Signals
from builder.execute.progress import Progress

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
    """A build's progress that hears the word to stop, when the build begins and a few times in a second."""

    def __init__(self, inner: Progress, *, halt: CancelToken) -> None:
        self._inner, self._halt = inner, halt

    def __getattr__(self, name: str) -> Any:
        if name in ("begin", "refresh"):
            self._halt.check()
        return getattr(self._inner, name)


def make_cancellable(progress: Progress, *, halt: CancelToken) -> Progress:
    """The same progress for a build that one signal stops with the others."""
    return cast(Progress, CancellableProgress(progress, halt=halt))


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
