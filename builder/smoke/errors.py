"""What can go wrong in words: a failure is part of the result, a misuse ends the program with status 2."""

from __future__ import annotations


class RunError(Exception):
    """Something that the workload needs is missing or broke; the text is one sentence for the result."""


class StoppedError(RunError):
    """The work was ended in good order by a signal; ``status`` is what the program leaves with."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class UsageError(Exception):
    """The command line or the environment asks for something that cannot be started at all."""
