"""One rank's run: its record beside the result, its exit status, and what a launcher's rank 0 gathers of all."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional

from . import blame, gather, libraries, record
from .options import Options
from .ranks import Placement
from .run import Run

STATUS_LOST = 3  # between a rank of our own and its parent: it failed because it lost the others
_EARLIER = 60.0  # seconds by which an older rank record belongs to an earlier run
_LAST_WORDS = 6.0  # seconds that rank 0 gives the others to say what they saw


class RankRun(Run):
    """One rank's run: its record goes beside the result; a launcher's rank 0 writes the result of all."""

    def __init__(self, options: Options, placement: Placement) -> None:
        super().__init__(options)
        self.placement = placement
        self.own = options.rendezvous is not None
        self.gathered: Any = None
        self.store: Any = None
        self._scratch: Optional[str] = None
        self.log: Optional[str] = None  # where NCCL writes what it does
        self.signal = 0  # that asked for an end in good order
        self.stoppable = False
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

    def prepare_log(self) -> None:
        """Let NCCL write what it does into a folder that is gone in the end."""
        self._scratch = tempfile.mkdtemp(prefix="smoke-nccl-")
        self.log = os.path.join(self._scratch, "log")
        libraries.log_to(self.log)

    def stop(self, number: int) -> bool:
        """Let a training that keeps a snapshot come to the end of its step."""
        self.signal = number
        return self.stoppable

    def beat(self) -> None:
        """Give a sign of life: the time of this rank's record."""
        if self.options.result is not None:
            try:
                os.utime(record.rank_path(self.options.result, self.placement.rank))
            except OSError:
                pass  # a record that cannot be touched is told as silent, which it is

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
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self.note(error=error, finished=error is None, ended_early=self.ended_early)
        if error is not None and not self.own:
            print(f"rank {self.placement.rank}: {error}", file=sys.stderr, flush=True)
        if self.own:
            return STATUS_LOST if self.record.get("lost") else int(error is not None)
        if not self.leads:
            return int(error is not None)
        records = self.gathered if self.gathered is not None else self._last_words()
        gather.assemble(self.result, records)
        if error is not None and self.gathered is None:
            found = blame.diagnose(records, self.placement.world)
            waiting = blame.unfinished(records, range(self.placement.world))
            self.result["error"] = f"{error}: {found or waiting}" if self.ended_early else found or error
        return super().conclude()

    def _last_words(self) -> List[Dict[str, Any]]:
        """The records that the ranks left beside the result, after a moment in which all that live can speak."""
        if self.options.result is None:
            return [self.record]
        not_before = os.stat(record.rank_path(self.options.result, 0)).st_mtime - self.seconds() - _EARLIER
        until = time.monotonic() + _LAST_WORDS
        while True:
            records = gather.read_records(self.options.result, self.placement.world, not_before)
            silent = blame.silent(records)
            if len(silent) == len(blame.stale(records, silent)) or time.monotonic() > until:
                return records
            time.sleep(0.1)
            self.beat()
