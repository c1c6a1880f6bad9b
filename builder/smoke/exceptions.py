"""Exceptions: a failure becomes part of the result, a usage error exits with status 2."""

from __future__ import annotations


class RunError(Exception):
    """Something that the workload needs is missing or failed; the text is one sentence for the result."""


class StoppedError(RunError):
    """A signal ended the work in good order; ``status`` is the exit status of the program."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class UsageError(Exception):
    """The command line or the environment asks for something that cannot be started at all."""
