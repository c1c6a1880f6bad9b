"""Child processes: the only import of subprocess.

A child gets its own session, no input, one pipe for everything it writes, and an environment that is given in full.
Whatever it started ends with it, also what left its group, and no pipe that such a process inherited can hold us up.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from builder.execute.log import StepLog
from builder.model.finding import Finding, ToolError

TICK = 0.25  # seconds between two calls of on_tick, at most
GRACE = 5.0  # seconds between SIGTERM and SIGKILL; Apptainer removes its temporary folders in that time
DRAIN = 1.0  # seconds that output may still come after the child's end
MARK = "RECIPE_STEP_MARK"  # in the environment of everything that a step starts
CAPTURE_LIMIT = 1024 * 1024  # bytes


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a child ended: `exit_code` is 128 + `signal` where a signal ended it, as a shell counts."""

    exit_code: int
    seconds: float
    signal: int | None = None
    timed_out: bool = False
    tail: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Captured:
    """The answer to a short question; 127 where the program does not exist, 124 where it took too long."""

    exit_code: int
    text: str


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
) -> Ended:
    """Run a program to its end and log what it writes; `timeout` and `grace` in seconds.

    Nothing that it started is left when this returns or raises. Raises ToolError when it cannot be started.
    """
    started = time.monotonic()
    with _open_log(log, on_line=on_line, mask=mask) as output:
        child = _Child(argv, cwd=cwd, env=env, receive=output.receive)
        try:
            try:
                child.start()
            except OSError as error:
                raise ToolError(_not_started(argv[0], error)) from None
            timed_out = not child.follow(timeout=timeout, on_tick=on_tick)
        finally:
            child.stop(grace)
            output.finish()
        code = child.exit_code
        return Ended(
            exit_code=124 if timed_out else code if code >= 0 else 128 - code,
            seconds=time.monotonic() - started,
            signal=-code if code < 0 else None,
            timed_out=timed_out,
            tail=output.tail,
        )


def capture(argv: Sequence[str], *, env: Mapping[str, str], timeout: float = 10.0) -> Captured:
    """Ask a program something short; never raises and never takes longer than `timeout` seconds by much."""
    kept = bytearray()

    def receive(data: bytes) -> None:
        kept.extend(data[: CAPTURE_LIMIT - len(kept)])

    child = _Child(argv, cwd=Path("/"), env=env, receive=receive)
    try:
        child.start()
        in_time = child.follow(timeout=timeout, on_tick=lambda: None)
    except OSError:
        return Captured(exit_code=127, text="")
    finally:
        child.stop(0.5)
    return Captured(exit_code=child.exit_code if in_time else 124, text=kept.decode("utf-8", errors="replace"))


def which(program: str, *, env: Mapping[str, str]) -> Path | None:
    """Find a program on the PATH of an environment."""
    found = shutil.which(program, path=env.get("PATH", os.defpath))
    return Path(found) if found else None


def _open_log(log: Path, *, on_line: Callable[[str], None], mask: Callable[[str], str]) -> StepLog:
    try:
        return StepLog(log, on_line=on_line, mask=mask)
    except OSError as error:
        message = f"the log '{log}' cannot be written: {_reason(error)}"
        raise ToolError(Finding(code="no-log", message=message, fix="check the rights and the space there")) from None


def _not_started(program: str, error: OSError) -> Finding:
    message = f"'{program}' cannot be started: {_reason(error)}"
    return Finding(code="not-started", message=message, fix=f"check that '{program}' is on PATH and may be run")


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


class _Child:
    """A child in its own session, and all that it starts."""

    def __init__(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], receive: Callable[[bytes], None]
    ) -> None:
        self._argv, self._cwd, self._receive = argv, cwd, receive
        self._mark = uuid.uuid4().hex
        self._env = {**env, MARK: self._mark}
        self._popen: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None

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
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.close(write_end)

    def follow(self, *, timeout: float | None, on_tick: Callable[[], None]) -> bool:
        """Read its output until it ends; False when the time was up first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ended():
            self._read(TICK)
            on_tick()
            if deadline is not None and time.monotonic() > deadline:
                return self._ended()
        return True

    def stop(self, grace: float) -> None:
        """End whatever is still there of it: SIGTERM, and SIGKILL after `grace` seconds or at a second interrupt."""
        try:
            if self._ended():
                self._drain()
            if self._signal(signal.SIGTERM):
                self._wait(grace)
        finally:
            while self._signal(signal.SIGKILL):
                if not self._wait(2.0):
                    break  # cannot be ended by us: another user's, or it hangs in the kernel
            self._drain()
            self._ended()
            self._close()

    def _ended(self) -> bool:
        return self._popen is not None and self._popen.poll() is not None

    def _read(self, seconds: float) -> bool:
        """Read once; False when nothing came in this time."""
        if self._pipe is None:
            time.sleep(min(seconds, 0.05))
            return False
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        if not poll.poll(seconds * 1000):
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

    def _wait(self, seconds: float) -> bool:
        """Wait until all of it is gone, reading on so that nobody blocks on a full pipe; False when the time is up."""
        until = time.monotonic() + seconds
        while self._members():
            if time.monotonic() > until:
                return False
            with suppress(Exception):
                self._read(0.05)
        return True

    def _signal(self, number: signal.Signals) -> bool:
        """Send a signal to all of it; False when nobody is left."""
        members = self._members()
        if members and self._popen is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, number)  # at once: what is being forked right now gets it too
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                if pid > 0 and not self._in_group(pid):
                    os.kill(pid, number)
        return bool(members)

    def _in_group(self, pid: int) -> bool:
        return self._popen is not None and os.getpgid(pid) == self._popen.pid

    def _members(self) -> set[int]:
        self._ended()  # reaps the child itself
        leader = self._popen.pid if self._popen else None
        if not Path("/proc/self/stat").exists():  # no Linux: only what stayed in the group
            return _group(leader)
        return _family(leader, mark=f"{MARK}={self._mark}".encode())


def _group(leader: int | None) -> set[int]:
    if leader is None:
        return set()
    try:
        os.killpg(leader, 0)
    except (ProcessLookupError, PermissionError):
        return set()
    return {-leader}


def _family(leader: int | None, *, mark: bytes) -> set[int]:
    """The live processes of a session, those that carry the mark in their environment, and all their children."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    own = os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208 - thousands of entries on a login node
        if not name.isdecimal() or int(name) == own:
            continue
        stat = _stat(name)
        if stat is None:
            continue
        pid, (parent, group, session) = int(name), stat
        parents[pid] = parent
        if (leader is not None and leader in (pid, group, session)) or mark in _environ(name):
            found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _stat(pid: str) -> tuple[int, int, int] | None:
    """Parent, group and session of a process, None when it is gone or only waits to be reaped."""
    try:
        text = Path("/proc", pid, "stat").read_bytes()
    except OSError:
        return None
    state, parent, group, session = text.rpartition(b")")[2].split()[:4]
    return None if state in (b"Z", b"X") else (int(parent), int(group), int(session))


def _environ(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "environ").read_bytes()
    except OSError:
        return b""
