"""A program that knows SIGTERM alone. Before it saves it reads more of the image, which has to be mounted still.

A rank ends when all have saved: srun ends the others as soon as one has failed.
"""

import json
import os
import pathlib
import signal
import sys
import time
from types import FrameType


def save(number: int, frame: FrameType | None) -> None:
    del frame
    import sqlite3  # noqa: F401
    import xml.dom.minidom  # noqa: F401

    size = sum(len(path.read_bytes()) for path in pathlib.Path("/usr/lib/python3.11").glob("*.py"))
    path = pathlib.Path(f"saved-{os.environ['RANK']}")
    path.with_suffix(".tmp").write_text(json.dumps([number, size > 1_000_000]))
    path.with_suffix(".tmp").rename(path)
    end = time.monotonic() + 50
    while len(list(pathlib.Path().glob("saved-?"))) < 4 and time.monotonic() < end:
        time.sleep(0.05)
    if "--ignore" not in sys.argv:
        sys.exit(0 if "--well" in sys.argv else 5)


signal.signal(signal.SIGTERM, save)
print(f"begun {os.environ['RANK']}", flush=True)
while True:
    time.sleep(0.2)
