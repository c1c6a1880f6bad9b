"""What `unsquashfs -lln` prints, line by line: the only place that reads it."""

from __future__ import annotations

import re
from typing import NamedTuple

LINE = re.compile(
    r"^(?P<kind>[-dlcbps])(?P<mode>[rwxsStT-]{9}) (?P<owner>\d+/\d+) +(?:(?P<size>\d+)|(?P<device>\d+, *\d+)) "
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d) squashfs-root(?P<path>/.*)?$"
)
ARROW = " -> "
SPECIAL = {2: 0o4000, 5: 0o2000, 8: 0o1000}


class Row(NamedTuple):
    """One file, folder, link or device of a squashfs; `path` begins with a slash. Made by the ten thousands."""

    kind: str  # as `ls` writes it: - d l c b p s
    mode: str  # rwxr-xr-x
    owner: str  # UID/GID
    size: int
    device: str
    time: str
    path: str
    target: str = ""

    @property
    def permissions(self) -> int:
        """The mode as a number."""
        return mode_of(self.mode)

    @property
    def hides(self) -> bool:
        """Whether it is a whiteout of overlayfs: a device 0, 0."""
        return self.kind == "c" and self.device.replace(" ", "") == "0,0"


def row_of(line: str) -> Row | None:
    """Read one line; None for what is no row, such as the second half of a name with a line break."""
    found = LINE.match(line)
    if found is None:
        return None
    path, target = found["path"] or "/", ""
    if found["kind"] == "l":
        path, _, target = path.partition(ARROW)
    return Row(
        kind=found["kind"],
        mode=found["mode"],
        owner=found["owner"],
        size=int(found["size"] or 0),
        device=found["device"] or "",
        time=found["time"],
        path=path,
        target=target,
    )


def mode_of(text: str) -> int:
    """rwxr-xr-x as a number."""
    mode = 0
    for position, letter in enumerate(text):
        if letter not in "-ST":
            mode |= 0o400 >> position
    return mode | sum(bit for position, bit in SPECIAL.items() if text[position] in "sStT")
