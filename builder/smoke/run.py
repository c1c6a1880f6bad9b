"""One run of a workload: its clock, its limit, its end. However it ends, a judged result is written."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict
from typing import Any, Callable, Dict, Optional

from . import record, verdict
from .failure import RunError, UsageError
from .options import Options

_ENDING = {signal.SIGTERM, signal.SIGINT}


class Run:
    """A run whose result is filled while it goes on; it is concluded once, by the work or by what ended it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.started = time.monotonic()
        self.result: Dict[str, Any] = record.blank(options)
        self.ended_early = False  # by the limit or a signal
        self._ended = threading.Lock()

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def left(self) -> float:
        """Seconds until the limit."""
        return self.options.timeout - self.seconds()

    def say(self, text: str) -> None:
        """Print one line of progress."""
        print(f"[{self.seconds():7.1f} s] {self.options.workload}: {text}", flush=True)

    def perform(self, work: Callable[[Run], None]) -> int:
        """Do the work within the limit and return the exit status; raises UsageError where it cannot be begun."""
        self.claim()
        # torch's threads inherit the mask: the signals reach the watching thread even while torch computes or waits
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        threading.Thread(target=self._watch, name="limit", daemon=True).start()
        error: Optional[str] = None
        try:
            work(self)
        except RunError as fault:
            error = str(fault)
        except UsageError:
            raise
        except Exception as fault:
            traceback.print_exc()
            error = f"{type(fault).__name__}: {first_line(fault)}"
        return self.end(error)

    def claim(self) -> None:
        """Write a first, failed result; raises UsageError where none can be written."""
        record.claim(self.options.result, self.result)

    def end(self, error: Optional[str], status: Optional[int] = None) -> int:
        """Conclude with an error or none; whoever comes second waits for the first to leave."""
        self._ended.acquire()
        self.ended_early = status is not None
        self.result["error"] = error
        self.result["seconds"]["total"] = round(self.seconds(), 3)
        judged = self.conclude()
        return judged if status is None else status

    def conclude(self) -> int:
        """Judge, write and print the result; return the exit status."""
        checks = verdict.judge(self.result)
        good = verdict.passed(checks)
        self.result["checks"] = [asdict(check) for check in checks]
        self.result["verdict"] = "pass" if good else "FAIL"
        if self.options.result is not None:
            try:
                record.write(self.options.result, self.result)
            except OSError as fault:
                print(f'error: the result "{self.options.result}" cannot be written: {fault}', file=sys.stderr)
                good = False
        print_verdict(checks)
        return 0 if good else 1

    def _watch(self) -> None:
        caught = signal.sigtimedwait(_ENDING, max(0.0, self.left()))
        if caught is None:
            status = self.end(f"ended at its limit of {self.options.timeout:g} s", 1)
        else:
            status = self.end(f"ended by {signal.Signals(caught.si_signo).name}", 128 + caught.si_signo)
        os._exit(status)  # the main thread may be inside torch for good


def print_verdict(checks: Any) -> None:
    """Print a line for each check and the verdict."""
    for check in checks:
        mark = "ok  " if check.ok else "FAIL"
        print(f"  {mark} {check.name}: {check.measured} (expected {check.expected})")
    failed = [check.name for check in checks if not check.ok]
    word = "pass" if verdict.passed(checks) else f"FAIL ({', '.join(failed) or 'nothing was checked'})"
    print(f"verdict: {word}", flush=True)


def first_line(fault: BaseException) -> str:
    """The first line of an exception's text, or its name when it has none."""
    lines = str(fault).strip().splitlines()
    return lines[0].strip() if lines else type(fault).__name__
