"""A command of the program run with its memory and time measured: its own, and those of what it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MEMORY = 300  # MB
SECONDS = 5.0  # of processor time, so that a busy machine does not matter
PROGRAM = """
import json, os, resource, sys
sys.path.insert(0, sys.argv[1])
from importlib import import_module
code = 1
try:
    code = import_module(sys.argv[2]).{call}
finally:
    sys.stdout.flush()
    own = [int(row.split()[1]) for row in open("/proc/self/status") if row.startswith("VmHWM")][0]
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    seconds = sum(one.ru_utime + one.ru_stime for one in used)
    with open(sys.argv[3], "w") as file:
        json.dump([max(own, used[1].ru_maxrss) / 1000, seconds], file)
sys.exit(code)
"""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """How a command ended; memory in MB, processor time in seconds."""

    code: int
    memory: float
    seconds: float
    output: str

    def check(self, *, files: int = 1) -> None:
        """It kept within bounds, of time for each file that it read, and was no fault of the program."""
        assert "Traceback" not in self.output, self.output[-2000:]
        assert self.memory < MEMORY, f"{self.memory} MB"
        assert self.seconds < SECONDS * files, f"{self.seconds} s"


def recipe(*words: str | Path, folder: Path) -> Measured:
    """Run `recipe`."""
    return run_call("builder.cli.main", "run(sys.argv[4:])", words, folder)


def layering(*words: str | Path, folder: Path) -> Measured:
    """Run the program that travels with plans."""
    return run_call("builder.layers.commands", "main(sys.argv[4:])", words, folder)


def run_call(module: str, call: str, words: tuple[str | Path, ...], folder: Path) -> Measured:
    """Run a call of a module: its result is the exit code."""
    root, told = Path(__file__).parents[2], folder / "measured.json"
    told.unlink(missing_ok=True)
    argv = [sys.executable, "-c", PROGRAM.replace("{call}", call), str(root), module, str(told), *map(str, words)]
    environment = {**os.environ, "HOME": str(folder), "RECIPE_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False
    )
    output = (done.stdout + done.stderr).decode(errors="replace")
    memory, seconds = json.loads(told.read_text())
    return Measured(code=done.returncode, memory=memory, seconds=seconds, output=output)
