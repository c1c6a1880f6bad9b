"""The entry point of the program: Ctrl-C while it is loaded ends it with a line, not with a traceback."""

from __future__ import annotations

import os
import sys


def start() -> None:
    """Load the command line, run it and exit with its code."""
    try:
        from builder.cli.main import main as begin

        begin()
    except KeyboardInterrupt:
        os.write(2, b"interrupted\n")
        sys.exit(130)
