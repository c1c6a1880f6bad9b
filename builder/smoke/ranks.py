"""Which rank this process is, from what the launcher left in the environment.

One rank's run: its record beside the result, its exit status, and what a launcher's rank 0 gathers of all.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import gather, libraries, record
from . import gather as blame
from .errors import UsageError
from .options import WorkloadOptions
from .run import WorkloadRun


@dataclass(frozen=True)
class Placement:
    """A rank among ``world``, its number on its host, and whose variables said so."""

    rank: int
    world: int
    local_rank: int
    launcher: str


# The most specific first. One Slurm task can be a torchrun that starts many ranks, and MPI launchers start one Slurm
# task a host to start theirs: SLURM_PROCID then counts hosts, or is 0 for all, and must be the last to be asked.
_LAUNCHERS: Tuple[Tuple[str, str, str, Tuple[str, ...]], ...] = (
    ("torchrun", "RANK", "WORLD_SIZE", ("LOCAL_RANK", "SLURM_LOCALID")),
    ("openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("OMPI_COMM_WORLD_LOCAL_RANK",)),
    ("pmi", "PMI_RANK", "PMI_SIZE", ("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID", "SLURM_LOCALID")),
    ("slurm", "SLURM_PROCID", "SLURM_NTASKS", ("SLURM_LOCALID",)),
)


def read_placement(environment: Mapping[str, str]) -> Optional[Placement]:
    """Read the placement from the first launcher that named both rank and world; None when none did.

    Where no local rank is named the rank stands for it, which fits ranks that fill one host after the other.
    Raises UsageError when the numbers contradict one another.
    """
    for launcher, rank_name, world_name, local_names in _LAUNCHERS:
        if rank_name not in environment or world_name not in environment:
            continue
        rank, world = _number(environment, rank_name), _number(environment, world_name)
        if rank >= world:
            raise UsageError(f"{rank_name}={rank} does not fit {world_name}={world}")
        local = next((_number(environment, name) for name in local_names if name in environment), rank)
        return Placement(rank, world, local, launcher)
    return None


def check_own_ranks(environment: Mapping[str, str]) -> None:
    """Raise UsageError when ranks of our own are asked for inside each of many ranks that torchrun or MPI started.

    A Slurm variable is no obstacle: an interactive shell of an allocation has them too.
    """
    found = read_placement(environment)
    if found is not None and found.launcher != "slurm" and found.world > 1:
        raise UsageError(
            f"--ranks starts its own ranks, but {found.launcher} already made this process rank {found.rank} "
            f"of {found.world}: leave --ranks out"
        )


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not text.isdecimal():
        raise UsageError(f'{name}="{text}" is not a whole number')
    return int(text)


STATUS_LOST = 3  # between a rank of our own and its parent: it failed because it lost the others
_EARLIER = 60.0  # seconds by which an older rank record belongs to an earlier run
_LAST_WORDS = 6.0  # seconds that rank 0 gives the others to say what they saw


class RankRun(WorkloadRun):
    """One rank's run: its record goes beside the result; a launcher's rank 0 writes the result of all."""

    def __init__(self, options: WorkloadOptions, placement: Placement) -> None:
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

    def print_progress(self, text: str) -> None:
        """Print one line of progress, on rank 0 only."""
        if self.leads:
            super().print_progress(text)

    def write_initial(self) -> None:
        """Begin the result (a launcher's rank 0) and this rank's record; raises UsageError."""
        if self.leads and not self.own:
            super().write_initial()
        if self.options.result is not None:
            record.write_initial(record.name_rank_file(self.options.result, self.placement.rank), self.record)

    def prepare_log(self) -> None:
        """Let NCCL write what it does into a folder that is gone in the end."""
        self._scratch = tempfile.mkdtemp(prefix="smoke-nccl-")
        self.log = os.path.join(self._scratch, "log")
        libraries.redirect_log(self.log)

    def stop(self, number: int) -> bool:
        """Let a training that keeps a snapshot come to the end of its step."""
        self.signal = number
        return self.stoppable

    def signal_alive(self) -> None:
        """Give a sign of life: the time of this rank's record."""
        if self.options.result is not None:
            try:
                os.utime(record.name_rank_file(self.options.result, self.placement.rank))
            except OSError:
                pass  # a record that cannot be touched is told as silent, which it is

    def note(self, **facts: Any) -> None:
        """Add facts to this rank's record and write it."""
        self.record.update(facts)
        self.record["seconds"]["total"] = round(self.count_seconds(), 3)
        if self.options.result is not None:
            try:
                record.write(record.name_rank_file(self.options.result, self.placement.rank), self.record)
            except OSError as fault:
                print(f"rank {self.placement.rank}: its record cannot be written: {fault}", file=sys.stderr)

    def finish(self) -> int:
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
        records = self.gathered if self.gathered is not None else self._wait_for_records()
        gather.assemble(self.result, records)
        if error is not None and self.gathered is None:
            found = blame.diagnose(records, self.placement.world)
            waiting = blame.describe_unfinished(records, range(self.placement.world))
            self.result["error"] = f"{error}: {found or waiting}" if self.ended_early else found or error
        return super().finish()

    def _wait_for_records(self) -> List[Dict[str, Any]]:
        """The records that the ranks left beside the result, after a moment in which all that live can speak."""
        if self.options.result is None:
            return [self.record]
        not_before = os.stat(record.name_rank_file(self.options.result, 0)).st_mtime - self.count_seconds() - _EARLIER
        until = time.monotonic() + _LAST_WORDS
        while True:
            records = gather.read_records(self.options.result, self.placement.world, not_before)
            silent = blame.select_silent(records)
            if len(silent) == len(blame.select_stale(records, silent)) or time.monotonic() > until:
                return records
            time.sleep(0.1)
            self.signal_alive()
