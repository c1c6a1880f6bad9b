"""How a step is carried out: here, by running its script; or elsewhere, as a job (execute/jobs)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from builder.execute.environment import step_environment
from builder.execute.image.product import Seen, look
from builder.execute.names import LOGS
from builder.execute.options import Options
from builder.execute.process import Ended, run
from builder.execute.progress import Progress
from builder.model.finding import Finding
from builder.model.plan import Plan, Step


class Carrier(Protocol):
    """Carries out the steps of a plan, one after the other."""

    def log(self, step: Step) -> Path:
        """Where the step's output is kept."""

    def before(self, step: Step) -> Mapping[str, Seen | None]:
        """Make room for the step, and say what was there of its products before it began."""

    def carry_out(self, step: Step, *, hear: Callable[[str], None]) -> Ended:
        """Carry the step out to its end; `hear` gets its lines where they come while it works."""

    def fault(self, step: Step, ended: Ended) -> Finding | None:
        """What only the carrier knows of a step that has failed, None where its log says it all."""


@dataclass(frozen=True, kw_only=True)
class Here:
    """Runs the steps' scripts on this machine."""

    plan: Plan
    folder: Path
    options: Options
    progress: Progress
    scratch: Path
    mask: Callable[[str], str]

    def log(self, step: Step) -> Path:
        """A file of the folder for logs."""
        return self.folder / LOGS / f"{step.name}.log"

    def before(self, step: Step) -> Mapping[str, Seen | None]:
        """Remove the link to the published image: a step that writes in place must not write through it."""
        return make_room(self.plan, step, self.folder)

    def carry_out(self, step: Step, *, hear: Callable[[str], None]) -> Ended:
        """Run the script."""
        log = self.log(step)

        def heard(text: str) -> None:
            self.progress.line(text)
            hear(text)

        with suppress(OSError):
            log.replace(log.with_suffix(".previous.log"))
        return run(
            ["bash", step.script],
            cwd=self.folder,
            env=step_environment(self.options.environment, scratch=self.scratch),
            log=log,
            on_line=heard,
            on_tick=self.progress.tick,
            mask=self.mask,
            timeout=self.options.step_seconds,
        )

    def fault(self, step: Step, ended: Ended) -> Finding | None:
        """Nothing more than the log says."""
        del step, ended
        return None


def make_room(plan: Plan, step: Step, folder: Path) -> dict[str, Seen | None]:
    """Remove the link to a published image where a step makes a new one; returns what is there of its products."""
    image = folder / plan.image
    if plan.image in step.produces and image.is_symlink():
        image.unlink()
    return {name: look(folder / name) for name in step.produces}
