"""Child processes: the only import of subprocess.

A child gets its own session, no input, one pipe for everything it writes, and an environment that is given in full.
Whatever it started ends with it, also what left its group, and no pipe that such a process inherited can block us.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from builder.model.finding import Finding, ToolError
from builder.system.process_tree import GRACE, find_members, find_orphans
from builder.system.step_output import StepLog

TICK = 0.25  # seconds between two calls of on_tick, at most
DRAIN = 1.0  # seconds that output may still come after the child's end
START_FIXES = {  # by the number of the system's error
    errno.EMFILE: "allow more open files: `ulimit -n 1024`",
    errno.ENFILE: "this machine has too many open files: try again later, or use another machine",
    errno.EAGAIN: "allow more processes (`ulimit -u`), or end some of yours",
    errno.ENOMEM: "free memory, or use a machine with more",
}
MARK = "RECIPE_STEP_MARK"  # in the environment of everything that a step starts


@dataclass(frozen=True, kw_only=True)
class ProcessResult:
    """The end of a child process; `exit_code` is 128 + `signal` if a signal ended it, as in a shell."""

    exit_code: int
    seconds: float
    signal: int | None = None
    timed_out: bool = False
    tail: tuple[str, ...] = ()


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log: Path,
    on_line: Callable[[str], None],
    on_tick: Callable[[], None] = lambda: None,
    mask: Callable[[str], str] = lambda text: text,
    timeout: float | None = None,
    grace: float = GRACE,
) -> ProcessResult:
    """Run a program to its end and log what it writes; `timeout` and `grace` in seconds.

    Nothing that it started is left when this returns or raises. Raises ToolError when it cannot be started.
    """
    started = time.monotonic()
    with _open_log(log, on_line=on_line, mask=mask) as output:
        child = Child(argv, cwd=cwd, env=env, receive=output.receive)
        try:
            try:
                child.start()
            except OSError as error:
                raise ToolError(_make_start_finding(argv[0], error)) from None
            timed_out = not child.follow(timeout=timeout, on_tick=on_tick)
        finally:
            child.stop(grace)
            output.finish()
        code = child.exit_code
        return ProcessResult(
            exit_code=124 if timed_out else code if code >= 0 else 128 - code,
            seconds=time.monotonic() - started,
            signal=-code if code < 0 else None,
            timed_out=timed_out,
            tail=output.tail,
        )


def attach(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    output: int | None = None,
    errors: Callable[[bytes], bytes] | None = None,
) -> int:
    """Run a program at the user's terminal, with our input and output; return its exit code as in a shell.

    `output` is a handle for its standard output, if that is not ours. With `errors` its standard error is a pipe, and
    what the function leaves of each part goes to ours.
    Ctrl-C and Ctrl-\\ reach it from the terminal itself; SIGTERM and SIGHUP are passed on. Raises ToolError when it
    cannot be started.
    """
    try:
        stderr = subprocess.PIPE if errors else None
        child = subprocess.Popen(list(argv), cwd=cwd, env=dict(env), stdout=output, stderr=stderr)
    except OSError as error:
        raise ToolError(_make_start_finding(argv[0], error)) from None
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda sent, _: child.send_signal(sent)) for number in numbers}
    before |= {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    reader = _pass_errors(child, errors) if errors else None
    try:
        code = child.wait()
        if reader is not None:
            reader.join(DRAIN)  # a process in the background may keep the pipe
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _pass_errors(child: subprocess.Popen[bytes], select_text: Callable[[bytes], bytes]) -> Thread:
    """Pass a child's standard error to ours in the background, without what `select_text` leaves out."""

    def pass_on() -> None:
        assert child.stderr is not None
        with suppress(OSError):
            while data := os.read(child.stderr.fileno(), 65_536):
                os.write(2, select_text(data))

    reader = Thread(target=pass_on, daemon=True)
    reader.start()
    return reader


