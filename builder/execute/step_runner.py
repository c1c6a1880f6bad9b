"""How a step is carried out: here, by running its script; or elsewhere, as a job (`slurm/monitor.py`).

The products of a step must be there, not empty, and new.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from builder.execute.build_options import ExecutionOptions
from builder.execute.progress import Progress
from builder.model.finding import Finding
from builder.model.plan import Plan, Step
from builder.sif.errors import VARIABLE
from builder.system.layout import EVENTS, LOGS
from builder.system.process import ProcessResult, run
from builder.system.scratch import make_step_environment
from builder.system.step_output import Event, EventReader, make_events_file, open_events

BETWEEN = 0.05  # seconds between two looks for events while lines come
# Steps in which an image can write to the plan folder: what runs there is no program of ours.
REPORT_NOTHING = ("verify", "smoke", "run")


@dataclass(frozen=True, kw_only=True)
class OutputStat:
    """What can be seen of a path from outside. No clock is compared: a file server's may differ from ours."""

    device: int
    inode: int
    size: int
    modified: int  # nanoseconds
    changed: int  # nanoseconds


def stat_output(path: Path) -> OutputStat | None:
    """Look at a product, None when it is not there; a link is looked at as such."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return OutputStat(
        device=found.st_dev,
        inode=found.st_ino,
        size=found.st_size,
        modified=found.st_mtime_ns,
        changed=found.st_ctime_ns,
    )


def find_output_fault(path: Path, *, before: OutputStat | None) -> str:
    """Say what is wrong with a product after its step, "" when nothing is."""
    if not path.exists():
        return f"wrote no '{path.name}'"
    if path.is_dir():
        with os.scandir(path) as entries:
            if next(entries, None) is None:
                return f"left the folder '{path.name}' empty"
    elif path.stat().st_size == 0:
        return f"left '{path.name}' empty"
    if before is not None and stat_output(path) == before:
        return f"left the old '{path.name}' as it was"
    return ""


def find_output_faults(folder: Path, names: Sequence[str], *, before: dict[str, OutputStat | None]) -> str:
    """Say what is wrong with all products of a step, "" when nothing is."""
    found = [text for name in names if (text := find_output_fault(folder / name, before=before.get(name)))]
    return ", ".join(found)


@dataclass
class EventRelay:
    """Passes on what the programs of a step report, and shows its lines."""

    events: EventReader
    on_event: Callable[[Event], None]
    progress: Progress
    last: float = 0.0

    def report_events(self) -> None:
        """Pass on the new events."""
        self.last = time.monotonic()
        for event in self.events.read():
            self.on_event(event)

    def show_line(self, text: str) -> None:
        """Show a line; an event often comes before one."""
        self.progress.show_line(text)
        if time.monotonic() - self.last >= BETWEEN:
            self.report_events()

    def refresh(self) -> None:
        """Time has passed."""
        self.report_events()
        self.progress.refresh()


class StepRunner(Protocol):
    """Carries out the steps of a plan, one after the other."""

    def log(self, step: Step) -> Path:
        """Where the step's output is kept."""

    def prepare_step(self, step: Step) -> Mapping[str, OutputStat | None]:
        """Make room for the step, and say what was there of its products before it began."""

    def run_step(self, step: Step, *, on_event: Callable[[Event], None]) -> ProcessResult:
        """Run the step to its end; `on_event` gets what its programs report, as it comes."""

    def find_fault(self, step: Step, ended: ProcessResult) -> Finding | None:
        """What only the runner knows of a step that has failed, None where its log says it all."""


@dataclass(frozen=True, kw_only=True)
class LocalRunner:
    """Runs the steps' scripts on this machine."""

    plan: Plan
    folder: Path
    options: ExecutionOptions
    progress: Progress
    scratch: Path
    mask: Callable[[str], str]

    def log(self, step: Step) -> Path:
        """A file of the folder for logs."""
        return self.folder / LOGS / f"{step.name}.log"

    def prepare_step(self, step: Step) -> Mapping[str, OutputStat | None]:
        """Remove the link to the published image: a step that writes in place must not write through it."""
        return make_room(self.plan, step, self.folder)

    def run_step(self, step: Step, *, on_event: Callable[[Event], None]) -> ProcessResult:
        """Run the script."""
        log, path = self.log(step), self.scratch / f"{step.name}{EVENTS}"
        environment = make_step_environment(self.options.environment, scratch=self.scratch)
        relay = EventRelay(open_events(path, mask=self.mask), on_event, self.progress)
        with suppress(OSError):
            log.replace(log.with_suffix(".previous.log"))
        if step.kind not in REPORT_NOTHING:
            make_events_file(path)
            environment[VARIABLE] = str(path)
        try:
            return run(
                ["bash", step.script],
                cwd=self.folder,
                env=environment,
                log=log,
                on_line=relay.show_line,
                on_tick=relay.refresh,
                mask=self.mask,
                timeout=self.options.step_seconds,
            )
        finally:
            relay.report_events()

    def find_fault(self, step: Step, ended: ProcessResult) -> Finding | None:
        """Nothing more than the log says."""
        del step, ended
        return None


def make_room(plan: Plan, step: Step, folder: Path) -> dict[str, OutputStat | None]:
    """Remove the link to a published image where a step makes a new one; returns what is there of its products."""
    image = folder / plan.image
    if plan.image in step.produces and image.is_symlink():
        image.unlink()
    return {name: stat_output(folder / name) for name in step.produces}
