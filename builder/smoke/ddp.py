"""The same training over all ranks: as one rank of a launcher's, or as the parent of ranks of our own."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Dict

from . import gather, hardware, ranks, record
from .failure import UsageError
from .options import Options
from .ranks import Placement
from .run import Run

STATUS_LOST = 3  # between a rank of our own and its parent: it failed because it lost the others
_STALE = 60.0  # seconds by which an older rank record belongs to an earlier run


def main(options: Options) -> int:
    """Run as what the options and the environment make of this process; raises UsageError when that is unclear."""
    if options.ranks is not None:
        from . import supervise

        ranks.check_own(os.environ)
        return supervise.Supervised(options).supervise()
    placement = ranks.from_environment(os.environ)
    if placement is None:
        raise UsageError(
            "no launcher started this process (no RANK, PMI_RANK, SLURM_PROCID): start it by one or give --ranks"
        )
    run = RankRun(options, placement)
    if options.rendezvous is not None:
        threading.Thread(target=_follow_parent, name="parent", daemon=True).start()
    return run.perform(work)


def work(run: Run) -> None:
    """Do one rank's part; raises RunError."""
    assert isinstance(run, RankRun)
    run.note(state="starting")
    torch = hardware.load_torch()
    run.note(torch=hardware.describe_torch(torch))
    kind, index = hardware.choose_device(torch, run.options.device, run.placement.local_rank)
    run.note(device=hardware.describe_device(torch, kind, index))
    from . import rank  # imports torch

    rank.train(run, hardware.prepare(torch, kind, index))


class RankRun(Run):
    """One rank's run: its record goes beside the result; a launcher's rank 0 writes the result of all."""

    def __init__(self, options: Options, placement: Placement) -> None:
        super().__init__(options)
        self.placement = placement
        self.own = options.rendezvous is not None
        self.gathered: Any = None
        self.record: Dict[str, Any] = {
            "rank": placement.rank,
            "local_rank": placement.local_rank,
            "world": placement.world,
            "launcher": "own" if self.own else placement.launcher,
            "host": self.result["host"],
            "pid": os.getpid(),
            "finished": False,
            "error": None,
            "seconds": {},
        }
        if self.result["expected"]["ranks"] is None:
            self.result["expected"]["ranks"] = placement.world

    @property
    def leads(self) -> bool:
        """Whether this rank speaks for all."""
        return self.placement.rank == 0

    def say(self, text: str) -> None:
        """Print one line of progress, on rank 0 only."""
        if self.leads:
            super().say(text)

    def claim(self) -> None:
        """Begin the result (a launcher's rank 0) and this rank's record; raises UsageError."""
        if self.leads and not self.own:
            super().claim()
        if self.options.result is not None:
            record.claim(record.rank_path(self.options.result, self.placement.rank), self.record)

    def note(self, **facts: Any) -> None:
        """Add facts to this rank's record and write it."""
        self.record.update(facts)
        self.record["seconds"]["total"] = round(self.seconds(), 3)
        if self.options.result is not None:
            try:
                record.write(record.rank_path(self.options.result, self.placement.rank), self.record)
            except OSError as fault:
                print(f"rank {self.placement.rank}: its record cannot be written: {fault}", file=sys.stderr)

    def conclude(self) -> int:
        """Write this rank's record; a launcher's rank 0 then judges all."""
        error = self.result["error"]
        self.note(error=error, finished=error is None)
        if error is not None and not self.own:
            print(f"rank {self.placement.rank}: {error}", file=sys.stderr, flush=True)
        if self.own:
            return STATUS_LOST if self.record.get("lost") else int(error is not None)
        if not self.leads:
            return int(error is not None)
        records = self.gathered if error is None else self._records_left()
        gather.assemble(self.result, records)
        if error is not None:
            waiting = gather.unfinished(records, range(self.placement.world))
            self.result["error"] = f"{error}: {waiting}" if self.ended_early else gather.cause(records) or error
        return super().conclude()

    def _records_left(self) -> Any:
        """The records that the ranks left beside the result, so that a failed run names who had not finished."""
        if self.options.result is None:
            return [self.record]
        mine = os.stat(record.rank_path(self.options.result, 0)).st_mtime
        return gather.read_records(self.options.result, self.placement.world, mine - self.seconds() - _STALE)


def _follow_parent() -> None:
    """End with the parent: its end of our standard input closes when it dies, even of SIGKILL."""
    while os.read(0, 64):
        pass
    os._exit(1)