def _open_log(log: Path, *, on_line: Callable[[str], None], mask: Callable[[str], str]) -> StepLog:
    try:
        return StepLog(log, on_line=on_line, mask=mask)
    except OSError as error:
        message = f"the log '{log}' cannot be written: {_explain_error(error)}"
        raise ToolError(Finding(code="no-log", message=message, fix="check the rights and the space there")) from None


def _make_start_finding(program: str, error: OSError) -> Finding:
    message = f"'{program}' cannot be started: {_explain_error(error)}"
    fix = START_FIXES.get(error.errno or 0, f"check that '{program}' is on PATH and may be run")
    return Finding(code="not-started", message=message, fix=fix)


def _explain_error(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


class Child:
    """A child in its own session, and all that it starts."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        receive: Callable[[bytes], None],
        errors: bool = True,
    ) -> None:
        """Pass its output to `receive`, with its standard error unless `errors` is false."""
        self._argv, self._cwd, self._receive = argv, cwd, receive
        self._errors = subprocess.STDOUT if errors else subprocess.DEVNULL
        self._mark = os.urandom(16).hex()
        self._env = {**env, MARK: self._mark}
        self._popen: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None
        self._end: int | None = None  # readable when the child has ended; only Linux has it

    @property
    def exit_code(self) -> int:
        """The exit status, negative for a signal."""
        code = self._popen.returncode if self._popen else None
        return -signal.SIGKILL if code is None else code

    def start(self) -> None:
        """Start it; raises OSError."""
        self._pipe, write_end = os.pipe()
        try:
            self._popen = subprocess.Popen(
                list(self._argv),
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=self._errors,
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        with suppress(OSError, AttributeError):
            self._end = os.pidfd_open(self._popen.pid)

    def follow(self, *, timeout: float | None, on_tick: Callable[[], None]) -> bool:
        """Read its output until it ends; False if the time was over first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._has_ended():
            self._read(TICK)
            on_tick()
            if deadline is not None and time.monotonic() > deadline:
                return self._has_ended()
        return True

    def stop(self, grace: float) -> None:
        """Stop all its processes: SIGTERM, then SIGKILL after `grace` seconds or at a second interrupt."""
        try:
            if self._has_ended():
                self._drain()
            if self._signal(signal.SIGTERM):
                self._wait(grace, stop_orphans=True)
        finally:
            while self._signal(signal.SIGKILL):
                if not self._wait(2.0):
                    break  # cannot be ended by us: another user's, or it hangs in the kernel
            self._drain()
            self._has_ended()
            self._close()

    def _has_ended(self) -> bool:
        if self._popen is None or self._popen.poll() is None:
            return False
        if self._end is not None:
            os.close(self._end)
            self._end = None
        return True

    def _read(self, seconds: float) -> bool:
        """Read once, or until the child's end; False when nothing came in this time."""
        poll = select.poll()
        awaited = [handle for handle in (self._pipe, self._end) if handle is not None]
        for handle in awaited:
            poll.register(handle, select.POLLIN)
        if not awaited:
            time.sleep(min(seconds, 0.05))
            return False
        ready = [handle for handle, _ in poll.poll(seconds * 1000)]
        if self._pipe is None or self._pipe not in ready:
            return False
        data = os.read(self._pipe, 65_536)
        if data:
            self._receive(data)
            return True
        self._close()
        return False

    def _close(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _drain(self) -> None:
        until = time.monotonic() + DRAIN
        with suppress(Exception):
            while self._pipe is not None and time.monotonic() < until:
                self._read(0.1)

    def _wait(self, seconds: float, *, stop_orphans: bool = False) -> bool:
        """Wait until all its processes have ended, reading their output; False if the time is over."""
        until = time.monotonic() + seconds
        while members := self._find_members():
            if time.monotonic() > until:
                return False
            if stop_orphans and self._has_ended():
                self._stop_orphans(members)
            with suppress(Exception):
                self._read(0.05)
        return True

    def _signal(self, number: signal.Signals) -> bool:
        """Send a signal to all its processes; False when none is left."""
        members = self._find_members()
        if members and self._popen is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, number)  # the whole group: a process that is being forked gets it too
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                if pid > 0 and not self._is_in_group(pid):
                    os.kill(pid, number)
        return bool(members)

    def _stop_orphans(self, members: set[int]) -> None:
        """Send SIGTERM again to what cannot have had it: between fork and exec a shell's child loses a signal."""
        for pid in find_orphans(members, signal.SIGTERM):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)

    def _is_in_group(self, pid: int) -> bool:
        return self._popen is not None and os.getpgid(pid) == self._popen.pid

    def _find_members(self) -> set[int]:
        self._has_ended()  # reaps the child itself
        leader = self._popen.pid if self._popen else None
        return find_members(leader, mark=f"{MARK}={self._mark}".encode())


