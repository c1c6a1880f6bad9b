"""Which rank a process is, when several launchers left their variables."""

import pytest
from support.rows import rows

from builder.smoke.options import UsageError
from builder.smoke.ranks import Placement, check_own_ranks, read_placement

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "16", "SLURM_LOCALID": "2"}
ONE_TASK_A_HOST = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
HYDRA = {"PMI_RANK": "9", "PMI_SIZE": "16", "MPI_LOCALRANKID": "1"}
OPENMPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}


@rows(
    ("environment", "expected"),
    [
        (TORCHRUN, Placement(5, 8, 1, "torchrun")),
        (SLURM, Placement(3, 16, 2, "slurm")),
        (HYDRA, Placement(9, 16, 1, "pmi")),
        (OPENMPI, Placement(2, 4, 0, "openmpi")),
        # MareNostrum 5: srun starts one torchrun a host
        (TORCHRUN | ONE_TASK_A_HOST, Placement(5, 8, 1, "torchrun")),
        # Dawn: mpiexec starts one task a host by Slurm, which starts the ranks
        (HYDRA | ONE_TASK_A_HOST, Placement(9, 16, 1, "pmi")),
        (OPENMPI | ONE_TASK_A_HOST, Placement(2, 4, 0, "openmpi")),
        # srun --mpi=pmi2 names the local rank only by its own variable
        ({"PMI_RANK": "3", "PMI_SIZE": "16"} | SLURM, Placement(3, 16, 2, "pmi")),
        # LUMI's scripts: RANK=$SLURM_PROCID by hand
        ({"RANK": "3", "WORLD_SIZE": "16"} | SLURM, Placement(3, 16, 2, "torchrun")),
        ({"RANK": "3", "WORLD_SIZE": "16"}, Placement(3, 16, 3, "torchrun")),
        # half a launcher is none
        ({"RANK": "3"} | SLURM, Placement(3, 16, 2, "slurm")),
        ({"RANK": "3"}, None),
        ({}, None),
    ],
)
def test_the_most_specific_launcher_wins(environment: dict[str, str], expected: Placement | None) -> None:
    assert read_placement(environment) == expected


@rows(
    ("environment", "text"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2"}, 'RANK="x" is not a whole number'),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, 'RANK="-1" is not a whole number'),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "2"}, "SLURM_PROCID=2 does not fit SLURM_NTASKS=2"),
        (TORCHRUN | {"LOCAL_RANK": ""}, 'LOCAL_RANK="" is not a whole number'),
    ],
)
def test_contradictions_are_named(environment: dict[str, str], text: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_placement(environment)
    assert text in str(raised.value)


@rows("environment", [{}, SLURM, ONE_TASK_A_HOST, {"PMI_RANK": "0", "PMI_SIZE": "1"}])
def test_own_ranks_win_over_the_shell_of_an_allocation(environment: dict[str, str]) -> None:
    check_own_ranks(environment)


@rows("environment", [TORCHRUN, HYDRA, OPENMPI, TORCHRUN | ONE_TASK_A_HOST])
def test_own_ranks_inside_a_launchers_ranks_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="leave --ranks out"):
        check_own_ranks(environment)
