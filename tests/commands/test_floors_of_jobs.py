"""The floors of a job, as bash chooses them."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from matrix import TOOL, recipes

from builder.compile.launch import shape_of, shape_script
from builder.model.catalog import load_site
from builder.model.target import Context, Target
from builder.resolve.target import resolve


def target_of(site: str, stem: str = "finetune") -> Target:
    """A target of the matrix that names no workloads."""
    recipe, _ = recipes()[stem]
    bare = replace(recipe, container=replace(recipe.container, smoke=replace(recipe.container.smoke, workloads=None)))
    return resolve(bare, load_site(site), context=Context(tool=TOOL))


def script_of(site: str, *, nodes: int | None, devices: int | None) -> str:
    target = target_of(site)
    purpose, job = shape_of(target, nodes=nodes, devices=devices)
    return shape_script(target, job, purpose=purpose)


@pytest.mark.parametrize(
    ("site", "nodes", "devices", "given", "floors"),
    [
        ("lumi-g", 1, None, 1, ["--floor", "128MiB=118.8"]),
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
