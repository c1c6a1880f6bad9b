"""One rank's run: its rank from the launcher's variables, its record, its exit status.

Rank 0 of a launcher gathers the records of all ranks.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import hardware, result_files
from .options import UsageError, WorkloadOptions
from .run import WorkloadRun


@dataclass(frozen=True)
class Placement:
    """The rank of this process among ``world``, its number on its host, and the launcher."""

    rank: int
    world: int
    local_rank: int
    launcher: str


# RECIPE_LOCAL_RANK: where a rank sees one device, LOCAL_RANK is that device's index.
# The most specific first. One Slurm task can be a torchrun that starts many ranks, and MPI launchers run in one Slurm
# task per host: SLURM_PROCID then counts hosts, or is 0 for all, so it is tried last.
_LAUNCHERS: Tuple[Tuple[str, str, str, Tuple[str, ...]], ...] = (
    ("torchrun", "RANK", "WORLD_SIZE", ("RECIPE_LOCAL_RANK", "LOCAL_RANK", "SLURM_LOCALID")),
    ("openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ("OMPI_COMM_WORLD_LOCAL_RANK",)),
    ("pmi", "PMI_RANK", "PMI_SIZE", ("MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID", "SLURM_LOCALID")),
    ("slurm", "SLURM_PROCID", "SLURM_NTASKS", ("SLURM_LOCALID",)),
)


def read_placement(environment: Mapping[str, str]) -> Optional[Placement]:
    """Read the placement from the first launcher that set both rank and world; None if none did.

    If no local rank is set the rank is used, which is right for ranks that fill one host after the other. Raises
    UsageError if the numbers contradict one another.
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
    """Raise UsageError if --ranks is given inside ranks that torchrun or MPI started.

    Slurm's variables are allowed: an interactive shell of an allocation has them too.
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


STATUS_LOST = 3  # exit status of our own ranks: it failed because it lost the others
_EARLIER = 60.0  # seconds; older rank records are from an earlier run
_LAST_WORDS = 6.0  # seconds that rank 0 waits for the records of the others
_LEAD_SECONDS = 3.0  # seconds that a failed rank waits for rank 0's result, which a launcher would otherwise prevent


class RankRun(WorkloadRun):
    """One rank's run: it writes its record next to the result; a launcher's rank 0 writes the result of all."""

    def __init__(self, options: WorkloadOptions, placement: Placement) -> None:
        super().__init__(options)
        self.placement = placement
        self.own = options.rendezvous is not None
        self.gathered: Any = None
        self.store: Any = None
        self._scratch: Optional[str] = None
        self.log: Optional[str] = None  # NCCL's log file
        self.signal = 0  # the signal that requested the stop
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
        """Whether this is rank 0, which reports for all."""
        return self.placement.rank == 0

    def print_progress(self, text: str) -> None:
        if self.leads:
            super().print_progress(text)

    def write_initial(self) -> None:
        """Write the initial result (a launcher's rank 0) and this rank's initial record; raises UsageError."""
        if self.leads and not self.own:
            super().write_initial()
        if self.options.result is not None:
            result_files.write_initial(
                result_files.name_rank_file(self.options.result, self.placement.rank), self.record
            )

    def prepare_log(self) -> None:
        """Let NCCL write its log to a temporary folder."""
        self._scratch = tempfile.mkdtemp(prefix="smoke-nccl-")
        self.log = os.path.join(self._scratch, "log")
        hardware.redirect_log(self.log)

    def stop(self, number: int) -> bool:
        """Ask a training with a snapshot to stop after its step; it has stopped where another rank was told before."""
        self.signal = number
        return self.stoppable or "stopped" in self.record

    def signal_alive(self) -> None:
        """Update the time of this rank's record."""
        if self.options.result is not None:
            try:
                os.utime(result_files.name_rank_file(self.options.result, self.placement.rank))
            except OSError:
                pass  # a record that cannot be updated counts as silent

    def note(self, **facts: Any) -> None:
        """Add facts to this rank's record and write it."""
        self.record.update(facts)
        self.record["seconds"]["total"] = round(self.count_seconds(), 3)
        if self.options.result is not None:
            try:
                result_files.write(result_files.name_rank_file(self.options.result, self.placement.rank), self.record)
            except OSError as fault:
                print(f"rank {self.placement.rank}: its record cannot be written: {fault}", file=sys.stderr)

    def finish(self) -> int:
        """Write this rank's record; a launcher's rank 0 then checks the result of all."""
        error = self.result["error"]
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self.note(error=error, finished=error is None, ended_early=self.ended_early)
        if error is not None and not self.own:
            print(f"rank {self.placement.rank}: {error}", file=sys.stderr, flush=True)
        if self.own:
            return STATUS_LOST if self.record.get("lost") else int(error is not None)
        if not self.leads:
            if error is not None:
                self._wait_for_result()
            return int(error is not None)
        records = self.gathered if self.gathered is not None else self._wait_for_records()
        result_files.assemble(self.result, records)
        if error is not None and self.gathered is None:
            found = result_files.diagnose(records, self.placement.world)
            waiting = result_files.describe_unfinished(records, range(self.placement.world))
            self.result["error"] = f"{error}: {found or waiting}" if self.ended_early else found or error
        return super().finish()

    def _wait_for_result(self) -> None:
        """Wait until rank 0 has written the result: srun ends all ranks, and their image's mount, when one fails."""
        path = self.options.result
        if path is None:
            return
        until = time.monotonic() + _LEAD_SECONDS + (_LAST_WORDS if self.ended_early else 0.0)
        while time.monotonic() < until and result_files.is_unfinished(path):
            time.sleep(0.1)

    def _wait_for_records(self) -> List[Dict[str, Any]]:
        """Read the records of all ranks, after giving the live ones a moment to write theirs."""
        if self.options.result is None:
            return [self.record]
        not_before = (
            os.stat(result_files.name_rank_file(self.options.result, 0)).st_mtime - self.count_seconds() - _EARLIER
        )
        until = time.monotonic() + _LAST_WORDS
        while True:
            records = result_files.read_records(self.options.result, self.placement.world, not_before)
            silent = result_files.select_silent(records)
            if len(silent) == len(result_files.select_stale(records, silent)) or time.monotonic() > until:
                return records
            time.sleep(0.1)
            self.signal_alive()
