"""Whatever a file holds, it is read or refused in words, in less than five seconds of the processor's time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cases import KINDS, attempt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

# Drawn the same way each time: what fails here fails for everybody. `make fuzz` draws others.
CASES = {
    "recipes": 150,
    "sites": 150,
    "locks": 400,
    "foreign": 150,
    "json": 400,
    "archives": 400,
    "images": 400,
    "yaml": 400,
    "compiled": 400,
}


@pytest.mark.parametrize("kind", KINDS)
def test_security_18_a_foreign_file_is_read_or_refused(kind: str, tmp_path: Path) -> None:
    @settings(
        max_examples=CASES[kind], derandomize=True, database=None, deadline=None,
        suppress_health_check=list(HealthCheck), print_blob=False,
    )  # fmt: skip
    @given(seed=st.integers(min_value=0, max_value=2**63))
    def every(seed: int) -> None:
        started = time.process_time()
        attempt(kind, seed, tmp_path)
        assert time.process_time() - started < 5

    every()
