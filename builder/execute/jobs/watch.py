"""Watch the tasks of many kits: one question to Slurm for all of them, since its controllers are shared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.execute.jobs.finish import JobView, check_output, is_over, read_plan, views_of
from builder.execute.jobs.follow import ASK
from builder.execute.jobs.ledger import Ledger
from builder.execute.jobs.record import read_record
from builder.execute.jobs.refusal import hopeless
from builder.execute.jobs.slurm import NODE_LOST, Slurm
from builder.execute.progress import duration
from builder.model.plan import Plan

LOOK = 0.5  # seconds between two looks at the records


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A kit whose jobs are not at their end."""

    ledger: Ledger
    plan: Plan
    folder: Path

    @classmethod
    def of(cls, ledger: Ledger, folder: Path) -> Watched:
        """Read its plan; raises ConfigError."""
        plan = read_plan(folder)
        check_output(ledger, plan, folder=folder.resolve())
        return cls(ledger=ledger, plan=plan, folder=folder)

    def records(self) -> int:
        """How many of its jobs have left a record."""
        return sum(read_record(self.folder, job.job) is not None for job in self.ledger.jobs)


def look_at_kits(kits: Mapping[str, Watched], *, slurm: Slurm) -> dict[str, tuple[JobView, ...]]:
    """How the jobs of each are doing."""
    jobs = [job.job for kit in kits.values() for job in kit.ledger.jobs]
    states = slurm.states(jobs) if jobs else {}
    return {name: views_of(kit.ledger, folder=kit.folder, states=states) for name, kit in kits.items()}


def watch(kits: Mapping[str, Watched], *, slurm: Slurm, say: Callable[[str, str], None]) -> Iterator[str]:
    """Give the name of each kit whose jobs will do nothing more, as soon as that is known; `say` what changes."""
    left = dict(kits)
    said: dict[str, str] = {}
    seen, asked, pause = -1, 0.0, ASK[0]
    while left:
        records = sum(kit.records() for kit in left.values())
        now = time.monotonic()
        if records == seen and now - asked < pause:
            time.sleep(LOOK)
            continue
        seen, asked, pause = records, now, min(pause * 1.5, ASK[1])
        for name, views in look_at_kits(left, slurm=slurm).items():
            for view in views:
                text = f"{view.step}: {state_of(view)}"
                heard = view.over or view.state is not None  # else it is asked again
                if heard and said.get(view.job) != text:
                    said[view.job], pause = text, ASK[0]
                    say(name, f"job {view.job}, {text}")
            if is_over(left[name].plan, views) or any(never_starts(view) for view in views):
                seen -= left.pop(name).records()
                yield name


def never_starts(view: JobView) -> bool:
    """Whether a job waits for what will never be."""
    waits = view.state is not None and view.state.stage == "waiting"
    return waits and view.state is not None and hopeless(view.state.reason, step=view.step, job=view.job) is not None


def state_of(view: JobView) -> str:
    """How a job is doing, in words."""
    if view.over and view.record is not None:
        lost = "lost its node" if view.state is not None and view.state.word in NODE_LOST else ""
        how = "ended" if view.record.exit_code == 0 else f"exit code {view.record.exit_code}"
        how = view.record.reason or lost or how
        return f"{how} after {duration(view.record.seconds)}"
    if view.state is None:
        return "Slurm does not answer"
    if view.state.stage == "waiting":
        reason = view.state.reason.strip("()")
        return "waits" + (f" ({reason})" if reason not in ("", "None") else "")
    if view.state.stage == "running":
        return f"runs on {view.state.nodes}"
    if view.state.stage == "lost":
        return "unknown to Slurm, no record"
    return view.state.word.lower().replace("_", " ") + (", no record" if view.state.nodes else "")
