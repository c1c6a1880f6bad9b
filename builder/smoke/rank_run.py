"""One rank's run: its record beside the result, its exit status, and what a launcher's rank 0 gathers of all."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict

from . import gather, record
from .options import Options
from .ranks import Placement
from .run import Run

STATUS_LOST = 3  # between a rank of our own and its parent: it failed because it lost the others
_STALE = 60.0  # seconds by which an older rank record belongs to an earlier run


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
