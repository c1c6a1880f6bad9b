"""Plans whose steps are small bash scripts, and the processes that they start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from builder.execute.build_options import ExecutionOptions
from builder.execute.plan_executor import execute
from builder.execute.plan_folder import write_plan
from builder.execute.progress import QuietProgress
from builder.model.plan import Plan, PlanFile, Step
from builder.model.report import Report

MAKES_IMAGE = "echo image >draft && mv draft image.sif\n"

# An image, which --force replaces.
OLD = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\0"

# Runs the plan of a folder as the command line does; its exit status is the shell's 128 + signal when it is stopped.
DRIVER = """
import os, signal, sys
from pathlib import Path
from builder.execute.plan_executor import execute
from builder.execute.build_options import SignalInterrupt, ExecutionOptions
from builder.execute.progress import QuietProgress
from builder.model.plan import from_json
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` has it ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)
folder = Path(sys.argv[1])
plan = from_json((folder / "plan.json").read_text())
options = ExecutionOptions(environment=os.environ, tmpdir=folder.parent / "tmp")
try:
    report = execute(plan, folder=folder, output=folder.parent / "x.sif", options=options, progress=QuietProgress())
except SignalInterrupt as stop:
    assert stop.report.status == "interrupted"
    sys.exit(stop.exit_code)
sys.exit(0 if report.status == "passed" else 5)
"""

HOLDER = """
import sys
from pathlib import Path
from builder.execute.folder_lock import lock_folder
with lock_folder(Path(sys.argv[1])):
    Path(sys.argv[2]).touch()
    sys.stdin.read()
"""


def plan_of(**steps: str | dict[str, Any]) -> Plan:
    """A plan of scripts; the one named build makes the image unless it says otherwise."""
    files, made = [], []
    for name, given in steps.items():
        fields = {"text": given} if isinstance(given, str) else dict(given)
        text = fields.pop("text")
        kind = "smoke" if name.startswith("smoke") else "build"
        produces = {"build": ("image.sif",), "smoke": ("smoke-mnist.json",)}.get(name, ())
        files.append(PlanFile(path=f"{name}.sh", text=textwrap.dedent(text)))
        made.append(
            Step(**{"name": name, "kind": kind, "why": "", "script": f"{name}.sh", "produces": produces, **fields})
        )
    return Plan(
        target="demo.local.apptainer", recipe="demo", site="local", backend="apptainer", vendor="cpu", base="",
        image="image.sif", image_kind="sif", steps=tuple(made), files=tuple(files),
    )  # fmt: skip


class Place:
    """A plan folder, an output and a folder for temporary files."""

    def __init__(self, root: Path) -> None:
        self.root, self.kit, self.output, self.tmp = root, root / "x.plan", root / "x.sif", root / "tmp"
        self.tmp.mkdir()

    def write(self, plan: Plan) -> None:
        write_plan(plan, self.kit, recipe_folder=self.root)

    def execute(self, plan: Plan, *, environment: dict[str, str] | None = None, **options: Any) -> Report:
        self.write(plan)
        found = ExecutionOptions(environment={**os.environ, **(environment or {})}, tmpdir=self.tmp, **options)
        report = execute(plan, folder=self.kit, output=self.output, options=found, progress=QuietProgress())
        written = json.loads((self.kit / "report.json").read_text())
        assert written["status"] == report.status
        return report

    def log(self, step: str = "build") -> str:
        return (self.kit / "logs" / f"{step}.log").read_text()

    def clean(self) -> bool:
        """Nothing temporary is left anywhere."""
        left = [path.name for path in self.root.iterdir() if path.name.startswith(".")]
        return not left and not list(self.tmp.iterdir()) and not (self.kit / ".state.json").exists()


def alive(word: str) -> dict[int, str]:
    """Live processes whose command lines hold a word."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            except OSError:
                continue
            if word in line and state not in (b"Z", b"X"):
                found[int(entry.name)] = line
    return found


def end(word: str) -> None:
    """End what a test began and the code under test left."""
    for pid in alive(word):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def own_word() -> Iterator[str]:
    """A word for command lines that no other process has; no process has it at the end."""
    made = f"w{uuid.uuid4().hex}"
    try:
        yield made
        assert alive(made) == {}
    finally:
        end(made)


@contextmanager
def driven(kit: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that executes the plan of a folder; gone at the end."""
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(kit)], start_new_session=True)
    try:
        yield driver
    finally:
        driver.kill()
        driver.wait()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
