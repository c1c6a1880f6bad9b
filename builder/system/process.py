"""Which processes belong together: by session, by a mark in their environment, by descent.

Child processes: the only import of subprocess.

A child gets its own session, no input, one pipe for everything it writes, and an environment that is given in full.
Whatever it started ends with it, also what left its group, and no pipe that such a process inherited can hold us up.

Questions to programs: what they write is kept for whoever asks, and not logged.
"""

from __future__ import annotations

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

from builder.model.finding import Finding, ToolError
from builder.system.log import StepLog


def members_of(leader: int | None, *, mark: bytes) -> set[int]:
    """Find the live processes that a session's leader has started; a negative number is a whole group."""
    if not Path("/proc/self/stat").exists():  # no Linux: only what stayed in the group
        return _group(leader)
    return _family(leader, mark=mark)


def sessions_of(pids: set[int]) -> set[int]:
    """The processes with all others of their sessions; our own session is left out."""
    names = [name for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - as below
    found = {int(name): stat for name in names if (stat := _stat(name)) is not None}
    sessions = {found[pid][2] for pid in pids if pid in found} - {os.getsid(0)}
    return (pids | {pid for pid, stat in found.items() if stat[2] in sessions}) - {os.getpid()}


def is_alive(pid: int) -> bool:
    """Whether a process is there and does not only wait to be reaped."""
    return _stat(str(pid)) is not None


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
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    state, parent, group, session = text.rpartition(b")")[2].split()[:4]
    return None if state in (b"Z", b"X") else (int(parent), int(group), int(session))


def _environ(pid: str) -> bytes:
    try:
        return _read(f"/proc/{pid}/environ")
    except OSError:
        return b""


def _read(path: str) -> bytes:
    """A file of /proc; thousands are read at the end of every child, and open() takes three times as long."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while more := os.read(handle, 1 << 16):
            text += more
        return text
    finally:
        os.close(handle)


TICK = 0.25  # seconds between two calls of on_tick, at most
GRACE = 5.0  # seconds between SIGTERM and SIGKILL; Apptainer removes its temporary folders in that time
DRAIN = 1.0  # seconds that output may still come after the child's end
MARK = "RECIPE_STEP_MARK"  # in the environment of everything that a step starts


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a child ended: `exit_code` is 128 + `signal` where a signal ended it, as a shell counts."""

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
) -> Ended:
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


def attach(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: int | None = None) -> int:
    """Run a program at the user's terminal, with our input and output, and return its exit code as a shell counts.

    `output` is a handle for what it writes to its standard output, where that is not to go to ours.
    Ctrl-C reaches it from the terminal itself; SIGTERM and SIGHUP are passed on. Raises ToolError when it cannot be
    started.
    """
    try:
        child = subprocess.Popen(list(argv), cwd=cwd, env=dict(env), stdout=output)
    except OSError as error:
        raise ToolError(_not_started(argv[0], error)) from None
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda sent, _: child.send_signal(sent)) for number in numbers}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def end_marked(mark: bytes, *, grace: float = GRACE) -> None:
    """End the processes that carry a mark in their environment, with all of their sessions: SIGTERM, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + grace
        members = sessions_of(members_of(None, mark=mark))
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        while members and time.monotonic() < until:
            time.sleep(0.05)
            members = {pid for pid in members if is_alive(pid)}
        if not members:
            return


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
        """What it writes is given to `receive`; what it writes as errors too, or to nobody."""
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
        return members_of(leader, mark=f"{MARK}={self._mark}".encode())


CAPTURE_LIMIT = 1024 * 1024  # bytes


@dataclass(frozen=True, kw_only=True)
class Captured:
    """The answer to a short question; 127 where the program does not exist, 124 where it took too long."""

    exit_code: int
    text: str


class Question:
    """A short question to a program, which works on its answer while we do something else."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path = Path("/")) -> None:
        self._kept = bytearray()
        self._child = Child(argv, cwd=cwd, env=env, receive=self._receive)
        try:
            self._child.start()
            self._asked = True
        except OSError:
            self._asked = False
        self._dropped = False

    def answer(self, *, timeout: float = 10.0) -> Captured:
        """Wait for the answer; never raises and never takes longer than `timeout` seconds by much."""
        if not self._asked:
            self.drop()
            return Captured(exit_code=127, text="")
        try:
            in_time = self._child.follow(timeout=timeout, on_tick=lambda: None)
        finally:
            self.drop()
        text = self._kept.decode("utf-8", errors="replace")
        return Captured(exit_code=self._child.exit_code if in_time else 124, text=text)

    def drop(self) -> None:
        """End it, answered or not."""
        if not self._dropped:
            self._child.stop(0.5)
            self._dropped = True

    def _receive(self, data: bytes) -> None:
        self._kept.extend(data[: CAPTURE_LIMIT - len(self._kept)])


def capture(argv: Sequence[str], *, env: Mapping[str, str], timeout: float = 10.0, cwd: Path = Path("/")) -> Captured:
    """Ask a program something short; never raises and never takes longer than `timeout` seconds by much."""
    return Question(argv, env=env, cwd=cwd).answer(timeout=timeout)


def read_output(argv: Sequence[str], *, env: Mapping[str, str], limit: int, timeout: float) -> bytearray | None:
    """What a program writes to its output, its errors left out; None where it fails, or says more than `limit` bytes.

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
    """Give what a program writes to its output to `receive` as it comes; False where the program fails.

    `receive` ends it by OverflowError. Never raises.
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


def which(program: str, *, env: Mapping[str, str]) -> Path | None:
    """Find a program on the PATH of an environment."""
    found = shutil.which(program, path=env.get("PATH", os.defpath))
    return Path(found) if found else None
