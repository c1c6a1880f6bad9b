"""How a plan is to be executed, and how an execution is stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from builder.model.report import Report


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """What the user said; `environment` is what the steps start from, `step_seconds` the longest a step may take."""

    environment: Mapping[str, str]
    force: bool = False  # replace an output that exists
    tmpdir: Path | None = None  # default: TMPDIR, else /tmp
    start: str = ""  # name of the first step to run; those before it have left their products
    no_smoke: bool = False
    sign: bool = False
    reproduce: bool = False  # build again and compare
    step_seconds: float | None = None


class SignalInterrupt(KeyboardInterrupt):
    """The user or the batch system stops the build; `exit_code` is a shell's: 130 for SIGINT, 143 for SIGTERM.

    `report` says how far it came, once there is something to say; `message` is for the user, "" for the usual one.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.report: Report | None = None
        self.message = ""

    @property
    def exit_code(self) -> int:
        """128 + the signal's number."""
        return 128 + self.number


class Signals:
    """SIGINT, SIGTERM and SIGHUP as SignalInterrupt, while the `with` block of `catch` lasts.

    With `once` only the first of them: what follows it is cleaning up.
    """

    def __init__(self, *, once: bool = False) -> None:
        self._held = False
        self._once = once

    @contextmanager
    def catch(self) -> Iterator[None]:
        """Turn the signals into SignalInterrupt; one that is ignored (nohup) stays ignored."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        before = {number: signal.getsignal(number) for number in numbers}
        try:
            for number in numbers:
                if before[number] is not signal.SIG_IGN:
                    signal.signal(number, self._handle)
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def ignore(self) -> None:
        """Ignore signals from now on: what is left is cleaning up."""
        self._held = True

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Let nothing interrupt what is short, and worse when half of it is done."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if not self._held:
            self._held = self._once
            raise SignalInterrupt(number)
