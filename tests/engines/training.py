"""A program that knows SIGTERM alone. Before it saves it reads more of the image, which has to be mounted still."""

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
    written = pathlib.Path(f"written-{os.environ['RANK']}")
    written.write_text(json.dumps([number, size > 1_000_000]))
    written.rename(name_record(int(os.environ["RANK"])))
    if "--ignore" not in sys.argv:
        # srun ends the other ranks when the first one fails: each waits until all have saved.
        while not all(name_record(rank).exists() for rank in range(int(os.environ["WORLD_SIZE"]))):
            time.sleep(0.05)
        sys.exit(0 if "--well" in sys.argv else 5)


def name_record(rank: int) -> pathlib.Path:
    return pathlib.Path(f"saved-{rank}")


signal.signal(signal.SIGTERM, save)
print(f"begun {os.environ['RANK']}", flush=True)
while True:
    time.sleep(0.2)
