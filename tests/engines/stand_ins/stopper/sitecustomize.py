"""Stops a Python program at a place of the test's choice, by the interpreter's own audit events; nothing is replaced.

STOP_AT is an event and a pattern for its arguments, STOP_WHEN a glob that has to match by then, STOP_FILE is made when
the program stands there. It stands until it is killed, or the file is removed.
"""

import os
import re
import sys
import time
from pathlib import Path

EVENT, _, PATTERN = os.environ.get("STOP_AT", "").partition(" ")
WANTED = re.compile(PATTERN)
busy = []


def words(value):
    if hasattr(value, "keys"):
        return ""  # the environment of a program has STOP_AT itself in it
    return " ".join(map(words, value)) if isinstance(value, (list, tuple)) else str(value)


def ready():
    glob = Path(os.environ.get("STOP_WHEN", "/"))
    return str(glob) == "/" or any(glob.parent.glob(glob.name))


def hook(event, arguments):
    if event != EVENT or busy:
        return
    busy.append(event)
    try:
        if WANTED.search(words(arguments)) and ready():
            stop = Path(os.environ["STOP_FILE"])
            stop.touch()
            while stop.exists():
                time.sleep(0.05)
    finally:
        busy.clear()


if EVENT:
    sys.addaudithook(hook)
