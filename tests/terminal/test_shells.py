"""Tab in real shells: what bash, zsh and fish put on the line."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest
from conftest import Seat

SECONDS = 180
# how each starts without its own files, and loads our script
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source <(recipe completion bash)"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u; source <(recipe completion zsh)"),
    "fish": (["fish", "--no-config", "-i"], "recipe completion fish | source"),
}
SEQUENCES = re.compile(rb"\x1b(?:\[[0-9;?>=]*[a-zA-Z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>])|[\x00\x0e\x0f]")
BEGIN = "\x01"  # the key for the begin of the line


class Shell:
    """An interactive shell at a terminal."""

    def __init__(self, name: str, *, seat: Seat) -> None:
        words, load = SHELLS[name]
        program = shutil.which(words[0])
        if program is None:
            pytest.skip(f"{name} is missing on this machine: tests/testbed/engines.sh shells")
        self.master, slave = pty.openpty()
        env = {**seat.env, "PS1": "> ", "PATH": f"{seat.env['PATH']}:{os.environ['PATH']}"}
        self.process = subprocess.Popen(
            ["/usr/bin/setsid", "--ctty", program, *words[1:]], cwd=seat.work, env=env,
            stdin=slave, stdout=slave, stderr=slave,
        )  # fmt: skip
        os.close(slave)
        self.seen = b""
        self.type(f"{load}; echo rea''dy\r")
        self.wait(b"ready")

    def type(self, text: str) -> None:
        self.seen = b""
        os.write(self.master, text.encode())

    def wait(self, wanted: bytes) -> None:
        """Read until a line of output begins with it; fails after SECONDS."""
        line = re.compile(rb"\n\r*" + re.escape(wanted))
        end = time.monotonic() + SECONDS
        while not line.search(SEQUENCES.sub(b"", self.seen)):
            ready = select.select([self.master], [], [], max(0.0, end - time.monotonic()))[0]
            assert ready, f"no {wanted!r} in {self.seen!r}"
            self.seen += os.read(self.master, 1 << 16)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, seat: Seat) -> Iterator[Shell]:
    seat.write({"environment.yml": "", "image.sif": ""})
    opened = Shell(request.param, seat=seat)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("recipe expl\t", b"recipe explain "),
        ("recipe check front\t", b"recipe check frontier "),
        ("recipe check dawn env\t", b"recipe check dawn environment.yml "),
        ("recipe build dawn --backend app\t", b"recipe build dawn --backend apptainer "),
        ("recipe explain torch-comp\t", b"recipe explain torch-companion "),
        ("recipe inspect ima\t", b"recipe inspect image.sif "),
    ],
)
def test_tab_completes_the_word(shell: Shell, typed: str, completed: bytes) -> None:
    shell.type(f"{typed}END{BEGIN}echo \r")
    shell.wait(completed + b"END")  # what echo prints
