"""The floors of a job, as bash chooses them."""

from __future__ import annotations

import subprocess

import pytest
from support.matrix import script_of


@pytest.mark.parametrize(
    ("site", "nodes", "devices", "given", "floors"),
    [
        ("lumi-g", 1, None, 1, ["--floor", "128MiB=118.75"]),
        ("lumi-g", 2, None, 2, ["--floor", "128MiB=80.75"]),
        ("lumi-g", 2, None, 3, []),  # nobody has told
        ("lumi-g", 1, 4, 1, []),  # whole nodes only
        ("mn5", 2, None, 128, ["--floor", "4GiB=71.19"]),
        ("dawn", 2, None, 2, []),
    ],
)
def test_floors_are_those_of_the_nodes_that_the_job_has(
    site: str, nodes: int, devices: int | None, given: int, floors: list[str]
) -> None:
    """The number of nodes may be said again when the job is submitted: bash chooses."""
    script = script_of(site, nodes=nodes, devices=devices)
    lines = script[script.index("floors=()") : script.index("device=(")]
    done = subprocess.run(
        ["bash", "-euc", f'SLURM_JOB_NUM_NODES={given}\n{lines}\nprintf "%s\\n" "${{floors[@]}}"'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == floors
