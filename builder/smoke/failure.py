"""What can go wrong in words: a failure is part of the result, a misuse ends the program with status 2."""

from __future__ import annotations


class RunError(Exception):
    """Something that the workload needs is missing or broke; the text is one sentence for the result."""


class UsageError(Exception):
    """The command line or the environment asks for something that cannot be started at all."""
