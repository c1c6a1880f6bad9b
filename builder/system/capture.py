"""Short commands: what they write is returned to the caller, and not logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from builder.system.process import Child

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
