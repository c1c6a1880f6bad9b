"""Second showings of a command line, at another width, without colour or in a pipe, each a fork of one loaded program.

The first showing of a line is a start of the installed program, but for the cure of a mistake, the lines of the pages
of findings and help at unusual widths. A fork has a terminal, a folder, an environment and a process of its own too;
only the modules are loaded already, which is most of a short command's time.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# Runs with the Python of the installed program. A request is words, folder and environment as JSON, with the file to
# show it on; the answer is the process, and its exit code once it has ended.
SERVER = r"""
import fcntl, json, os, socket, sys, termios

import click
from builder.cli.main import COMMANDS, run_cli
from hpc_recipe import start
import builder.cli.output, rich.console, rich.table, rich.text

for name in COMMANDS:
    run_cli.get_command(click.Context(run_cli), name)


def child(asked, handle):
    os.setsid()
    terminal = os.isatty(handle)
    if terminal:
        fcntl.ioctl(handle, termios.TIOCSCTTY, 0)
    os.dup2(handle if terminal else os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.closerange(3, 64)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    old = sys.stdin, sys.stdout, sys.stderr
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", buffering=1 if terminal else -1, errors=old[1].errors, closefd=False)
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    sys.argv = asked["words"]
    code = 0
    try:
        start()
    except SystemExit as stop:
        code = stop.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
        code = code if isinstance(code, int) else int(code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


line = socket.socket(fileno=int(sys.argv[1]))
while True:
    data, handles, _, _ = socket.recv_fds(line, 1 << 20, 1)
    if not data:
        break
    process = os.fork()
    if not process:
        try:
            child(json.loads(data), handles[0])
        finally:
            os._exit(1)
    os.close(handles[0])
    line.send(json.dumps(process).encode())
    _, status = os.waitpid(process, 0)
    line.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
"""


class LoadedProgram:
    """The installed program, loaded once; `environment` is that of a seat."""

    def __init__(self, python: Path, *, environment: Mapping[str, str], cwd: Path) -> None:
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.server = subprocess.Popen(
                [python, "-c", SERVER, str(theirs.fileno())], pass_fds=[theirs.fileno()], cwd=cwd, env=environment
            )

    def start(self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], handle: int) -> int:
        """Start a command line with a terminal or a pipe as its output, and return its process."""
        asked = json.dumps({"words": [*words], "cwd": str(cwd), "env": dict(env)})
        socket.send_fds(self.line, [asked.encode()], [handle])
        return int(self.line.recv(100))

    def wait(self) -> int:
        """Wait for the end of the command line that was started last, and return its exit code."""
        return int(self.line.recv(100))

    def close(self) -> None:
        """End the server."""
        self.line.close()
        self.server.wait()
