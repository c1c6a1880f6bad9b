"""Tasks of arrays, as a stand-in for squeue tells of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from builder.slurm.client import Slurm

SQUEUE = """#!/usr/bin/env python3
import json, sys
asked = next(word for word in sys.argv if word.startswith("--jobs=")).partition("=")[2]
print(json.load(open(sys.argv[0] + ".json")).get(asked, ""), end="")
"""


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (
            {"7_0,7_1": "7_0|RUNNING|n1|2026-11-22T01:00:00|2026-11-22T02:00:00|None\n7_1|PENDING||N/A|N/A|Priority\n"},
            {"7_0": "RUNNING", "7_1": "PENDING"},
        ),
        # Cancelled while it waited: the array is known, the task is not.
        (
            {"7_0,7_1": "7_0|RUNNING|n1|2026-11-22T01:00:00|2026-11-22T02:00:00|None\n", "7": "7\n"},
            {"7_0": "RUNNING", "7_1": "CANCELLED"},
        ),
        ({"7": "7\n"}, {"7_0": "CANCELLED", "7_1": "CANCELLED"}),
        ({}, {"7_0": "", "7_1": ""}),  # nobody knows the array any more
    ],
)
def test_tasks_by_their_numbers(tmp_path: Path, answers: dict[str, str], found: dict[str, str]) -> None:
    squeue = tmp_path / "squeue"  # a stand-in: it knows its answers by heart
    squeue.write_text(SQUEUE)
    squeue.chmod(0o755)
    (tmp_path / "sacct").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "sacct").chmod(0o755)
    (tmp_path / "squeue.json").write_text(json.dumps(answers))
    states = Slurm({"PATH": f"{tmp_path}:/usr/bin:/bin"}).query_states(["7_0", "7_1"])
    assert states is not None
    assert {job: one.word for job, one in states.items()} == found
