"""Programs at a terminal: what a person sees of a command line, and what is wrong with the look of it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from second import LoadedProgram

SECONDS = 180  # a command that is silent for so long hangs
COLORS = re.compile(r"\x1b\[[0-9;]*m")
CURSOR = re.compile(r"\x1b\[(?:\?25[hl]|2K|\d*A)")  # of the live lines, on a terminal only
OBEYED = re.compile(r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a command line showed: the exit code (None: it hung) and both streams; `columns` None is a pipe."""

    words: tuple[str, ...]
    code: int | None
    raw: str
    columns: int | None
    color: bool

    @property
    def lines(self) -> list[str]:
        """The lines of the screen, without colours."""
        return [line.rstrip() for line in re.split(r"\r*\n|\r", CURSOR.sub("", COLORS.sub("", self.raw)))]

    @property
    def text(self) -> str:
        """All of it with the line breaks of wrapping undone: a line of a finding is one line again."""
        return re.sub(r"\n +(?!(?:at|fix|next): )", " ", "\n".join(self.lines))


def show(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    columns: int | None = 80,
    color: bool = True,
    loaded: LoadedProgram | None = None,
) -> Shown:
    """Run a command at a terminal of so many columns, or through a pipe where there are none."""
    own = dict(env) if color else {**env, "NO_COLOR": "1"}
    if loaded is not None:
        return _show_second(words, cwd=cwd, env=own, columns=columns, color=color, loaded=loaded)
    if columns is None:
        done = subprocess.run(
            words, cwd=cwd, env=own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=SECONDS, check=False,
        )  # fmt: skip
        return Shown(words=tuple(words), code=done.returncode, raw=done.stdout.decode(), columns=None, color=False)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        process = subprocess.Popen(
            words, cwd=cwd, env=own, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
    finally:
        os.close(slave)
    seen = _read(master)
    os.close(master)
    if seen is None:
        process.kill()
    code = process.wait()
    raw = (seen or b"").decode()
    return Shown(words=tuple(words), code=None if seen is None else code, raw=raw, columns=columns, color=color)


def _show_second(
    words: Sequence[str], *, cwd: Path, env: Mapping[str, str], columns: int | None, color: bool, loaded: LoadedProgram
) -> Shown:
    """As `show`, by a fork of the program that is loaded."""
    master, slave = os.pipe() if columns is None else pty.openpty()
    try:
        if columns is not None:
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = loaded.start(words, cwd=cwd, env=env, handle=slave)
    finally:
        os.close(slave)
    seen = _read(master)
    os.close(master)
    if seen is None:
        os.kill(process, signal.SIGKILL)
    code = loaded.wait()
    raw, color = (seen or b"").decode(), color and columns is not None
    return Shown(words=tuple(words), code=None if seen is None else code, raw=raw, columns=columns, color=color)


def _read(master: int) -> bytes | None:
    """Everything up to the end of the terminal or pipe; None where it does not come in time."""
    shown, end = b"", time.monotonic() + SECONDS
    while (left := end - time.monotonic()) > 0:
        if not select.select([master], [], [], left)[0]:
            break
        try:
            more = os.read(master, 1 << 16)
        except OSError:  # the last one that had it open has ended
            return shown
        if not more:
            return shown
        shown += more
    return None


MACHINE = ("json", "sarif", "github", "yaml", "--json", "--print")  # for programs: it is not fitted to a screen


def faults(shown: Shown) -> list[str]:
    """What nobody should see, whatever the command is."""
    found = []
    plain = COLORS.sub("", shown.raw)
    if shown.code is None:
        found.append(f"no end within {SECONDS} s")
    if "Traceback (most recent" in plain or "fault of recipe" in plain:
        found.append("a traceback")
    if shown.raw != plain and (shown.columns is None or not shown.color):
        found.append("escape codes in a pipe or without colour")
    odd = OBEYED.search(CURSOR.sub("", plain) if shown.columns else plain)
    if odd:
        found.append(f"the control character {odd[0]!r}")
    if shown.columns and not set(MACHINE) & set(shown.words):
        # One word, such as a path or an address, is whole on a line of its own; all else is broken between words.
        wide = [line for line in shown.lines if len(line) > shown.columns and len(line.split()) > 1]
        found += [f"wider than {shown.columns} columns: {line}" for line in wide]
    return found


def broken(narrow: Shown, wide: Shown) -> list[str]:
    """The words of a narrow screen that another showing does not have: they were broken; numbers may differ."""
    known = _words(wide)
    return sorted(word for word in _words(narrow) if "…" not in word and not word.endswith("...") and word not in known)


def _words(shown: Shown) -> set[str]:
    return {re.sub(r"\d+", "0", word) for word in " ".join(shown.lines).split()}
