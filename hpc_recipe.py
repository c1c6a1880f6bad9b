"""The entry point of the program: Ctrl-C while it is loaded ends it with a line, not with a traceback.

Variables for other Pythons of this machine do not change it: the folders of PYTHONPATH come last, and what would change
how this Python runs or ends is not read. It is no module of `builder`: a folder of PYTHONPATH may have another one.
"""

from __future__ import annotations

import os
import sys

HOME = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is slow
CHANGING = ("PYTHONINSPECT", "PYTHONOPTIMIZE", "PYTHONWARNINGS")


def start() -> None:
    """Load the command line, run it and exit with its code."""
    try:
        if not sys.flags.ignore_environment:
            _ignore_variables()
        from builder.cli.main import main as begin

        begin()
    except KeyboardInterrupt:
        os.write(2, b"interrupted\n")
        sys.exit(130)


def _ignore_variables() -> None:
    """Programs that are started find the variables as they were: what runs in an image may be meant."""
    foreign = {_name(part) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    installed = HOME in foreign and bool(os.environ.get("PYTHONPATH"))  # with what recipe imports
    if any(os.environ.get(name) for name in CHANGING) and sys.executable:
        given = [word for word, on in (("-s", sys.flags.no_user_site), ("-B", sys.dont_write_bytecode)) if on]
        words, kept = [*([] if installed else ["-E"]), *given, *sys.orig_argv[1:]], dict(os.environ)
        if installed:
            kept = {name: value for name, value in kept.items() if name not in CHANGING}
        os.execve(sys.executable, [sys.executable, *words], kept)
    if os.environ.get("PYTHONPATH"):
        foreign.discard(HOME)
        sys.path.sort(key=lambda entry: _name(entry) in foreign)  # its order stays otherwise


def _name(folder: str) -> str:
    try:
        return os.path.abspath(folder)  # noqa: PTH100
    except OSError:  # the current folder was removed
        return folder
