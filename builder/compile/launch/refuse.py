"""Commands that must not be launched at a site, said before a job waits in the queue for nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from builder.model.finding import Finding
from builder.model.target import Target

_PYTHON = re.compile(r"python[0-9.]*")
_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_VALUES = ("-W", "-X", "--check-hash-based-pycs")  # options of python that take the next word


def refuse_command(target: Target, words: Sequence[str]) -> tuple[Finding, ...]:
    """What speaks against a user's command: torchrun where the site forbids it, or inside ranks that are started."""
    program = torchrun_in(words)
    if not program:
        return ()
    launch = target.site.launch
    fix = f"leave '{program}' and its options out: the job starts the ranks and sets RANK, WORLD_SIZE and LOCAL_RANK"
    if launch.torchrun_refused:
        message = f"'{program}' must not be used on '{target.site.name}': {launch.torchrun_refused}"
        return (Finding(code="launch-torchrun", message=message, fix=fix),)
    message = f"the job starts a rank for each device already, and '{program}' would start its own in every one of them"
    return (Finding(code="launch-nested", message=message, fix=fix, level="warning"),)


def torchrun_in(words: Sequence[str]) -> str:
    """Give the name by which a command starts torchrun, "" when it does not."""
    rest = list(words)
    while rest and (rest[0] in ("env", "exec", "command", "nice", "time") or _is_assignment(rest[0])):
        rest.pop(0)
    if not rest:
        return ""
    program = PurePosixPath(rest[0]).name
    if program == "torchrun":
        return program
    if _PYTHON.fullmatch(program):
        return _module(rest[1:])
    return ""


def _module(options: list[str]) -> str:
    """The launcher that python is told to run by `-m`; what follows a program's name is no option of python."""
    while options and options[0].startswith("-"):
        word = options.pop(0)
        if word in _VALUES and options:
            options.pop(0)
        elif not word.startswith("--") and "m" in word[1:]:
            module = word.partition("m")[2] or (options[0] if options else "")
            return f"python -m {module}" if module in _MODULES else ""
    return ""


def _is_assignment(word: str) -> bool:
    return re.match(r"[A-Za-z_][A-Za-z0-9_]*=", word) is not None