def find_program(program: str, *, env: Mapping[str, str]) -> Path | None:
    """Find a program on the PATH of an environment."""
    found = shutil.which(program, path=env.get("PATH", os.defpath))
    return Path(found) if found else None


CAPTURE_LIMIT = 1024 * 1024  # bytes


@dataclass(frozen=True, kw_only=True)
class CapturedOutput:
    """What a command wrote; the exit code is 127 if the program is missing, 124 if it took too long."""

    exit_code: int
    text: str


class BackgroundCommand:
    """A short command that runs while the caller does something else."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path = Path("/")) -> None:
        self._output = bytearray()
        self._child = Child(argv, cwd=cwd, env=env, receive=self._receive)
        try:
            self._child.start()
            self._started = True
        except OSError:
            self._started = False
        self._stopped = False

    def wait(self, *, timeout: float = 10.0) -> CapturedOutput:
        """Wait for its end, at most `timeout` seconds, and return its output; never raises."""
        if not self._started:
            self.stop()
            return CapturedOutput(exit_code=127, text="")
        try:
            in_time = self._child.follow(timeout=timeout, on_tick=lambda: None)
        finally:
            self.stop()
        text = self._output.decode("utf-8", errors="replace")
        return CapturedOutput(exit_code=self._child.exit_code if in_time else 124, text=text)

    def stop(self) -> None:
        """Stop it if it still runs."""
        if not self._stopped:
            self._child.stop(0.5)
            self._stopped = True

    def _receive(self, data: bytes) -> None:
        self._output.extend(data[: CAPTURE_LIMIT - len(self._output)])


def capture(
    argv: Sequence[str], *, env: Mapping[str, str], timeout: float = 10.0, cwd: Path = Path("/")
) -> CapturedOutput:
    """Run a short command, at most `timeout` seconds, and return its output; never raises."""
    return BackgroundCommand(argv, env=env, cwd=cwd).wait(timeout=timeout)


def read_output(argv: Sequence[str], *, env: Mapping[str, str], limit: int, timeout: float) -> bytearray | None:
    """Return the standard output of a command; None if it fails or writes more than `limit` bytes.

    `timeout` in seconds. Never raises.
    """
    kept = bytearray()

    def receive(data: bytes) -> None:
        kept.extend(data)
        if len(kept) > limit:
            raise OverflowError

    ended = stream_output(argv, env=env, receive=receive, timeout=timeout)
    return kept if ended and len(kept) <= limit else None


def stream_output(
    argv: Sequence[str], *, env: Mapping[str, str], receive: Callable[[bytes], None], timeout: float
) -> bool:
    """Pass the standard output of a command to `receive` as it comes; return False if the command fails.

    `receive` stops the command by raising OverflowError. `timeout` in seconds. Never raises.
    """
    child = Child(argv, cwd=Path("/"), env=env, receive=receive, errors=False)
    in_time = False
    try:
        with suppress(OSError, ValueError, OverflowError):
            child.start()
            in_time = child.follow(timeout=timeout, on_tick=lambda: None)
    finally:
        child.stop(0.5)
    return in_time and not child.exit_code
