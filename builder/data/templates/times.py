"""Keeps .pyc files valid when their sources get an older time: files of an image that are newer than TIME all get TIME.

usage: python3 times.py TIME

A .pyc file of the usual kind holds the time of its source, and Python compiles again, with every start, what differs.
Runs inside the image while it is built; the standard library alone, any Python 3.
"""

import os
import re
import sys

TAKES_FLAGS = 3390  # magic numbers from here on, of Python 3.7, are followed by flags: 0 where a time comes next
PYTHON_2 = 50000


def settle(path, time):
    with open(path, "r+b") as file:
        head = file.read(12)
        magic = int.from_bytes(head[:2], "little")
        at = 8 if TAKES_FLAGS <= magic < PYTHON_2 else 4
        if len(head) == 12 and (at == 4 or not any(head[4:8])) and int.from_bytes(head[at : at + 4], "little") > time:
            file.seek(at)
            file.write(time.to_bytes(4, "little"))


def mounted():
    """Folders that are not the image's: the engines show folders of the host in it, /tmp among them."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        places = {line.split(" ")[4] for line in file}
    return {re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), place) for place in places}


def main(time):
    others = mounted()
    for root, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if os.path.join(root, name) not in others]
        for name in names:
            path = os.path.join(root, name)
            if name.endswith(".pyc") and path not in others and not os.path.islink(path):
                try:
                    settle(path, time)
                except OSError as error:
                    print("times:", path, error.strerror)


if __name__ == "__main__":
    main(int(sys.argv[1]))
