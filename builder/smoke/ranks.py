"""Which rank this process is, from what the launcher left in the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping, Optional, Tuple

from .failure import UsageError


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


def from_environment(environment: Mapping[str, str]) -> Optional[Placement]:
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


def check_own(environment: Mapping[str, str]) -> None:
    """Raise UsageError when ranks of our own are asked for inside each of many ranks that torchrun or MPI started.

    A Slurm variable is no obstacle: an interactive shell of an allocation has them too.
    """
    found = from_environment(environment)
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
