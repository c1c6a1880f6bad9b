"""One run of a workload: its clock, its limit, its end. However it ends, a checked result is written."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict
from typing import Any, Callable, Dict, Optional, Sequence

from . import result_files, verdict
from .options import RunError, StoppedError, UsageError, WorkloadOptions

END_SIGNALS = {signal.SIGTERM, signal.SIGINT}
BEAT_SECONDS = 2.0  # seconds between signs of life
STOP_SECONDS = 25.0  # seconds to stop in good order; Slurm kills after 30


class WorkloadRun:
    """A run and its result; it finishes once, by its work or by a signal or the time limit."""

    def __init__(self, options: WorkloadOptions) -> None:
        self.options = options
        self.started = time.monotonic()
        self.result: Dict[str, Any] = result_files.make_result(options)
        self.ended_early = False  # by the time limit or a signal
        self._ended = threading.Lock()

    def count_seconds(self) -> float:
        """Count the seconds since the start."""
        return time.monotonic() - self.started

    def count_seconds_left(self) -> float:
        """Count the seconds until the limit."""
        return self.options.timeout - self.count_seconds()

    def print_progress(self, text: str) -> None:
        print(f"[{self.count_seconds():7.1f} s] {self.options.workload}: {text}", flush=True)

    def perform(self, work: Callable[[WorkloadRun], None]) -> int:
        """Run the work within the limit and return the exit status; raises UsageError if it cannot start."""
        self.write_initial()
        # torch's threads inherit the mask, so the watching thread gets the signals even while torch computes or waits
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)
        threading.Thread(target=self._watch, name="limit", daemon=True).start()
        error: Optional[str] = None
        try:
            work(self)
        except StoppedError as fault:
            return self.end(str(fault), fault.status)
        except RunError as fault:
            error = str(fault)
        except UsageError:
            raise
        except Exception as fault:
            traceback.print_exc()
            error = f"{type(fault).__name__}: {find_first_line(fault)}"
        return self.end(error)

    def write_initial(self) -> None:
        """Write an initial, failed result; raises UsageError if that fails."""
        result_files.write_initial(self.options.result, self.result)

    def end(self, error: Optional[str], status: Optional[int] = None) -> int:
        """Finish with an error or None; a second caller waits until the first one exits."""
        self._ended.acquire()
        self.ended_early = status is not None
        self.result["error"] = error
        self.result["seconds"]["total"] = round(self.count_seconds(), 3)
        judged = self.finish()
        return judged if status is None else status

    def finish(self) -> int:
        """Check, write and print the result; return the exit status."""
        checks = verdict.judge(self.result)
        good = verdict.has_passed(checks)
        self.result["checks"] = [asdict(check) for check in checks]
        self.result["verdict"] = "pass" if good else "FAIL"
        if self.options.result is not None:
            good = self._write() and good
        print_verdict(checks, verdict.explain(self.result))
        return 0 if good else 1

    def _write(self) -> bool:
        """Write the result; on a full disk overwrite the initial one with the failure."""
        assert self.options.result is not None
        try:
            result_files.write(self.options.result, self.result)
            return True
        except OSError as fault:
            text = f"the result cannot be written: {fault.strerror or fault}"
        print(f'error: "{self.options.result}": {text}', file=sys.stderr)
        kept = {name: self.result[name] for name in ("schema", "workload", "seconds")}
        was = self.result["error"]
        result_files.overwrite(self.options.result, {**kept, "verdict": "FAIL", "error": was or text})
        return False

    def stop(self, number: int) -> bool:
        """Ask the work to stop in good order; False if it cannot."""
        del number
        return False

    def signal_alive(self) -> None:
        """Do nothing: a single process needs no sign of life."""

    def _watch(self) -> None:
        until, stopping = self.started + self.options.timeout, 0
        while True:
            rest = max(0.0, until - time.monotonic())
            caught = signal.sigtimedwait(END_SIGNALS, min(BEAT_SECONDS, rest))
            told = caught.si_signo if caught is not None else read_stop_request()
            if not told and rest > 0:
                self.signal_alive()
            elif told and stopping and (caught is not None or rest > 0):
                continue  # a second signal: the parent and Slurm both send one
            elif told and not stopping and self.stop(told):
                stopping = told
                until = min(until, time.monotonic() + STOP_SECONDS)
            else:
                break
        number = told or stopping
        if number:
            status = self.end(f"ended by {signal.Signals(number).name}", 128 + number)
        else:
            status = self.end(f"ended at its limit of {self.options.timeout:g} s", 1)
        os._exit(status)  # the main thread may hang inside torch


def read_stop_request() -> int:
    """Return SIGTERM if the job's file ($RECIPE_STOP) announces its end, else 0.

    A signal of Slurm may also reach the process that mounts the image for an unprivileged runtime: then the image is
    gone, and a training dies before it can save.
    """
    path = os.environ.get("RECIPE_STOP")
    return int(signal.SIGTERM) if path and os.path.exists(path) else 0


def print_verdict(checks: Any, causes: Sequence[str] = ()) -> None:
    """Print a line for each check, what explains those that failed, and the verdict."""
    for check in checks:
        mark = "ok  " if check.ok else "FAIL"
        print(f"  {mark} {check.name}: {check.measured} (expected {check.expected})")
    for line in causes:
        print(f"  {line}")
    failed = [check.name for check in checks if not check.ok]
    word = "pass" if verdict.has_passed(checks) else f"FAIL ({', '.join(failed) or 'nothing was checked'})"
    print(f"verdict: {word}", flush=True)


def find_first_line(fault: BaseException) -> str:
    """Return the first line of an exception's text, or its name if it has none."""
    lines = str(fault).strip().splitlines()
    return lines[0].strip() if lines else type(fault).__name__
