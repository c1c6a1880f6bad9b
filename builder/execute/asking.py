"""Questions to programs: what they write is kept for whoever asks, and not logged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from builder.execute.process import Child

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
